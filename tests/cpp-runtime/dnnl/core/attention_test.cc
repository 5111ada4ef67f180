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
 * \file tests/cpp-runtime/dnnl/core/attention_test.cc
 * \brief Attention against a reference in float64.
 */
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "src/runtime/contrib/dnnl/core/error.h"
#include "src/runtime/contrib/dnnl/core/exec/threads.h"
#include "tests/cpp-runtime/dnnl/core/valid_ops.h"
#include "tests/cpp-runtime/harness/test.h"

namespace {

using namespace dnnl_test;  // NOLINT(build/namespaces)

using Values = std::vector<float>;

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Case {
  int64_t batch, heads, groups, queries, keys, width, value_width;
  /*! \brief Empty for no mask. */
  Shape mask{};
  bool causal = false;
  const char* softmax = "nn.softmax";
  bool is_bfloat16 = false;
  /*! \brief Of a second mask; empty for none. */
  Shape other_mask{};

  Shape query_shape() const { return {batch, heads, queries, width}; }
  Shape key_shape() const { return {batch, groups, keys, width}; }
  Shape value_shape() const { return {batch, groups, keys, value_width}; }
  std::vector<Shape> shapes() const {
    std::vector<Shape> all = {query_shape(), key_shape(), value_shape()};
    for (const Shape& shape : {mask, other_mask}) {
      if (!shape.empty()) all.push_back(shape);
    }
    return all;
  }
};

constexpr double kScale = 0.3;

ValidOp OpOf(const Case& c) {
  const DLDataType dtype = {static_cast<uint8_t>(c.is_bfloat16 ? kDLBfloat : kDLFloat),
                            static_cast<uint8_t>(c.is_bfloat16 ? 16 : 32), 1};
  ValidOp op{"dnnl.attention", {}, {}, {}};
  for (const Shape& shape : c.shapes()) op.inputs.push_back({shape, dtype});
  op.attrs = {{"scale", {"0.3"}}, {"causal", {c.causal ? "1" : "0"}}, {"softmax", {c.softmax}}};
  op.outputs = {{{c.batch, c.heads, c.queries, c.value_width}, dtype}};
  return op;
}

/*! \brief Normally distributed numbers that bfloat16 holds, too. */
std::vector<Values> InputsOf(const Case& c) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<Values> inputs;
  for (const Shape& shape : c.shapes()) {
    inputs.emplace_back(NumElements(shape));
    for (float& value : inputs.back()) value = std::round(normal(random) * 64) / 64;
  }
  return inputs;
}

/*! \brief The element of a tensor that is broadcast to indices of the same rank or a higher one. */
double At(const Values& values, const Shape& shape, const Shape& index) {
  int64_t at = 0;
  for (size_t i = 0; i < shape.size(); ++i) {
    const int64_t own = index[index.size() - shape.size() + i];
    at = at * shape[i] + (shape[i] == 1 ? 0 : own);
  }
  return values[at];
}

std::vector<double> Softmax(const std::vector<double>& scores, const std::string& name) {
  double maximum = -kInf, total = 0;
  for (double score : scores) maximum = std::max(maximum, score);
  std::vector<double> result;
  for (double score : scores) result.push_back(std::exp(score - maximum));
  for (double value : result) total += value;
  bool is_masked = true;
  for (double score : scores) is_masked &= score == -kInf;
  for (double& value : result) {
    value /= total;
    if (name == "dnnl.masked_softmax" && is_masked) value = 0;
    if (name == "dnnl.nan_safe_softmax" && std::isnan(total)) value = 0;
  }
  return result;
}

Values Expected(const Case& c, const std::vector<Values>& inputs) {
  Values result;
  for (int64_t n = 0; n < c.batch; ++n) {
    for (int64_t h = 0; h < c.heads; ++h) {
      const int64_t group = h / (c.heads / c.groups);
      for (int64_t i = 0; i < c.queries; ++i) {
        std::vector<double> scores;
        for (int64_t j = 0; j < c.keys; ++j) {
          double sum = 0;
          for (int64_t e = 0; e < c.width; ++e) {
            sum += At(inputs[0], c.query_shape(), {n, h, i, e}) *
                   At(inputs[1], c.key_shape(), {n, group, j, e});
          }
          sum *= kScale;
          for (size_t m = 3; m < inputs.size(); ++m) {
            sum += At(inputs[m], m == 3 ? c.mask : c.other_mask, {n, h, i, j});
          }
          scores.push_back(c.causal && j > i + c.keys - c.queries ? -kInf : sum);
        }
        const std::vector<double> weights = Softmax(scores, c.softmax);
        for (int64_t e = 0; e < c.value_width; ++e) {
          double sum = 0;
          for (int64_t j = 0; j < c.keys; ++j) {
            sum += weights[j] * At(inputs[2], c.value_shape(), {n, group, j, e});
          }
          result.push_back(static_cast<float>(sum));
        }
      }
    }
  }
  return result;
}

std::vector<char> BytesOfType(const Values& values, const TensorType& type) {
  const size_t size = type.dtype.bits / 8;
  std::vector<char> bytes(values.size() * size);
  for (size_t i = 0; i < values.size(); ++i) {
    // The upper half of a float is that number in bfloat16.
    std::memcpy(&bytes[i * size], reinterpret_cast<const char*>(&values[i]) + 4 - size, size);
  }
  return bytes;
}

Values ValuesOfBytes(const std::vector<char>& bytes, const TensorType& type) {
  const size_t size = type.dtype.bits / 8;
  Values values(bytes.size() / size);
  for (size_t i = 0; i < values.size(); ++i) {
    std::memcpy(reinterpret_cast<char*>(&values[i]) + 4 - size, &bytes[i * size], size);
  }
  return values;
}

Values RunGraph(const Graph& graph, const std::vector<Shape>& shapes,
                const std::vector<Values>& inputs, size_t* num_steps = nullptr) {
  const auto plan = MakePlan(graph, shapes);
  if (num_steps != nullptr) *num_steps = plan->steps.size();
  std::vector<std::vector<char>> memory;
  for (size_t i = 0; i < plan->arguments.size(); ++i) {
    const TensorType& type = plan->arguments[i].type;
    memory.push_back(i < inputs.size() ? BytesOfType(inputs[i], type)
                                       : std::vector<char>(BytesOf(type), 0x55));
  }
  std::vector<void*> addresses;
  for (auto& bytes : memory) addresses.push_back(bytes.data());
  Context(plan).Run(addresses, nullptr);
  return ValuesOfBytes(memory.back(), plan->arguments.back().type);
}

void ExpectClose(const Case& c, const Values& actual, const Values& expected) {
  // The result is rounded; float32 sums of some hundred products, and exponentials.
  const float tolerance = c.is_bfloat16 ? 1.f / 128 : 2e-5f;
  if (!EXPECT_EQ(actual.size(), expected.size())) return;
  for (size_t i = 0; i < actual.size(); ++i) {
    const bool is_same =
        std::isnan(expected[i])
            ? std::isnan(actual[i])
            : actual[i] == expected[i] || std::abs(actual[i] - expected[i]) <=
                                              tolerance * std::max(1.f, std::abs(expected[i]));
    if (is_same) continue;
    std::cerr << "heads " << c.heads << "/" << c.groups << ", queries " << c.queries << ", keys "
              << c.keys << ", width " << c.width << "/" << c.value_width << " " << c.softmax
              << ", element " << i << ": " << actual[i] << ", expected " << expected[i]
              << std::endl;
    EXPECT_TRUE(false);
    return;
  }
}

void Check(const Case& c, const std::vector<Values>& inputs) {
  ExpectClose(c, RunGraph(GraphOf(OpOf(c)), c.shapes(), inputs), Expected(c, inputs));
}
void Check(const Case& c) { Check(c, InputsOf(c)); }

TEST(DNNLAttention, Sizes) {
  for (int64_t queries : {1, 2, 5, 17, 70}) {
    for (int64_t keys : {1, 15, 16, 64, 65, 200}) Check({1, 2, 2, queries, keys, 16, 16});
  }
  for (int64_t width : {1, 3, 8, 20, 63, 64, 80, 128}) {
    Check({2, 2, 2, 1, 70, width, 16});
    Check({2, 2, 2, 9, 70, 16, width});
    Check({1, 1, 1, 67, 130, width, width});
  }
}

TEST(DNNLAttention, GroupsOfHeads) {
  for (int64_t groups : {1, 2, 4, 8}) {
    for (int64_t queries : {1, 3, 40}) Check({2, 8, groups, queries, 77, 32, 24});
  }
}

TEST(DNNLAttention, Masks) {
  const std::vector<Shape> masks = {{2, 4, 3, 70}, {2, 1, 1, 70}, {1, 4, 3, 1}, {1, 1, 3, 70},
                                    {3, 70},       {70},          {1},          {4, 1, 70}};
  for (const Shape& mask : masks) {
    Check({2, 4, 2, 3, 70, 16, 16, mask});
    Check({2, 4, 2, 3, 70, 16, 16, mask, true});
    Check({2, 4, 2, 3, 70, 16, 16, mask, true, "nn.softmax", false, {4, 3, 70}});
  }
}

TEST(DNNLAttention, Causal) {
  for (int64_t queries : {1, 7, 64, 130}) {
    Check({1, 4, 2, queries, queries, 16, 16, {}, true});
    Check({1, 4, 2, queries, queries + 65, 16, 16, {}, true});
  }
  // The first rows see no keys.
  for (const char* softmax : {"nn.softmax", "dnnl.masked_softmax", "dnnl.nan_safe_softmax"}) {
    Check({1, 2, 2, 9, 4, 16, 16, {}, true, softmax});
  }
}

TEST(DNNLAttention, RowsWithoutAFiniteScore) {
  for (const char* softmax : {"nn.softmax", "dnnl.masked_softmax", "dnnl.nan_safe_softmax"}) {
    for (int64_t queries : {3, 20}) {
      const Case c{1, 2, 1, queries, 150, 16, 16, {1, 1, queries, 150}, false, softmax};
      std::vector<Values> inputs = InputsOf(c);
      Values& mask = inputs[3];
      std::fill(mask.begin(), mask.begin() + 150, -kInf);
      // A block of -inf alone first, then a finite score.
      std::fill(mask.begin() + 150, mask.begin() + 299, -kInf);
      mask[2 * 150 + 70] = kNaN;
      Check(c, inputs);
      mask[2 * 150 + 70] = kInf;
      Check(c, inputs);
      inputs[2][5] = kNaN;
      Check(c, inputs);
    }
  }
}

/*! \brief A mask that hides later keys with a number, and the first `padding` keys. */
Values CausalMask(int64_t rows, int64_t keys, float hidden, int64_t padding = 0) {
  Values mask(rows * keys);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < keys; ++j) {
      if (j < padding || j > i + keys - rows) mask[i * keys + j] = hidden;
    }
  }
  return mask;
}

TEST(DNNLAttention, BlocksOfHiddenKeys) {
  for (float hidden : {std::numeric_limits<float>::lowest(), -kInf, -2e30f, -1e4f}) {
    for (int64_t past : {0, 70}) {
      const int64_t rows = 150, keys = rows + past;
      const Case c{1, 4, 2, rows, keys, 24, 16, {1, 1, rows, keys}};
      std::vector<Values> inputs = InputsOf(c);
      inputs[3] = CausalMask(rows, keys, hidden);
      Check(c, inputs);
      // The first rows of these see no key; scores of -1e4 have few digits in float32.
      if (hidden == -1e4f) continue;
      inputs[3] = CausalMask(rows, keys, hidden, past + 80);
      Check(c, inputs);
    }
  }
}

TEST(DNNLAttention, HiddenKeysThatAreNotFinite) {
  const int64_t rows = 140;
  const Case c{1, 2, 1, rows, rows, 16, 20, {1, 1, rows, rows}};
  for (float value : {kNaN, kInf, 1e30f}) {
    for (size_t input : {0, 1, 2}) {
      std::vector<Values> inputs = InputsOf(c);
      inputs[3] = CausalMask(rows, rows, std::numeric_limits<float>::lowest());
      // Of the last row, which the first rows do not see.
      inputs[input][inputs[input].size() - 3] = value;
      Check(c, inputs);
    }
  }
}

TEST(DNNLAttention, BFloat16) {
  for (int64_t queries : {1, 20}) {
    Case c{1, 4, 2, queries, 90, 20, 36, {1, 1, queries, 90}};
    c.is_bfloat16 = true;
    Check(c);
    // The mask may be float32.
    ValidOp op = OpOf(c);
    op.inputs[3] = Float32(c.mask);
    const std::vector<Values> inputs = InputsOf(c);
    ExpectClose(c, RunGraph(GraphOf(op), c.shapes(), inputs), Expected(c, inputs));
  }
}

TEST(DNNLAttention, WithoutABatch) {
  const Case c{1, 4, 2, 5, 30, 16, 16, {4, 1, 30}};
  ValidOp op = OpOf(c);
  for (Types* types : {&op.inputs, &op.outputs}) {
    for (TensorType& type : *types) {
      if (type.shape.size() == 4) type.shape.erase(type.shape.begin());
    }
  }
  const std::vector<Values> inputs = InputsOf(c);
  const Graph graph = GraphOf(op);
  std::vector<Shape> shapes;
  for (const TensorType& type : op.inputs) shapes.push_back(type.shape);
  ExpectClose(c, RunGraph(graph, shapes, inputs), Expected(c, inputs));
}

TEST(DNNLAttention, SplitsLongKeysAmongThreads) {
  const Case c{1, 3, 1, 1, 2000, 16, 16, {1, 1, 1, 2000}};
  std::vector<Values> inputs = InputsOf(c);
  for (int threads : {1, 2, 4}) {
    SetNumThreads(threads);
    Check(c, inputs);
  }
  // All keys of a part are masked.
  std::fill(inputs[3].begin(), inputs[3].begin() + 1100, -kInf);
  Check(c, inputs);
  SetNumThreads(0);
}

TEST(DNNLAttention, OpenLengths) {
  const auto open = [](const Case& c) {
    ValidOp op = OpOf(c);
    for (size_t i : {0, 1, 2}) op.inputs[i].shape[2] = kOpen;
    op.inputs[3].shape[2] = op.inputs[3].shape[3] = op.outputs[0].shape[2] = kOpen;
    return GraphOf(op);
  };
  const Graph graph = open({1, 4, 2, 1, 1, 16, 16, {1, 1, 1, 1}});
  for (int64_t past : {0, 5, 300}) {
    const Case c{1, 4, 2, 3, past + 3, 16, 16, {1, 1, 3, past + 3}};
    const std::vector<Values> inputs = InputsOf(c);
    ExpectClose(c, RunGraph(graph, c.shapes(), inputs), Expected(c, inputs));
  }
}

/*! \brief Insert a transpose between an input and the op, or between the op and the output. */
void Transpose(Graph* graph, bool is_output, size_t input) {
  Node& op = graph->nodes.back();
  const uint32_t id = 20 + static_cast<uint32_t>(input);
  const auto swapped = [](TensorType type) {
    std::swap(type.shape[1], type.shape[2]);
    return type;
  };
  Node transpose{id, "transpose", {}, {}, {}};
  transpose.attrs["axes"] = Attr{"0", "2", "1", "3"};
  if (is_output) {
    TensorType& type = graph->outputs[0].argument.type;
    type = swapped(type);
    transpose.inputs = {{op.id, 0}};
    transpose.outputs = {type};
    graph->outputs[0].entry = {id, 0};
    graph->nodes.push_back(transpose);
  } else {
    TensorType& type = graph->inputs[input].argument.type;
    transpose.inputs = {graph->inputs[input].entry};
    transpose.outputs = {type};
    type = swapped(type);
    op.inputs[input] = {id, 0};
    graph->nodes.insert(graph->nodes.end() - 1, transpose);
  }
}

TEST(DNNLAttention, ReadsAndWritesViewsOfHeads) {
  // One query is the same in memory with its heads first or last.
  const Case c{1, 4, 2, 6, 6, 16, 16};
  Graph graph = GraphOf(OpOf(c));
  for (size_t i : {0, 1, 2}) Transpose(&graph, false, i);
  Transpose(&graph, true, 3);
  const auto heads_last = [&c](const Values& values, int64_t heads) {
    Values result;
    for (int64_t s = 0; s < c.keys; ++s) {
      for (int64_t h = 0; h < heads; ++h) {
        const auto begin = values.begin() + (h * c.keys + s) * c.width;
        result.insert(result.end(), begin, begin + c.width);
      }
    }
    return result;
  };
  const std::vector<Values> inputs = InputsOf(c);
  const std::vector<Values> swapped = {heads_last(inputs[0], 4), heads_last(inputs[1], 2),
                                       heads_last(inputs[2], 2)};
  std::vector<Shape> shapes;
  for (const Edge& input : graph.inputs) shapes.push_back(input.argument.type.shape);
  size_t num_steps = 0;
  const Values actual = RunGraph(graph, shapes, swapped, &num_steps);
  ExpectClose(c, actual, heads_last(Expected(c, inputs), 4));
  EXPECT_EQ(num_steps, 1u);
}

TEST(DNNLAttention, Refusals) {
  const Case c{1, 4, 2, 3, 7, 16, 8, {1, 1, 3, 7}};
  const auto expect = [&c](auto change, const char* message) {
    ValidOp op = OpOf(c);
    change(&op);
    EXPECT_THROWS(MakePlan(GraphOf(op)), message);
  };
  expect([](ValidOp* op) { op->inputs[1].shape[1] = op->inputs[2].shape[1] = 3; }, "no multiple");
  expect([](ValidOp* op) { op->inputs[1].shape[3] = 8; }, "does not fit");
  expect([](ValidOp* op) { op->inputs[2].shape[2] = 8; }, "does not fit");
  expect([](ValidOp* op) { op->inputs[3].shape[3] = 8; }, "broadcast");
  expect([](ValidOp* op) { op->inputs[3].dtype = {kDLInt, 32, 1}; }, "the mask is");
  expect([](ValidOp* op) { op->inputs[1].dtype = {kDLBfloat, 16, 1}; }, "the query is");
  expect([](ValidOp* op) { op->attrs["scale"] = {"inf"}; }, "scale");
  expect([](ValidOp* op) { op->attrs["softmax"] = {"relu"}; }, "softmax is relu");
  expect([](ValidOp* op) { op->attrs.erase("scale"); }, "scale is missing");
}

}  // namespace
