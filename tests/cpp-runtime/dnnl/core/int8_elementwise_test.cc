// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/dnnl/core/int8_elementwise_test.cc
 * \brief Binary and unary ops, pools and conversions of quantized tensors: their steps and bounds.
 *
 * `fusion/test_quantized.py` and random quantized graphs compare types, scales and broadcasts.
 */
#include <cmath>
#include <string>
#include <vector>

#include "quantized_graph.h"

namespace dnnl_test::int8_elementwise {

double Compute(const std::string& op, double x, double y) {
  return op == "add" ? x + y : op == "subtract" ? x - y : op == "multiply" ? x * y : std::max(x, y);
}

struct Case {
  std::string op;
  DLDataType lhs, rhs, dst;
  int lhs_zero, rhs_zero;
  Shape lhs_shape{2, 16, 5, 5}, rhs_shape{2, 16, 5, 5};
  bool has_relu{false};
};

/*! \brief Run a binary op whose operands have as many dimensions as the result; the plan's steps.
 */
std::vector<Step> Check(const Case& c) {
  QuantizedGraph graph;
  Shape shape = c.lhs_shape;
  for (size_t i = 0; i < shape.size(); ++i) shape[i] = std::max(shape[i], c.rhs_shape[i]);
  const auto value = [](const Shape& shape, DLDataType dtype, uint32_t seed) {
    return dtype.code == kDLFloat ? Noise(shape, dtype, -5, 5, seed) : Bytes(shape, dtype, seed);
  };
  const Array lhs = value(c.lhs_shape, c.lhs, 1), rhs = value(c.rhs_shape, c.rhs, 2);
  Node* node = graph.Add(c.op, {graph.Input(lhs), graph.Input(rhs)}, shape, c.dst);
  node->attrs["root_op"] = c.op;
  Array x = lhs, y = rhs;
  if (c.lhs.code != kDLFloat) {
    graph.Dequantize(node, 0, Scalar(0.05f), ZeroPoint(c.lhs_zero));
    x = Dequantized(lhs, Scalar(0.05f), ZeroPoint(c.lhs_zero));
  }
  if (c.rhs.code != kDLFloat) {
    graph.Dequantize(node, 1, Scalar(0.02f), ZeroPoint(c.rhs_zero));
    y = Dequantized(rhs, Scalar(0.02f), ZeroPoint(c.rhs_zero));
  }
  Array real{shape, kFloat, {}};
  for (int64_t i = 0; i < SizeOf(shape); ++i) {
    const auto at = [&](const Array& array) {
      int64_t index = 0;
      for (size_t axis = 0; axis < shape.size(); ++axis) {
        const int64_t coordinate = CoordinateOf(shape, i, static_cast<int>(axis));
        index = index * array.shape[axis] + (array.shape[axis] == 1 ? 0 : coordinate);
      }
      return array.values[index];
    };
    real.values.push_back(Compute(c.op, at(x), at(y)));
  }
  if (c.has_relu) {
    graph.AddPostOp(node, "nn.relu");
    for (double& z : real.values) z = std::max(z, 0.);
  }
  const Array expected = Result(&graph, node, real, Scalar(0.1137f), ZeroPoint(11), c.dst);
  const std::string text =
      c.op + " " + ToText(c.lhs) + " " + ToText(c.rhs) + " to " + ToText(c.dst);
  ExpectNear(graph.Run(), expected, c.dst.code == kDLFloat ? 1e-6 : 1, 0.02, text);
  return graph.plan->steps;
}

TEST(DNNLInt8Binary, SumsAreOnePrimitive) {
  for (const char* op : {"add", "subtract"}) {
    for (DLDataType lhs : {kUInt8, kInt8, kFloat}) {
      for (DLDataType rhs : {kUInt8, kInt8, kFloat}) {
        for (DLDataType dst : {kUInt8, kInt8}) {
          for (bool has_relu : {false, true}) {
            Case c{op, lhs, rhs, dst, 3, 100};
            c.has_relu = has_relu;
            EXPECT_EQ(Check(c).size(), 1u);
          }
        }
      }
    }
  }
}

TEST(DNNLInt8Binary, AZeroPointIsTakenOffFirst) {
  for (const char* op : {"multiply", "maximum"}) {
    for (DLDataType lhs : {kUInt8, kInt8}) {
      for (bool has_relu : {false, true}) {
        Case c{op, lhs, kFloat, kUInt8, 77, 0};
        c.has_relu = has_relu;
        EXPECT_EQ(Check(c).size(), 1u);
        c.rhs_shape = {1, 16, 1, 1};
        EXPECT_EQ(Check(c).size(), 1u);
      }
    }
  }
  EXPECT_EQ(Check({"multiply", kUInt8, kInt8, kInt8, -9, 0}).size(), 1u);
}

TEST(DNNLInt8Binary, OfOtherTypesInOtherLayouts) {
  // The first operand goes into the layout of the second, and keeps its own type.
  for (DLDataType type : {kInt8, kFloat}) {
    const Array x = Noise({1, 8, 5, 5}, type, -100, 100), y = Bytes({1, 5, 5, 8}, kUInt8, 2);
    QuantizedGraph graph;
    Node* moved = graph.Add("transpose", {graph.Input(y)}, x.shape, kUInt8);
    moved->attrs["axes"] = std::vector<std::string>{"0", "3", "1", "2"};
    Node* node = graph.Add("add", {graph.Input(x), {moved->id, 0}}, x.shape, kInt8);
    node->attrs["root_op"] = "add";
    if (type.code == kDLInt) graph.Dequantize(node, 0, Scalar(1), ZeroPoint(0));
    graph.Dequantize(node, 1, Scalar(0.5), ZeroPoint(128));
    graph.Quantize(node, Scalar(2), ZeroPoint(1), kInt8);
    Array sum{x.shape, kFloat, x.values};
    for (int at = 0; at < 25; ++at) {
      for (int c = 0; c < 8; ++c) sum.values[c * 25 + at] += (y.values[at * 8 + c] - 128) / 2;
    }
    ExpectNear(graph.Run(), Quantized(sum, Scalar(2), ZeroPoint(1), kInt8), 1, 0.02, "layouts");
  }
}

TEST(DNNLInt8Binary, OfFarScales) {
  // What the zero points add, rounded to float32, would be many steps of the result.
  Array x = Bytes({2, 16}, kInt8);
  x.values[0] = 127;
  QuantizedGraph graph;
  Node* node = graph.Add("add", {graph.Input(x), graph.Input(x)}, x.shape, kInt8);
  node->attrs["root_op"] = "add";
  for (int k : {0, 1}) graph.Dequantize(node, k, Scalar(128015), ZeroPoint(127));
  graph.Quantize(node, Scalar(0.23622f), ZeroPoint(127), kInt8);
  Array sum = Dequantized(x, Scalar(128015), ZeroPoint(127));
  for (double& value : sum.values) value *= 2;
  ExpectNear(graph.Run(), Quantized(sum, Scalar(0.23622f), ZeroPoint(127), kInt8), 0, 0, "add");
}

/*! \brief A unary op of 8-bit values whose result, if in 8 bits, has the scale 0.0371 and the zero
 * point 11. */
struct UnaryCase {
  std::string op;
  DLDataType src, dst;
  float scale;
  int zero;
  Shape shape{2, 17, 5};
  bool computes_scales{false};
};

double Unary(const std::string& op, double x) {
  return op == "nn.relu"   ? std::max(x, 0.)
         : op == "abs"     ? std::abs(x)
         : op == "sigmoid" ? 1 / (1 + std::exp(-x))
         : op == "floor"   ? std::floor(static_cast<float>(x))
                           : std::tanh(x);
}

void CheckUnary(const UnaryCase& c) {
  QuantizedGraph graph;
  graph.computes_scales = c.computes_scales;
  const Array bytes = Bytes(c.shape, c.src);
  Array real = Dequantized(bytes, Scalar(c.scale), ZeroPoint(c.zero));
  Node* node = graph.Add(c.op, {graph.Input(bytes)}, bytes.shape, c.dst);
  node->attrs["root_op"] = c.op;
  graph.Dequantize(node, 0, Scalar(c.scale), ZeroPoint(c.zero));
  for (double& x : real.values) x = Unary(c.op, x);
  const Array expected = Result(&graph, node, real, Scalar(0.0371f), ZeroPoint(11), c.dst);
  ExpectNear(graph.Run(), expected, c.dst.code == kDLFloat ? 2e-6 : 1, 0.02, c.op);
}

TEST(DNNLInt8Unary, LooksUpEveryByteAtEachPosition) {
  // More than a thread's share, and a rest of no vector.
  for (int64_t size : {1, 31, 127, 128, 129, 4095, 4097, 150001}) {
    for (DLDataType type : {kUInt8, kInt8}) {
      CheckUnary({"sigmoid", type, kUInt8, 0.0371f, 11, {size}});
      CheckUnary({"abs", type, kFloat, 0.02f, -5, {size}});
    }
  }
}

TEST(DNNLInt8Unary, ComputesScalesThatAreNotConstant) {
  for (const char* op : {"nn.relu", "tanh", "floor"}) {
    CheckUnary({op, kUInt8, kUInt8, 0.02f, 90, {2, 17, 5}, true});
  }
}

/*! \brief A pool of images (1, 16, 6, 6) over windows of 3 at every other position. */
struct PoolCase {
  std::string op;
  DLDataType dtype;
  int zero;
  bool includes_padding;
  bool is_requantized;
  DLDataType dst;
};

std::vector<Step> CheckPool(const PoolCase& c) {
  QuantizedGraph graph;
  const Array src = Bytes({1, 16, 6, 6}, c.dtype);
  const Array real = Dequantized(src, Scalar(0.1f), ZeroPoint(c.zero));
  Node* node = graph.Add(c.op, {graph.Input(src)}, {1, 16, 3, 3}, c.dst);
  node->attrs["root_op"] = c.op;
  node->attrs["pool_size"] = std::vector<std::string>{"3", "3"};
  node->attrs["strides"] = std::vector<std::string>{"2", "2"};
  node->attrs["padding"] = std::vector<std::string>{"1", "1", "0", "0"};
  node->attrs["count_include_pad"] = c.includes_padding ? "1" : "0";
  const bool is_max = c.op == "nn.max_pool2d";
  Array pooled{{1, 16, 3, 3}, kFloat, {}};
  for (int channel = 0; channel < 16; ++channel) {
    for (int i = 0; i < 9; ++i) {
      double sum = 0, largest = -1e9;
      int count = 0;
      for (int k = 0; k < 9; ++k) {
        const int y = i / 3 * 2 - 1 + k / 3, x = i % 3 * 2 - 1 + k % 3;
        if (y < 0 || x < 0 || y > 5 || x > 5) continue;
        const double value = real.values[(channel * 6 + y) * 6 + x];
        sum += value;
        largest = std::max(largest, value);
        ++count;
      }
      pooled.values.push_back(is_max ? largest : sum / (c.includes_padding ? 9 : count));
    }
  }
  const Array scale = Scalar(c.is_requantized ? 0.07f : 0.1f);
  const Array zero = ZeroPoint(c.is_requantized ? 20 : c.zero);
  graph.Dequantize(node, 0, Scalar(0.1f), ZeroPoint(c.zero));
  const Array expected = Result(&graph, node, pooled, scale, zero, c.dst);
  ExpectNear(graph.Run(), expected, c.dst.code == kDLFloat ? 1e-6 : 1, 0.07, c.op);
  return graph.plan->steps;
}

int CountPools(const std::vector<Step>& steps, const std::string& variant) {
  return static_cast<int>(std::count_if(steps.begin(), steps.end(), [&](const Step& step) {
    return step.info.kind == "pooling" && step.info.variant.rfind(variant, 0) == 0 &&
           (step.info.variant.empty() == variant.empty());
  }));
}

TEST(DNNLInt8Pool, StaysInEightBits) {
  for (const char* op : {"nn.max_pool2d", "nn.avg_pool2d"}) {
    for (DLDataType type : {kUInt8, kInt8}) {
      for (int zero : {0, 100}) {
        for (bool is_requantized : {false, true}) {
          const auto steps = CheckPool({op, type, zero, false, is_requantized, type});
          EXPECT_EQ(CountPools(steps, ""), 1);
        }
      }
    }
  }
}

TEST(DNNLInt8Pool, OthersAreInFloat32) {
  EXPECT_EQ(CountPools(CheckPool({"nn.avg_pool2d", kUInt8, 100, true, true, kUInt8}),
                       "in float32: the padding is not the zero point"),
            1);
  EXPECT_EQ(CountPools(CheckPool({"nn.avg_pool2d", kUInt8, 0, true, true, kUInt8}), ""), 1);
  for (const char* op : {"nn.max_pool2d", "nn.avg_pool2d"}) {
    EXPECT_EQ(CountPools(CheckPool({op, kUInt8, 9, false, true, kFloat}), "in float32"), 1);
  }
  EXPECT_EQ(CountPools(CheckPool({"nn.avg_pool2d", kUInt8, 9, false, true, kInt8}), "in float32"),
            1);
}

TEST(DNNLRequantize, IsOneReorder) {
  for (DLDataType from : {kUInt8, kInt8, kInt32}) {
    for (DLDataType to : {kUInt8, kInt8}) {
      for (bool per_channel : {false, true}) {
        QuantizedGraph graph;
        const Array src =
            from.bits == 32 ? Noise({2, 3, 4, 4}, from, -3000, 3000) : Bytes({2, 3, 4, 4}, from);
        const double unit = from.bits == 32 ? 0.01 : 1;
        const Array scale = per_channel ? Vector({unit, 0.5 * unit, 2 * unit}) : Scalar(unit);
        Node* node =
            graph.Add("qnn.dequantize",
                      {graph.Input(src), graph.Constant(scale), graph.Constant(ZeroPoint(13))},
                      src.shape, to);
        node->attrs["axis"] = 1;
        graph.Quantize(node, Scalar(0.7f), ZeroPoint(-3), to);
        const Array real = Dequantized(src, scale, ZeroPoint(13), 1);
        ExpectNear(graph.Run(), Quantized(real, Scalar(0.7f), ZeroPoint(-3), to), 1, 0.02,
                   "requantize");
        EXPECT_EQ(graph.plan->steps.size(), 1u);
        EXPECT_TRUE(!IsReference(graph.plan->steps[0].info));
      }
    }
  }
}

}  // namespace dnnl_test::int8_elementwise
