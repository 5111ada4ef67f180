// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/dnnl/core/quantize_test.cc
 * \brief qnn.quantize and qnn.dequantize as kernels of their own, and ops that run in float32
 * between them.
 */
#include <string>
#include <vector>

#include "quantized_graph.h"

namespace dnnl_test::quantize {

/*! \brief Scales and zero points of a test: for all elements, or along an axis. */
struct Parameters {
  Array scale;
  Array zero_point;
  int axis;
};

const Shape kImage = {2, 3, 5, 7};

std::vector<Parameters> ParametersFor(DLDataType dtype) {
  const bool is_unsigned = dtype.code == kDLUInt;
  const int high = is_unsigned ? 255 : 127, low = is_unsigned ? 0 : -128;
  return {
      {Scalar(0.25f), ZeroPoint(0), -1},
      {Scalar(0.031f), ZeroPoint(high), -1},
      {Scalar(1.7f), ZeroPoint(low), 5},
      {Vector({0.5}), Vector({3}, kInt32), 1},
      {Vector({0.5, 0.01, 2}), ZeroPoint(0), 1},
      {Vector({0.5, 0.01, 2}), ZeroPoint(7), 1},
      {Vector({0.5, 0.01, 2}), Vector({1, 100, 5}, kInt32), -3},
      {Scalar(0.1f), Vector({1, 100, 5, 0, 9, 11, 60}, kInt32), -1},
      {Vector({0.5, 0.01}), Vector({3, 4}, kInt32), 0},
  };
}

std::string TextOf(DLDataType dtype, size_t index, bool is_computed) {
  return ToText(dtype) + ", parameters " + std::to_string(index) +
         (is_computed ? ", computed" : "");
}

Array RunQuantize(QuantizedGraph* graph, const Array& data, const Parameters& p, DLDataType dtype,
                  bool is_constant = false) {
  const auto value = [&](const Array& array) {
    return graph->computes_scales ? graph->Input(array) : graph->Constant(array);
  };
  const Entry src = is_constant ? graph->Constant(data) : graph->Input(data);
  const bool is_quantizing = data.dtype.code == kDLFloat;
  const DLDataType out_dtype = is_quantizing ? dtype : kFloat;
  Node* node = graph->Add(is_quantizing ? "qnn.quantize" : "qnn.dequantize",
                          {src, value(p.scale), value(p.zero_point)}, data.shape, out_dtype);
  node->attrs["axis"] = static_cast<int64_t>(p.axis);
  node->attrs["out_dtype"] = ToText(out_dtype);
  return graph->Run();
}

TEST(DNNLQuantize, RoundsHalfToEvenAndSaturates) {
  QuantizedGraph graph;
  const Array data = Vector({-1e30, -300, -2.5, -1.5, -0.5, 0, 0.5, 1.5, 2.5, 3.49, 300, 1e30});
  const Array expected = Vector({-128, -128, -2, -2, 0, 0, 0, 2, 2, 3, 127, 127}, kInt8);
  ExpectNear(RunQuantize(&graph, data, {Scalar(1), ZeroPoint(0), -1}, kInt8), expected, 0, 0,
             "int8");
}

TEST(DNNLQuantize, EachTypeScaleAndZeroPoint) {
  for (DLDataType dtype : {kUInt8, kInt8, kInt32}) {
    const auto all = ParametersFor(dtype);
    for (size_t i = 0; i < all.size(); ++i) {
      for (bool is_computed : {false, true}) {
        const Array data = Noise(kImage, kFloat, -40, 40);
        QuantizedGraph graph;
        graph.computes_scales = is_computed;
        const Array actual = RunQuantize(&graph, data, all[i], dtype);
        const Array expected = Quantized(data, all[i].scale, all[i].zero_point, dtype, all[i].axis);
        ExpectNear(actual, expected, 1, 0.005, "quantize " + TextOf(dtype, i, is_computed));
        for (const Step& step : graph.plan->steps) EXPECT_TRUE(!IsReference(step.info));
      }
    }
  }
}

TEST(DNNLQuantize, ValuesThatNoInt32Holds) {
  QuantizedGraph graph;
  const Array data = Vector({-1e30, -3e9, 3e9, 1e30});
  const Array actual = RunQuantize(&graph, data, {Scalar(1), ZeroPoint(0), -1}, kInt32);
  // The largest float32 below the bound is what oneDNN saturates to.
  const Array expected = Vector({-2147483648., -2147483648., 2147483520., 2147483520.}, kInt32);
  ExpectNear(actual, expected, 127, 1, "int32");
}

TEST(DNNLDequantize, EachTypeScaleAndZeroPoint) {
  for (DLDataType dtype : {kUInt8, kInt8, kInt32}) {
    const auto all = ParametersFor(dtype);
    for (size_t i = 0; i < all.size(); ++i) {
      for (bool is_constant : {false, true}) {
        const double low = dtype.code == kDLUInt ? 0 : dtype.bits == 8 ? -128 : -1e6;
        const double high = dtype.code == kDLUInt ? 255 : dtype.bits == 8 ? 127 : 1e6;
        const Array data = Noise(kImage, dtype, low, high);
        QuantizedGraph graph;
        const Array actual = RunQuantize(&graph, data, all[i], dtype, is_constant);
        const Array expected = Dequantized(data, all[i].scale, all[i].zero_point, all[i].axis);
        ExpectNear(actual, expected, 1e-6, 1, "dequantize " + TextOf(dtype, i, is_constant));
        // A constant is computed once: what is left is to copy it to the caller.
        const bool is_copy =
            graph.plan->steps.size() == 1 && graph.plan->steps[0].info.op == "reorder";
        EXPECT_EQ(is_copy, is_constant);
      }
    }
  }
}

/*! \brief Channels-first from channels-last or the other way, as an image of four dimensions. */
Array Permuted(const Array& data, const std::vector<int>& axes) {
  Shape shape;
  for (int axis : axes) shape.push_back(data.shape[axis]);
  Array result{shape, data.dtype, {}};
  Shape strides(4, 1);
  for (int i = 2; i >= 0; --i) strides[i] = strides[i + 1] * data.shape[i + 1];
  for (int64_t a = 0; a < shape[0]; ++a)
    for (int64_t b = 0; b < shape[1]; ++b)
      for (int64_t c = 0; c < shape[2]; ++c)
        for (int64_t d = 0; d < shape[3]; ++d) {
          result.values.push_back(data.values[a * strides[axes[0]] + b * strides[axes[1]] +
                                              c * strides[axes[2]] + d * strides[axes[3]]]);
        }
  return result;
}

// Reorders that transpose the last two axes left the zero point out where one has 8 n elements.
TEST(DNNLQuantize, ZeroPointsWhereTheLayoutChanges) {
  const std::vector<int> axes = {0, 3, 1, 2};
  for (const Shape& shape : {Shape{1, 7, 7, 64}, Shape{1, 1, 8, 8}, Shape{2, 5, 7, 16}}) {
    for (bool is_quantizing : {true, false}) {
      const Array data =
          is_quantizing ? Noise(shape, kFloat, -40, 40) : Noise(shape, kUInt8, 0, 255);
      const Array scale = Scalar(0.5f), zero_point = ZeroPoint(20);
      QuantizedGraph graph;
      const Entry src = graph.Input(data);
      Node* transpose = graph.Add("transpose", {src}, Permuted(data, axes).shape, data.dtype);
      transpose->attrs["axes"] = tvm::runtime::json::JSONAttr::Row{"0", "3", "1", "2"};
      const DLDataType out_dtype = is_quantizing ? kUInt8 : kFloat;
      Node* node =
          graph.Add(is_quantizing ? "qnn.quantize" : "qnn.dequantize",
                    {{transpose->id, 0}, graph.Constant(scale), graph.Constant(zero_point)},
                    Permuted(data, axes).shape, out_dtype);
      node->attrs["out_dtype"] = ToText(out_dtype);
      const Array moved = Permuted(data, axes);
      const Array expected = is_quantizing ? Quantized(moved, scale, zero_point, kUInt8, -1)
                                           : Dequantized(moved, scale, zero_point, -1);
      ExpectNear(graph.Run(), expected, is_quantizing ? 1 : 1e-6, is_quantizing ? 0.005 : 1,
                 "zero point, size " + std::to_string(SizeOf(shape)));
    }
  }
}

TEST(DNNLQuantize, WrongScalesNameTheNode) {
  const Array data = Noise(kImage, kFloat, -1, 1);
  const auto run = [&](const Parameters& p) {
    QuantizedGraph graph;
    return RunQuantize(&graph, data, p, kInt8);
  };
  EXPECT_THROWS(run({Vector({1, 2}), ZeroPoint(0), 1}), "main, node 3 qnn.quantize",
                "the scale has 2 elements, but one or 3 are expected");
  EXPECT_THROWS(run({Vector({1, 2, 3}), Vector({1, 2}, kInt32), 1}), "main, node 3 qnn.quantize",
                "the zero point has 2 elements");
  EXPECT_THROWS(run({Vector({1, 2, 3}), ZeroPoint(0), 4}), "axis 4 is outside of rank 4");
  EXPECT_THROWS(run({Scalar(1), Scalar(0), -1}), "the zero point must be int32");
  EXPECT_THROWS(run({ZeroPoint(1), ZeroPoint(0), -1}), "the scale must be float32");
}

/*! \brief A relu of a dequantized input, quantized again. */
Node* ReluOf(QuantizedGraph* graph, const Array& data) {
  Node* node = graph->Add("nn.relu", {graph->Input(data)}, data.shape, kUInt8);
  node->attrs["root_op"] = "nn.relu";
  graph->Dequantize(node, 0, Scalar(0.1f), ZeroPoint(3));
  graph->Quantize(node, Scalar(0.2f), ZeroPoint(5), kUInt8);
  return node;
}

TEST(DNNLUnfused, DequantizesComputesAndQuantizes) {
  const Array data = Noise(kImage, kInt8, -128, 127);
  QuantizedGraph graph;
  ReluOf(&graph, data);
  const Array actual = graph.Run();
  Array real = Dequantized(data, Scalar(0.1f), ZeroPoint(3));
  for (double& value : real.values) value = std::max(value, 0.);
  ExpectNear(actual, Quantized(real, Scalar(0.2f), ZeroPoint(5), kUInt8), 1, 0.01, "relu");
}

TEST(DNNLUnfused, WrongAttributesNameNodeAndAttribute) {
  const Array data = Noise(kImage, kInt8, -128, 127);
  const auto run = [&](const std::string& key, tvm::runtime::json::JSONAttr value) {
    QuantizedGraph graph;
    ReluOf(&graph, data)->attrs[key] = value;
    return graph.Run();
  };
  EXPECT_THROWS(run("dequantize.0.scale", 9), "main, node 1 qnn.dequantize of nn.relu",
                "attribute dequantize.0.scale names input 9, but there are 5");
  EXPECT_THROWS(run("dequantize.0.scale", 2), "main, node 1 qnn.dequantize",
                "the scale must be float32");
  EXPECT_THROWS(run("post_ops.0.zero_point", -1), "main, node 1 qnn.quantize",
                "attribute post_ops.0.zero_point names input -1");
  EXPECT_THROWS(run("post_ops.0.scale", "wide"), "main, node 1 qnn.quantize",
                "attribute 'post_ops.0.scale' is \"wide\", expected: integer");
}

TEST(DNNLDequantize, APartOfItIsCopied) {
  // A reorder computes it, and another one copies the part: no layout of the first makes that.
  QuantizedGraph graph;
  const Array src = Noise({2, 3, 4, 4}, kInt8, -128, 127), scale = Vector({1, 0.5, 2});
  const Entry data = graph.Input(src);
  Node* node =
      graph.Add("qnn.dequantize", {data, graph.Constant(scale), graph.Constant(ZeroPoint(3))},
                src.shape, kFloat);
  node->attrs["axis"] = 1;
  Node* part = graph.Add("strided_slice", {{node->id, 0}}, {2, 3, 4, 2}, kFloat);
  for (const auto& [key, value] :
       {std::pair("begin", "2"), {"end", "4"}, {"strides", "1"}, {"axes", "3"}}) {
    part->attrs[key] = std::vector<std::string>{value};
  }
  const Array real = Dequantized(src, scale, ZeroPoint(3), 1);
  Array expected{{2, 3, 4, 2}, kFloat, {}};
  for (size_t i = 0; i < real.values.size(); ++i) {
    if (i % 4 >= 2) expected.values.push_back(real.values[i]);
  }
  ExpectNear(graph.Run(), expected, 1e-6, 0, "a part");
}

}  // namespace dnnl_test::quantize
