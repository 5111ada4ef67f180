// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/dnnl/core/quantized_graph.h
 * \brief Graphs of quantized ops, made by hand, and what they give.
 */
#ifndef TESTS_CPP_RUNTIME_DNNL_CORE_QUANTIZED_GRAPH_H_
#define TESTS_CPP_RUNTIME_DNNL_CORE_QUANTIZED_GRAPH_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "src/runtime/contrib/dnnl/core/desc.h"
#include "src/runtime/contrib/dnnl/core/flat_attrs.h"
#include "src/runtime/contrib/dnnl/core/kernels/int8_matrices.h"
#include "src/runtime/contrib/dnnl/core/lowering.h"
#include "tests/cpp-runtime/harness/test.h"

namespace dnnl_test {

using namespace tvm::runtime::contrib::dnnl_backend;  // NOLINT(build/namespaces)

constexpr DLDataType kFloat{kDLFloat, 32, 1};
constexpr DLDataType kUInt8{kDLUInt, 8, 1};
constexpr DLDataType kInt8{kDLInt, 8, 1};
constexpr DLDataType kInt32{kDLInt, 32, 1};

using Shape = std::vector<int64_t>;

inline int64_t SizeOf(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<int64_t>());
}

/*! \brief A tensor by its elements, as wide numbers. */
struct Array {
  Shape shape;
  DLDataType dtype;
  std::vector<double> values;

  std::vector<char> Bytes() const {
    std::vector<char> bytes;
    const auto append = [&bytes](auto value) {
      const char* begin = reinterpret_cast<const char*>(&value);
      bytes.insert(bytes.end(), begin, begin + sizeof(value));
    };
    for (double value : values) {
      if (dtype.code == kDLFloat) {
        append(static_cast<float>(value));
      } else if (dtype.bits == 32) {
        append(static_cast<int32_t>(value));
      } else {
        append(static_cast<uint8_t>(static_cast<int>(value)));
      }
    }
    return bytes;
  }
  void Read(const std::vector<char>& bytes) {
    const size_t width = dtype.bits / 8;
    values.clear();
    for (size_t at = 0; at < bytes.size(); at += width) {
      float real = 0;
      int32_t integer = 0;
      std::memcpy(dtype.code == kDLFloat ? static_cast<void*>(&real) : &integer, &bytes[at], width);
      const bool is_signed_byte = dtype.code == kDLInt && width == 1;
      values.push_back(dtype.code == kDLFloat ? real
                       : is_signed_byte       ? static_cast<int8_t>(integer)
                                              : integer);
    }
  }
};

inline Array Scalar(float value) { return {{}, kFloat, {value}}; }
inline Array ZeroPoint(int value) { return {{}, kInt32, {static_cast<double>(value)}}; }
inline Array Vector(std::vector<double> values, DLDataType dtype = kFloat) {
  return {{static_cast<int64_t>(values.size())}, dtype, std::move(values)};
}

/*! \brief Elements that differ from place to place, from `low` to `high`. */
inline Array Noise(Shape shape, DLDataType dtype, double low, double high, uint32_t seed = 1) {
  Array array{std::move(shape), dtype, {}};
  uint32_t state = seed * 2654435761u + 12345;
  for (int64_t i = 0; i < SizeOf(array.shape); ++i) {
    state = state * 1664525u + 1013904223u;
    const double value = low + (high - low) * ((state >> 8) / static_cast<double>(1 << 24));
    array.values.push_back(dtype.code == kDLFloat ? static_cast<float>(value) : std::round(value));
  }
  return array;
}

/*! \brief Elements in 8 bits of all that there are. */
inline Array Bytes(Shape shape, DLDataType dtype, uint32_t seed = 1) {
  const double low = dtype.code == kDLUInt ? 0 : -128;
  return Noise(std::move(shape), dtype, low, low + 255, seed);
}

/*! \brief Elements in 8 bits that differ by no more than `largest` from a zero point. */
inline Array Weights(Shape shape, DLDataType dtype, int zero_point, int largest) {
  const double low = dtype.code == kDLUInt ? 0 : -128;
  return Noise(std::move(shape), dtype, std::max<double>(low, zero_point - largest),
               std::min<double>(low + 255, zero_point + largest), 3);
}

/*! \brief A graph that is run on arrays. */
class QuantizedGraph {
 public:
  QuantizedGraph() { graph_.symbol = graph_.name = "main"; }

  /*! \brief A value that is passed at each run. */
  Entry Input(const Array& array) {
    const Entry entry{next_++, 0};
    graph_.inputs.push_back({entry, {"input", {array.shape, array.dtype}}});
    inputs_.push_back(array);
    return entry;
  }
  Entry Constant(const Array& array) {
    const Entry entry{next_++, 0};
    const auto bytes = std::make_shared<std::vector<char>>(array.Bytes());
    // Where oneDNN would want it, whatever the vector's own memory is.
    graph_.constants.push_back(
        {{entry, {"constant", {array.shape, array.dtype}}}, {bytes, bytes->data()}});
    return entry;
  }
  /*! \brief A kernel; its attributes may be set until the graph runs. */
  Node* Add(const std::string& name, std::vector<Entry> inputs, Shape shape, DLDataType dtype) {
    nodes_.push_back(std::make_unique<Node>(
        Node{next_++, name, {}, std::move(inputs), {{std::move(shape), dtype}}}));
    return nodes_.back().get();
  }
  /*! \brief Add the last post-op of a node, with a scale and a zero point. */
  void AddPostOp(Node* node, const std::string& name) {
    post_ops_[node->id].push_back(name);
    node->attrs["post_ops"] = post_ops_[node->id];
    if (node->attrs.count("root_op") == 0) node->attrs["root_op"] = node->name;
  }
  /*! \brief Add the last post-op of a node, of which an input is an operand. */
  void AddPostOp(Node* node, const std::string& name, int operand, bool is_bias = false) {
    AddPostOp(node, name);
    node->attrs[LastPostOp(node) + "operand"] = operand;
    if (is_bias) node->attrs[LastPostOp(node) + "is_bias"] = "1";
  }
  std::string LastPostOp(Node* node) {
    return "post_ops." + std::to_string(post_ops_[node->id].size() - 1) + ".";
  }
  /*! \brief Append a scale and a zero point to the inputs and name them in the attributes. */
  void SetScale(Node* node, const std::string& prefix, const Array& scale, const Array& zero_point,
                int axis = -1) {
    node->attrs[prefix + "scale"] = static_cast<int64_t>(node->inputs.size());
    node->attrs[prefix + "zero_point"] = static_cast<int64_t>(node->inputs.size() + 1);
    node->attrs[prefix + "axis"] = static_cast<int64_t>(axis);
    const auto value = [this](const Array& array) {
      return computes_scales ? Input(array) : Constant(array);
    };
    node->inputs.push_back(value(scale));
    node->inputs.push_back(value(zero_point));
  }
  void Dequantize(Node* node, int input, const Array& scale, const Array& zero_point,
                  int axis = -1) {
    SetScale(node, "dequantize." + std::to_string(input) + ".", scale, zero_point, axis);
  }
  void Quantize(Node* node, const Array& scale, const Array& zero_point, DLDataType dtype,
                int axis = -1) {
    AddPostOp(node, "qnn.quantize");
    node->attrs[LastPostOp(node) + "out_dtype"] = ToText(dtype);
    SetScale(node, LastPostOp(node), scale, zero_point, axis);
  }

  std::shared_ptr<const Plan> MakePlan() {
    Graph graph = graph_;
    for (const auto& node : nodes_) {
      graph.nodes.push_back(*node);
      NestAttrs(&graph.nodes.back().attrs);
    }
    const Node& last = *nodes_.back();
    graph.outputs = {{{last.id, 0}, {"output", last.outputs[0]}}};
    return dnnl_test::MakePlan(graph);
  }
  /*! \brief What the last node gives. */
  Array Run() {
    plan = MakePlan();
    std::vector<std::vector<char>> memory;
    for (const Array& input : inputs_) memory.push_back(input.Bytes());
    const TensorType& type = nodes_.back()->outputs[0];
    Array result{type.shape, type.dtype, {}};
    const size_t size = SizeOf(type.shape) * type.dtype.bits / 8;
    const std::vector<char> behind(64, 0x5a);
    memory.emplace_back(size);
    memory.back().insert(memory.back().end(), behind.begin(), behind.end());
    std::vector<void*> addresses;
    for (auto& bytes : memory) addresses.push_back(bytes.data());
    Context(plan).Run(addresses, nullptr);
    EXPECT_TRUE(std::equal(behind.begin(), behind.end(), memory.back().begin() + size));
    memory.back().resize(size);
    result.Read(memory.back());
    return result;
  }
  /*! \brief The latest run's step of a kind; one without a name where there is none. */
  StepInfo Find(const std::string& kind) const {
    for (const Step& step : plan->steps) {
      if (step.info.kind == kind) return step.info;
    }
    return {};
  }
  int Count(const std::string& kind) const {
    return static_cast<int>(
        std::count_if(plan->steps.begin(), plan->steps.end(),
                      [&kind](const Step& step) { return step.info.kind == kind; }));
  }

  std::shared_ptr<const Plan> plan;
  /*! \brief Whether scales and zero points are inputs of the graph, as if they were computed. */
  bool computes_scales{false};

 private:
  Graph graph_;
  uint32_t next_{0};
  std::vector<Array> inputs_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::map<uint32_t, std::vector<std::string>> post_ops_;
};

inline bool IsInFloat32(const StepInfo& step) {
  return step.variant.find("in float32") != std::string::npos;
}

/*! \brief Whether int8 kernels of this CPU are right with any weights, as those with VNNI are. */
inline bool HasExactSums() {
  const int isa = static_cast<int>(dnnl::get_effective_cpu_isa());
  return (isa & 0x8) != 0 || (isa & 0x40) != 0;
}

/*! \brief Whether matrices of 8 bits are multiplied exactly, by oneDNN or by kernels of ours. */
inline bool HasExactMatrices() { return HasExactSums() || HasInt8Matrices(); }

/*! \brief The element of a scale or zero point that belongs to a coordinate. */
inline double At(const Array& part, int64_t coordinate) {
  return part.values[part.values.size() == 1 ? 0 : coordinate];
}

/*! \brief The coordinate along an axis of the i-th element; 0 where there is no such axis. */
inline int64_t CoordinateOf(const Shape& shape, int64_t i, int axis) {
  if (axis < 0) axis += static_cast<int>(shape.size());
  for (size_t later = shape.size(); later > static_cast<size_t>(axis) + 1; --later) {
    i /= shape[later - 1];
  }
  return axis < static_cast<int>(shape.size()) ? i % shape[axis] : 0;
}

inline Array Dequantized(const Array& data, const Array& scale, const Array& zero_point,
                         int axis = -1) {
  Array result{data.shape, kFloat, {}};
  for (size_t i = 0; i < data.values.size(); ++i) {
    const int64_t at = CoordinateOf(data.shape, i, axis);
    result.values.push_back(At(scale, at) * (data.values[i] - At(zero_point, at)));
  }
  return result;
}

/*! \brief Rounded half to even once, then saturated. */
inline double Saturated(double value, DLDataType dtype) {
  const double low = dtype.code == kDLUInt ? 0 : -std::ldexp(1, dtype.bits - 1);
  const double high = low + std::ldexp(1, dtype.bits) - 1;
  return std::min(std::max(std::nearbyint(value), low), high);
}

inline Array Quantized(const Array& data, const Array& scale, const Array& zero_point,
                       DLDataType dtype, int axis = -1) {
  Array result{data.shape, dtype, {}};
  for (size_t i = 0; i < data.values.size(); ++i) {
    const int64_t at = CoordinateOf(data.shape, i, axis);
    result.values.push_back(Saturated(data.values[i] / At(scale, at) + At(zero_point, at), dtype));
  }
  return result;
}

/*! \brief What a node gives: floating-point values, or quantized ones, of which it is told. */
inline Array Result(QuantizedGraph* graph, Node* node, const Array& real, const Array& scale,
                    const Array& zero_point, DLDataType dtype) {
  if (dtype.code == kDLFloat) return real;
  graph->Quantize(node, scale, zero_point, dtype);
  return Quantized(real, scale, zero_point, dtype);
}

/*!
 * \brief Check each element.
 * \param tolerance Of integers how many steps, of floats which part of the largest expected one.
 * \param share Which part of the elements may differ at all.
 */
inline bool ExpectNear(const Array& actual, const Array& expected, double tolerance, double share,
                       const std::string& what) {
  if (!EXPECT_EQ(actual.values.size(), expected.values.size())) return false;
  double largest = 1;
  if (expected.dtype.code == kDLFloat) {
    largest = 0;
    for (double value : expected.values) largest = std::max(largest, std::abs(value));
  }
  int64_t different = 0;
  for (size_t i = 0; i < expected.values.size(); ++i) {
    const double error = std::abs(actual.values[i] - expected.values[i]);
    if (error > 0) ++different;
    if (error <= tolerance * largest) continue;
    std::cerr << what << ": element " << i << " is " << actual.values[i] << ", expected "
              << expected.values[i] << std::endl;
    return EXPECT_TRUE(error <= tolerance * largest);
  }
  const double fraction = static_cast<double>(different) / expected.values.size();
  if (expected.dtype.code != kDLFloat && fraction > share) {
    std::cerr << what << ": " << fraction << " of the elements differ" << std::endl;
    return EXPECT_TRUE(fraction <= share);
  }
  return true;
}

}  // namespace dnnl_test

#endif  // TESTS_CPP_RUNTIME_DNNL_CORE_QUANTIZED_GRAPH_H_
