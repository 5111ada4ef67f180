/*
 * Licensed to the Apache Software Foundation (ASF) under one
 * or more contributor license agreements.  See the NOTICE file
 * distributed with this work for additional information
 * regarding copyright ownership.  The ASF licenses this file
 * to you under the Apache License, Version 2.0 (the
 * "License"); you may not use this file except in compliance
 * with the License.  You may obtain a copy of the License at
 *
 *   http://www.apache.org/licenses/LICENSE-2.0
 *
 * Unless required by applicable law or agreed to in writing,
 * software distributed under the License is distributed on an
 * "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
 * KIND, either express or implied.  See the License for the
 * specific language governing permissions and limitations
 * under the License.
 */

/*!
 * \file tests/cpp-runtime/dnnl/core/int8_elementwise_test.cc
 * \brief Binary ops, pools and conversions of quantized tensors, and ops that move 8-bit elements.
 */
#include <functional>
#include <string>
#include <vector>

#include "quantized_graph.h"

namespace dnnl_test::int8_elementwise {

double Compute(const std::string& op, double x, double y) {
  return op == "add"        ? x + y
         : op == "subtract" ? x - y
         : op == "multiply" ? x * y
         : op == "maximum"  ? std::max(x, y)
                            : x / y;
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

TEST(DNNLInt8Binary, ProductsAndOthers) {
  for (const char* op : {"multiply", "maximum", "divide"}) {
    for (DLDataType type : {kUInt8, kInt8}) {
      for (int zero : {0, 200}) {
        if (std::string(op) == "divide" && (zero == 0 || type.code == kDLInt)) continue;
        const auto steps = Check({op, type, type, kUInt8, zero, zero});
        if (zero == 0) EXPECT_EQ(steps.size(), 1u);
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

TEST(DNNLInt8Binary, Broadcasts) {
  for (const char* op : {"add", "subtract", "multiply"}) {
    for (const Shape& small : {Shape{1, 16, 1, 1}, {1, 1, 1, 1}, {2, 16, 1, 1}, {1, 1, 1, 5}}) {
      for (bool is_first : {false, true}) {
        Case c{op, kUInt8, kInt8, kUInt8, 0, 0};
        (is_first ? c.lhs_shape : c.rhs_shape) = small;
        Check(c);
        c.rhs_zero = -5;
        Check(c);
      }
    }
  }
}

TEST(DNNLInt8Binary, ResultInFloat32) {
  for (const char* op : {"add", "multiply"}) {
    Check({op, kUInt8, kInt8, kFloat, 3, -4});
    Check({op, kFloat, kInt8, kFloat, 0, -4});
  }
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

/*! \brief Run an op on 8-bit elements as they are. */
Array Move(const std::string& op, const std::vector<Array>& inputs, const Shape& shape,
           const std::map<std::string, tvm::runtime::json::JSONAttr>& attrs) {
  QuantizedGraph graph;
  std::vector<Entry> entries;
  for (const Array& input : inputs) entries.push_back(graph.Input(input));
  graph.Add(op, entries, shape, inputs[0].dtype)->attrs = attrs;
  const Array result = graph.Run();
  for (const Step& step : graph.plan->steps) {
    if (!EXPECT_TRUE(!IsReference(step.info))) std::cerr << op << std::endl;
  }
  return result;
}

TEST(DNNLBytes, AreMovedAndCompared) {
  using Texts = std::vector<std::string>;
  for (DLDataType type : {kUInt8, kInt8}) {
    const Shape shape = {1, 16, 4, 4};
    const Array a = Bytes(shape, type, 1), b = Bytes(shape, type, 2);
    Array both = a;
    both.values.insert(both.values.end(), b.values.begin(), b.values.end());
    ExpectNear(Move("concatenate", {a, b}, {1, 32, 4, 4}, {{"axis", 1}}), both, 0, 0, "concat");
    Array half = a;
    half.values.resize(128);
    ExpectNear(Move("strided_slice", {a}, {1, 8, 4, 4},
                    {{"begin", Texts{"0", "0"}},
                     {"end", Texts{"1", "8"}},
                     {"strides", Texts{"1", "1"}},
                     {"axes", Texts{"0", "1"}}}),
               half, 0, 0, "strided_slice");
    ExpectNear(Move("reshape", {a}, {16, 16}, {{"newshape", Texts{"16", "-1"}}}), a, 0, 0,
               "reshape");
    Array turned = a;
    for (int i = 0; i < 256; ++i) turned.values[i % 16 * 16 + i / 16] = a.values[i];
    ExpectNear(Move("transpose", {a}, {1, 4, 4, 16}, {{"axes", Texts{"0", "2", "3", "1"}}}), turned,
               0, 0, "transpose");
    Array largest = a;
    largest.values.assign(64, -1000);
    for (int i = 0; i < 256; ++i) {
      double& value = largest.values[i / 16 * 4 + i % 16 / 8 * 2 + i % 4 / 2];
      value = std::max(value, a.values[i]);
    }
    ExpectNear(Move("nn.max_pool2d", {a}, {1, 16, 2, 2},
                    {{"pool_size", Texts{"2", "2"}}, {"strides", Texts{"2", "2"}}}),
               largest, 0, 0, "max_pool2d");
    for (const char* op : {"maximum", "minimum"}) {
      Array expected = a;
      for (int i = 0; i < 256; ++i) {
        expected.values[i] = std::string(op) == "maximum" ? std::max(a.values[i], b.values[i])
                                                          : std::min(a.values[i], b.values[i]);
      }
      ExpectNear(Move(op, {a, b}, shape, {}), expected, 0, 0, op);
    }
  }
}

}  // namespace dnnl_test::int8_elementwise
