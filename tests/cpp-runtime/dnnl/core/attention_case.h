// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/dnnl/core/attention_case.h
 * \brief Attention of some sizes, and a reference in float64.
 */
#ifndef TESTS_CPP_RUNTIME_DNNL_CORE_ATTENTION_CASE_H_
#define TESTS_CPP_RUNTIME_DNNL_CORE_ATTENTION_CASE_H_

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iostream>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tests/cpp-runtime/dnnl/core/valid_ops.h"
#include "tests/cpp-runtime/harness/test.h"

namespace dnnl_test {

using tvm::runtime::contrib::dnnl_backend::BytesOf;
using tvm::runtime::contrib::dnnl_backend::Context;
using tvm::runtime::contrib::dnnl_backend::MakePlan;
using tvm::runtime::contrib::dnnl_backend::NumElements;

using Shape = std::vector<int64_t>;
using Values = std::vector<float>;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Case {
  int64_t batch, heads, groups, queries, keys, width, value_width;
  /*! \brief Empty for no mask. */
  Shape mask{};
  bool causal = false;
  const char* softmax = "nn.softmax";
  bool is_bfloat16 = false;
  /*! \brief Of a second mask; empty for none. */
  Shape other_mask{};
  const char* fpmath = "float32";

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

inline ValidOp OpOf(const Case& c) {
  const DLDataType dtype = {static_cast<uint8_t>(c.is_bfloat16 ? kDLBfloat : kDLFloat),
                            static_cast<uint8_t>(c.is_bfloat16 ? 16 : 32), 1};
  ValidOp op{"dnnl.attention", {}, {}, {}};
  for (const Shape& shape : c.shapes()) op.inputs.push_back({shape, dtype});
  op.attrs = {{"scale", {"0.3"}}, {"causal", {c.causal ? "1" : "0"}}, {"softmax", {c.softmax}}};
  op.attrs["fpmath"] = {c.fpmath};
  op.outputs = {{{c.batch, c.heads, c.queries, c.value_width}, dtype}};
  return op;
}

/*! \brief Normally distributed numbers that bfloat16 holds, too. */
inline std::vector<Values> InputsOf(const Case& c) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<Values> inputs;
  for (const Shape& shape : c.shapes()) {
    inputs.emplace_back(NumElements(shape));
    for (float& value : inputs.back()) value = std::round(normal(random) * 64) / 64;
  }
  return inputs;
}

/*!
 * \brief Where an element of a tensor is that is broadcast to indices of the same rank or a higher
 *        one. Sanitizers make this slow: loops over the last dimension go on from the pointer.
 */
inline const float* At(const Values& values, const Shape& shape, const Shape& index) {
  int64_t at = 0;
  for (size_t i = 0; i < shape.size(); ++i) {
    const int64_t own = index[index.size() - shape.size() + i];
    at = at * shape[i] + (shape[i] == 1 ? 0 : own);
  }
  return &values[at];
}

inline std::vector<double> Softmax(const std::vector<double>& scores, const std::string& name) {
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

inline Values Expected(const Case& c, const std::vector<Values>& inputs) {
  Values result;
  for (int64_t n = 0; n < c.batch; ++n) {
    for (int64_t h = 0; h < c.heads; ++h) {
      const int64_t group = h / (c.heads / c.groups);
      for (int64_t i = 0; i < c.queries; ++i) {
        std::vector<double> scores;
        const float* query = At(inputs[0], c.query_shape(), {n, h, i, 0});
        for (int64_t j = 0; j < c.keys; ++j) {
          double sum = 0;
          const float* key = At(inputs[1], c.key_shape(), {n, group, j, 0});
          for (int64_t e = 0; e < c.width; ++e) sum += static_cast<double>(query[e]) * key[e];
          sum *= kScale;
          for (size_t m = 3; m < inputs.size(); ++m) {
            sum += *At(inputs[m], m == 3 ? c.mask : c.other_mask, {n, h, i, j});
          }
          scores.push_back(c.causal && j > i + c.keys - c.queries ? -kInf : sum);
        }
        const std::vector<double> weights = Softmax(scores, c.softmax);
        std::vector<double> sums(c.value_width, 0);
        for (int64_t j = 0; j < c.keys; ++j) {
          const float* value = At(inputs[2], c.value_shape(), {n, group, j, 0});
          for (int64_t e = 0; e < c.value_width; ++e) sums[e] += weights[j] * value[e];
        }
        result.insert(result.end(), sums.begin(), sums.end());
      }
    }
  }
  return result;
}

inline std::vector<char> BytesOfType(const Values& values, const TensorType& type) {
  const size_t size = type.dtype.bits / 8;
  std::vector<char> bytes(values.size() * size);
  for (size_t i = 0; i < values.size(); ++i) {
    // The upper half of a float is that number in bfloat16.
    std::memcpy(&bytes[i * size], reinterpret_cast<const char*>(&values[i]) + 4 - size, size);
  }
  return bytes;
}

inline Values ValuesOfBytes(const std::vector<char>& bytes, const TensorType& type) {
  const size_t size = type.dtype.bits / 8;
  Values values(bytes.size() / size);
  for (size_t i = 0; i < values.size(); ++i) {
    std::memcpy(reinterpret_cast<char*>(&values[i]) + 4 - size, &bytes[i * size], size);
  }
  return values;
}

inline Values RunGraph(const Graph& graph, const std::vector<Shape>& shapes,
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

inline void ExpectClose(const Case& c, const Values& actual, const Values& expected) {
  // The result is rounded; float32 sums of some hundred products, and exponentials.
  const bool is_rounded = c.is_bfloat16 || c.fpmath == std::string("bfloat16");
  const float tolerance = is_rounded ? 1.f / 128 : 2e-5f;
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

inline void Check(const Case& c, const std::vector<Values>& inputs) {
  ExpectClose(c, RunGraph(GraphOf(OpOf(c)), c.shapes(), inputs), Expected(c, inputs));
}
inline void Check(const Case& c) { Check(c, InputsOf(c)); }

}  // namespace dnnl_test

#endif  // TESTS_CPP_RUNTIME_DNNL_CORE_ATTENTION_CASE_H_
