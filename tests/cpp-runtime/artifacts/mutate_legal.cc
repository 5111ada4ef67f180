// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/artifacts/mutate_legal.cc
 * \brief Adds ops that are legal, but that no compiler of ours would write.
 */
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "mutate.h"

namespace artifacts {

namespace {

using Shape = std::vector<int64_t>;

constexpr int64_t kMostElements = 1 << 18;

int64_t NumElements(const Shape& shape) {
  int64_t elements = 1;
  for (int64_t size : shape) {
    if (size < 1 || elements > kMostElements / size) return kMostElements + 1;
    elements *= size;
  }
  return elements;
}

Json Texts(const std::vector<std::string>& texts) {
  Json row = Json::Array({});
  for (const std::string& text : texts) row.items.push_back(Json::Text(text));
  return Json::Array({row});
}

Json Texts(const Shape& numbers) {
  std::vector<std::string> texts;
  for (int64_t number : numbers) texts.push_back(std::to_string(number));
  return Texts(texts);
}

/*! \brief Makes one op with post-ops, and the shapes of its results. */
class LegalOp {
 public:
  LegalOp(Random* random, Shape data) : random_(*random), data_(std::move(data)) {}

  /*! \brief The node, which reads an output of another one. */
  Json Make(size_t from, size_t output) {
    using Action = void (LegalOp::*)();
    static constexpr Action kActions[] = {&LegalOp::Pad,   &LegalOp::Split, &LegalOp::Pool,
                                          &LegalOp::Slice, &LegalOp::Plain, &LegalOp::Plain};
    do {
      attrs_ = Json::Array({});
      attrs_.kind = Json::Kind::kObject;
      results_.clear();
      (this->*random_.Pick(kActions))();
    } while (results_.empty() || NumElements(results_[0]) > kMostElements);
    if (results_.size() == 1) AddPostOps();
    Json shapes = Json::Array({}), types = Json::Array({});
    for (const Shape& result : results_) {
      Json shape = Json::Array({});
      for (int64_t size : result) shape.items.push_back(Json::Literal(std::to_string(size)));
      shapes.items.push_back(shape);
      types.items.push_back(Json::Text("float32"));
    }
    attrs_.Set("shape", Json::Array({shapes}));
    attrs_.Set("dtype", Json::Array({types}));
    attrs_.Set("num_inputs", Json::Text("1"));
    attrs_.Set("num_outputs", Json::Text(std::to_string(results_.size())));
    const Json entry = Json::Array({Json::Literal(std::to_string(from)),
                                    Json::Literal(std::to_string(output)), Json::Literal("0")});
    Json node = Json::Array({});
    node.kind = Json::Kind::kObject;
    node.Set("op", Json::Text("kernel"));
    node.Set("name", Json::Text(name_));
    node.Set("inputs", Json::Array({entry}));
    node.Set("attrs", attrs_);
    return node;
  }

  size_t num_results() const { return results_.size(); }

 private:
  size_t AnyAxis() { return random_.Below(data_.size()); }

  void Pad() {
    name_ = "nn.pad";
    constexpr int64_t kWidths[] = {0, 0, 0, 1, 2, 11, 64, 1000, 65537};
    Shape widths;
    results_ = {data_};
    for (int64_t& size : results_[0]) {
      for (int i = 0; i < 2; ++i) {
        widths.push_back(random_.Pick(kWidths));
        size += widths.back();
      }
    }
    attrs_.Set("pad_width", Texts(widths));
    attrs_.Set("pad_value", Texts({std::string("2.5")}));
  }

  void Split() {
    name_ = "split";
    const size_t axis = AnyAxis();
    const int64_t size = data_[axis], sections = 1 + random_.Below(4);
    if (size % sections != 0) return;
    results_.assign(sections, data_);
    for (Shape& part : results_) part[axis] = size / sections;
    attrs_.Set("axis", Texts(Shape{static_cast<int64_t>(axis)}));
    attrs_.Set("indices_or_sections", Texts(Shape{sections}));
  }

  void Pool() {
    name_ = random_.Chance(50) ? "nn.max_pool2d" : "nn.avg_pool2d";
    if (data_.size() != 4) return;
    constexpr int64_t kPads[] = {0, 0, 1, 7, 50, 1000, 4096};
    constexpr int64_t kStrides[] = {1, 2, 3, 1000, 2147483647};
    Shape result = data_, kernel, begin, end, strides;
    for (size_t axis : {2, 3}) {
      begin.push_back(random_.Pick(kPads));
      end.push_back(random_.Pick(kPads));
      const int64_t padded = data_[axis] + begin.back() + end.back();
      const int64_t least = std::max(begin.back(), end.back()) + 1;
      kernel.push_back(random_.Chance(50) ? padded : least + random_.Below(padded - least + 1));
      strides.push_back(random_.Pick(kStrides));
      const int64_t count = (padded - kernel.back()) / strides.back() + 1;
      if ((count - 1) * strides.back() >= data_[axis] + begin.back()) return;
      result[axis] = count;
    }
    begin.insert(begin.end(), end.begin(), end.end());
    results_ = {result};
    attrs_.Set("pool_size", Texts(kernel));
    attrs_.Set("strides", Texts(strides));
    attrs_.Set("padding", Texts(begin));
    attrs_.Set("layout", Texts({std::string("NCHW")}));
    if (random_.Chance(50)) attrs_.Set("count_include_pad", Texts({std::string("1")}));
  }

  void Slice() {
    name_ = "strided_slice";
    constexpr int64_t kLowest = INT64_MIN, kHighest = INT64_MAX;
    const size_t axis = AnyAxis();
    const int64_t first = random_.Below(data_[axis]), last = first + random_.Below(data_[axis]);
    results_ = {data_};
    results_[0][axis] = std::min(last + 1, data_[axis]) - first;
    const int64_t begin = first == 0 && random_.Chance(50) ? kLowest : first;
    const int64_t end = last + 1 >= data_[axis] && random_.Chance(50) ? kHighest : last + 1;
    attrs_.Set("axes", Texts(Shape{static_cast<int64_t>(axis)}));
    attrs_.Set("begin", Texts(Shape{begin}));
    attrs_.Set("end", Texts(Shape{end}));
  }

  /*! \brief Ops whose result has the shape of the data. */
  void Plain() {
    const char* const names[] = {"nn.relu",  "nn.softmax", "nn.log_softmax",
                                 "exp",      "abs",        "nn.l2_normalize",
                                 "dnnl.pow", "negative",   "dnnl.rms_norm"};
    name_ = random_.Pick(names);
    results_ = {data_};
    if (name_ == "nn.l2_normalize") attrs_.Set("eps", Texts({std::string("1e-5")}));
    if (name_ == "dnnl.rms_norm") attrs_.Set("epsilon", Texts({std::string("1e-5")}));
    if (name_ == "nn.l2_normalize") attrs_.Set("axis", Texts(Shape{-1}));
  }

  void AddPostOps() {
    const char* const names[] = {"negative", "nn.relu",   "nn.softmax", "reshape",
                                 "reshape",  "transpose", "nn.pad",     "expand_dims"};
    std::vector<std::string> post_ops;
    Shape& shape = results_[0];
    for (size_t count = random_.Below(5); count > 0; --count) {
      const std::string prefix = "post_ops." + std::to_string(post_ops.size()) + ".";
      post_ops.push_back(random_.Pick(names));
      const std::string& name = post_ops.back();
      if (name == "reshape") {
        if (random_.Chance(50)) shape = {NumElements(shape)};
        std::reverse(shape.begin(), shape.end());
        attrs_.Set(prefix + "newshape", Texts(shape));
      } else if (name == "transpose") {
        std::reverse(shape.begin(), shape.end());
      } else if (name == "nn.pad") {
        attrs_.Set(prefix + "pad_width", Texts(Shape(2 * shape.size(), 1)));
        attrs_.Set(prefix + "pad_value", Texts({std::string("0")}));
        for (int64_t& size : shape) size += 2;
      } else if (name == "expand_dims") {
        attrs_.Set(prefix + "axis", Texts(Shape{0}));
        shape.insert(shape.begin(), 1);
      }
    }
    if (!post_ops.empty()) attrs_.Set("post_ops", Texts(post_ops));
  }

  Random& random_;
  const Shape data_;
  std::string name_;
  Json attrs_;
  std::vector<Shape> results_;
};

/*! \brief The shape of an output of float32 that is known; empty where it is not. */
Shape ShapeOf(const Json& node, size_t output) {
  const Json* attrs = node.Find("attrs");
  const Json* shapes = attrs == nullptr ? nullptr : attrs->Find("shape");
  const Json* types = attrs == nullptr ? nullptr : attrs->Find("dtype");
  if (shapes == nullptr || types == nullptr) return {};
  if (shapes->items.size() != 1 || types->items.size() != 1) return {};
  if (shapes->items[0].items.size() <= output || types->items[0].items.size() <= output) return {};
  if (types->items[0].items[output].text != "float32") return {};
  Shape shape;
  for (const Json& size : shapes->items[0].items[output].items) {
    shape.push_back(std::strtoll(size.text.c_str(), nullptr, 10));
  }
  return shape;
}

}  // namespace

std::string AppendLegalOp(Random* random, Json* graph) {
  Json* nodes = graph->Find("nodes");
  Json* heads = graph->Find("heads");
  if (nodes == nullptr || nodes->items.empty() || heads == nullptr) return "";
  if (nodes->kind != Json::Kind::kArray || heads->kind != Json::Kind::kArray) return "";
  const size_t from = random->Below(nodes->items.size());
  const Shape shape = ShapeOf(nodes->items[from], 0);
  if (shape.empty() || NumElements(shape) > kMostElements) return "";
  LegalOp op(random, shape);
  const std::string last = std::to_string(nodes->items.size());
  nodes->items.push_back(op.Make(from, 0));
  for (size_t i = 0; i < op.num_results(); ++i) {
    heads->items.push_back(
        Json::Array({Json::Literal(last), Json::Literal(std::to_string(i)), Json::Literal("0")}));
  }
  return "node " + last + " is " + ToText(nodes->items.back()).substr(0, 600);
}

}  // namespace artifacts
