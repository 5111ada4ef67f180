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

Json Object() {
  Json object = Json::Array({});
  object.kind = Json::Kind::kObject;
  return object;
}

Json Number(int64_t number) { return Json::Literal(std::to_string(number)); }

Json Numbers(const Shape& numbers) {
  Json list = Json::Array({});
  for (int64_t number : numbers) list.items.push_back(Number(number));
  return list;
}

/*! \brief An attribute as version 1 has it: rows of strings. */
Json RowsOf(const Json& value) {
  Json row = Json::Array({});
  for (const Json& item : value.IsScalar() ? std::vector<Json>{value} : value.items) {
    row.items.push_back(Json::Text(item.text));
  }
  return Json::Array({row});
}

/*! \brief Attributes as version 1 has them, in which those of a post-op have a prefix. */
Json FlatAttrs(const Json& attrs) {
  Json flat = Object();
  for (size_t i = 0; i < attrs.keys.size(); ++i) {
    const std::string& key = attrs.keys[i];
    const Json& value = attrs.items[i];
    if (key == "shape" || key == "dtype") {
      flat.Set(key, Json::Array({value}));
    } else if (key != "post_ops") {
      flat.Set(key, RowsOf(value));
    } else {
      Json names = Json::Array({});
      for (const Json& post_op : value.items) {
        const std::string prefix = "post_ops." + std::to_string(names.items.size()) + ".";
        names.items.push_back(*post_op.Find("op"));
        for (size_t k = 1; k < post_op.keys.size(); ++k) {
          flat.Set(prefix + post_op.keys[k], RowsOf(post_op.items[k]));
        }
      }
      flat.Set(key, Json::Array({names}));
    }
  }
  return flat;
}

/*! \brief Makes one op with post-ops, and the shapes of its results. */
class LegalOp {
 public:
  LegalOp(Random* random, Shape data) : random_(*random), data_(std::move(data)) {}

  /*! \brief The node, which reads an output of another one, in version 1 or 2. */
  Json Make(size_t from, size_t output, bool is_typed) {
    using Action = void (LegalOp::*)();
    static constexpr Action kActions[] = {&LegalOp::Pad,   &LegalOp::Split, &LegalOp::Pool,
                                          &LegalOp::Slice, &LegalOp::Plain, &LegalOp::Plain};
    do {
      attrs_ = Object();
      results_.clear();
      (this->*random_.Pick(kActions))();
    } while (results_.empty() || NumElements(results_[0]) > kMostElements);
    if (results_.size() == 1) AddPostOps();
    Json shapes = Json::Array({}), types = Json::Array({});
    for (const Shape& result : results_) {
      shapes.items.push_back(Numbers(result));
      types.items.push_back(Json::Text("float32"));
    }
    attrs_.Set("shape", shapes);
    attrs_.Set("dtype", types);
    if (!is_typed) {
      attrs_ = FlatAttrs(attrs_);
      attrs_.Set("num_inputs", Json::Text("1"));
      attrs_.Set("num_outputs", Json::Text(std::to_string(results_.size())));
    }
    const Json entry = Json::Array({Json::Literal(std::to_string(from)),
                                    Json::Literal(std::to_string(output)), Json::Literal("0")});
    Json node = Object();
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
    attrs_.Set("pad_width", Numbers(widths));
    attrs_.Set("pad_value", Json::Literal("2.5"));
  }

  void Split() {
    name_ = "split";
    const size_t axis = AnyAxis();
    const int64_t size = data_[axis], sections = 1 + random_.Below(4);
    if (size % sections != 0) return;
    results_.assign(sections, data_);
    for (Shape& part : results_) part[axis] = size / sections;
    attrs_.Set("axis", Number(axis));
    attrs_.Set("indices_or_sections", Number(sections));
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
    attrs_.Set("pool_size", Numbers(kernel));
    attrs_.Set("strides", Numbers(strides));
    attrs_.Set("padding", Numbers(begin));
    attrs_.Set("layout", Json::Text("NCHW"));
    if (random_.Chance(50))
      attrs_.Set("count_include_pad", Json::Literal(random_.Chance(50) ? "true" : "1"));
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
    attrs_.Set("axes", Numbers({static_cast<int64_t>(axis)}));
    attrs_.Set("begin", Numbers({begin}));
    attrs_.Set("end", Numbers({end}));
  }

  /*! \brief Ops whose result has the shape of the data. */
  void Plain() {
    const char* const names[] = {"nn.relu",  "nn.softmax", "nn.log_softmax",
                                 "exp",      "abs",        "nn.l2_normalize",
                                 "dnnl.pow", "negative",   "dnnl.rms_norm"};
    name_ = random_.Pick(names);
    results_ = {data_};
    if (name_ == "nn.l2_normalize") attrs_.Set("eps", Json::Literal("1e-5"));
    if (name_ == "dnnl.rms_norm") attrs_.Set("epsilon", Json::Literal("1e-5"));
    if (name_ == "nn.l2_normalize") attrs_.Set("axis", Number(-1));
  }

  void AddPostOps() {
    const char* const names[] = {"negative", "nn.relu",   "nn.softmax", "reshape",
                                 "reshape",  "transpose", "nn.pad",     "expand_dims"};
    Json post_ops = Json::Array({});
    Shape& shape = results_[0];
    for (size_t count = random_.Below(5); count > 0; --count) {
      const std::string name = random_.Pick(names);
      Json post_op = Object();
      post_op.Set("op", Json::Text(name));
      if (name == "reshape") {
        if (random_.Chance(50)) shape = {NumElements(shape)};
        std::reverse(shape.begin(), shape.end());
        post_op.Set("newshape", Numbers(shape));
      } else if (name == "transpose") {
        std::reverse(shape.begin(), shape.end());
      } else if (name == "nn.pad") {
        post_op.Set("pad_width", Numbers(Shape(2 * shape.size(), 1)));
        post_op.Set("pad_value", Number(0));
        for (int64_t& size : shape) size += 2;
      } else if (name == "expand_dims") {
        post_op.Set("axis", Number(0));
        shape.insert(shape.begin(), 1);
      }
      post_ops.items.push_back(post_op);
    }
    if (!post_ops.items.empty()) attrs_.Set("post_ops", post_ops);
  }

  Random& random_;
  const Shape data_;
  std::string name_;
  Json attrs_;
  std::vector<Shape> results_;
};

/*! \brief The shape of an output of float32 that is known; empty where it is not. */
Shape ShapeOf(const Json& node, size_t output) {
  const Json* shapes = OutputsOf(node, "shape");
  const Json* types = OutputsOf(node, "dtype");
  if (shapes == nullptr || types == nullptr) return {};
  if (shapes->items.size() <= output || types->items.size() <= output) return {};
  if (types->items[output].text != "float32") return {};
  Shape shape;
  for (const Json& size : shapes->items[output].items) {
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
  nodes->items.push_back(op.Make(from, 0, IsTyped(*graph)));
  for (size_t i = 0; i < op.num_results(); ++i) {
    heads->items.push_back(
        Json::Array({Json::Literal(last), Json::Literal(std::to_string(i)), Json::Literal("0")}));
  }
  return "node " + last + " is " + ToText(nodes->items.back()).substr(0, 600);
}

}  // namespace artifacts
