// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/dnnl/core/recurrent_layer.h
 * \brief Draws recurrent layers, and computes them in float64.
 */
#ifndef TESTS_CPP_RUNTIME_DNNL_CORE_RECURRENT_LAYER_H_
#define TESTS_CPP_RUNTIME_DNNL_CORE_RECURRENT_LAYER_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "src/runtime/contrib/dnnl/core/lowering.h"
#include "tests/cpp-runtime/dnnl/core/valid_ops.h"
#include "tests/cpp-runtime/harness/bfloat16.h"
#include "tests/cpp-runtime/harness/test.h"

namespace dnnl_test {

using namespace tvm::runtime::contrib::dnnl_backend;  // NOLINT(build/namespaces)

/*! \brief The zero point of int8 weights. */
constexpr int kZeroPoint = 3;

using Values = std::vector<float>;

struct Layer {
  std::string name;
  /*! \brief linear_before_reset of a GRU, a relu of a plain layer. */
  bool is_variant;
  std::string direction;
  bool is_batch_first, has_initial_state;
  int64_t steps, batch, inputs, hidden;
  /*! \brief How many steps each sequence has; all if empty. */
  std::vector<int32_t> lengths{};
  /*! \brief Bytes of a weight: of float32, bfloat16 or int8. */
  int weight_bytes = 4;

  int64_t directions() const { return direction == "bidirectional" ? 2 : 1; }
  int64_t gates() const { return name == "dnnl.lstm" ? 4 : name == "dnnl.gru" ? 3 : 1; }
  int64_t bias_gates() const { return gates() + (name == "dnnl.gru" && is_variant ? 1 : 0); }
  size_t states() const { return name == "dnnl.lstm" ? 2 : 1; }
  std::string Text() const {
    return name + (is_variant ? " variant " : " ") + direction +
           (is_batch_first ? " batch first" : "") + (has_initial_state ? " initial" : "") +
           " T=" + std::to_string(steps) + " N=" + std::to_string(batch) +
           " I=" + std::to_string(inputs) + " H=" + std::to_string(hidden) +
           (lengths.empty() ? "" : " lengths") + " weights of " + std::to_string(weight_bytes) +
           " bytes";
  }
};

/*! \brief The quantized value of a weight. */
inline float Steps(float value, float scale) { return std::round(value / scale * 64); }

/*! \brief A weight that its type has. */
inline float Rounded(const Layer& l, float value, float scale) {
  if (l.weight_bytes == 1) return Steps(value, scale) * scale / 64;
  if (l.weight_bytes == 4) return value;
  // bfloat16 has 8 bits of a significand.
  int exponent;
  const float significand = std::frexp(value, &exponent);
  return std::ldexp(std::round(significand * 256), exponent - 8);
}

/*! \brief The values of the operands. */
inline std::vector<Values> Draw(const Layer& l, unsigned seed = 1) {
  std::mt19937 random(seed);
  const int64_t d = l.directions(), h = l.hidden;
  std::vector<int64_t> sizes = {l.steps * l.batch * l.inputs, d * l.gates() * h * l.inputs,
                                d * l.gates() * h * h, d * l.bias_gates() * h};
  if (l.has_initial_state) sizes.insert(sizes.end(), l.states(), d * l.batch * h);
  std::vector<Values> operands;
  for (size_t i = 0; i < sizes.size(); ++i) {
    // Sums of about one, so that gates are neither open nor closed.
    const double scale = i == 1   ? std::sqrt(1. / static_cast<double>(l.inputs))
                         : i == 2 ? std::sqrt(1. / static_cast<double>(h))
                                  : 1;
    std::uniform_real_distribution<double> draw(-1.5 * scale, 1.5 * scale);
    Values values;
    for (int64_t k = 0; k < sizes[i]; ++k) {
      const auto value = static_cast<float>(draw(random));
      const bool is_weight = i == 1 || i == 2;
      values.push_back(is_weight ? Rounded(l, value, static_cast<float>(scale)) : value);
    }
    operands.push_back(values);
  }
  return operands;
}

inline double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

/*! \brief One step of one sequence: the new h and c. */
inline void Advance(const Layer& l, const float* x, const float* weight, const float* recurrent,
                    const float* bias, std::vector<double>* h, std::vector<double>* c) {
  const int64_t size = l.hidden;
  const auto dot = [](const float* row, int64_t count, const auto* vector) {
    double sum = 0;
    for (int64_t k = 0; k < count; ++k) sum += static_cast<double>(row[k]) * vector[k];
    return sum;
  };
  const auto data = [&](int64_t row) {
    return dot(weight + row * l.inputs, l.inputs, x) + bias[row];
  };
  const auto state = [&](int64_t row, const std::vector<double>& of) {
    return dot(recurrent + row * size, size, of.data());
  };
  const std::vector<double> before = *h;
  std::vector<double> reset(size);
  for (int64_t j = 0; l.name == "dnnl.gru" && j < size; ++j) {
    reset[j] = Sigmoid(data(size + j) + state(size + j, before)) * before[j];
  }
  for (int64_t j = 0; j < size; ++j) {
    const auto both = [&](int64_t gate) {
      return data(gate * size + j) + state(gate * size + j, before);
    };
    if (l.name == "dnnl.lstm") {
      (*c)[j] = Sigmoid(both(1)) * (*c)[j] + Sigmoid(both(0)) * std::tanh(both(2));
      (*h)[j] = Sigmoid(both(3)) * std::tanh((*c)[j]);
    } else if (l.name == "dnnl.gru") {
      const double u = Sigmoid(both(0)), r = Sigmoid(both(1));
      const int64_t row = 2 * size + j;
      const double of_state =
          l.is_variant ? r * (state(row, before) + bias[3 * size + j]) : state(row, reset);
      (*h)[j] = u * before[j] + (1 - u) * std::tanh(data(row) + of_state);
    } else {
      const double sum = both(0);
      (*h)[j] = l.is_variant ? (sum < 0 ? 0 : sum) : std::tanh(sum);
    }
  }
}

/*! \brief The results in float64. */
inline std::vector<std::vector<double>> Reference(const Layer& l,
                                                  const std::vector<Values>& operands) {
  const int64_t d = l.directions(), n = l.batch, size = l.hidden;
  std::vector<std::vector<double>> results = {std::vector<double>(l.steps * n * d * size)};
  results.resize(1 + l.states(), std::vector<double>(d * n * size));
  for (int64_t k = 0; k < d * n; ++k) {
    const int64_t direction = k / n, row = k % n;
    std::vector<double> h(size, 0), c(size, 0);
    if (l.has_initial_state) {
      const auto copy = [&](const Values& from, std::vector<double>* to) {
        std::copy_n(from.begin() + k * size, size, to->begin());
      };
      copy(operands[4], &h);
      if (l.states() == 2) copy(operands[5], &c);
    }
    for (int64_t i = 0; i < l.steps; ++i) {
      const bool is_reverse = l.direction == "reverse" || direction == 1;
      const int64_t t = is_reverse ? l.steps - 1 - i : i;
      const int64_t at = l.is_batch_first ? row * l.steps + t : t * n + row;
      if (!l.lengths.empty() && t >= l.lengths[row]) continue;
      Advance(l, &operands[0][at * l.inputs], &operands[1][direction * l.gates() * size * l.inputs],
              &operands[2][direction * l.gates() * size * size],
              &operands[3][direction * l.bias_gates() * size], &h, &c);
      std::copy(h.begin(), h.end(), results[0].begin() + (at * d + direction) * size);
    }
    std::copy(h.begin(), h.end(), results[1].begin() + k * size);
    if (l.states() == 2) std::copy(c.begin(), c.end(), results[2].begin() + k * size);
  }
  return results;
}

/*! \brief The layer with constant weights; open steps and sequences if `is_open`. */
inline Graph LayerGraph(const Layer& l, std::vector<Values>* operands, bool is_open = false) {
  const int64_t d = l.directions(), h = l.hidden;
  const int64_t t = is_open ? kOpen : l.steps, n = is_open ? kOpen : l.batch;
  const auto sequence = [&](int64_t columns) {
    return Float32(l.is_batch_first ? std::vector<int64_t>{n, t, columns}
                                    : std::vector<int64_t>{t, n, columns});
  };
  const TensorType state = Float32({d, n, h});
  ValidOp op{l.name,
             {sequence(l.inputs), Float32({d, l.gates() * h, l.inputs}),
              Float32({d, l.gates() * h, h}), Float32({d, l.bias_gates() * h})},
             {{"direction", {l.direction}},
              {"batch_first", {l.is_batch_first ? "1" : "0"}},
              {"has_initial_state", {l.has_initial_state ? "1" : "0"}}},
             {sequence(d * h)}};
  if (l.has_initial_state) op.inputs.insert(op.inputs.end(), l.states(), state);
  op.outputs.insert(op.outputs.end(), l.states(), state);
  if (!l.lengths.empty()) {
    op.inputs.push_back({{n}, {kDLInt, 32, 1}});
    op.attrs["has_lengths"] = {"1"};
  }
  if (l.name == "dnnl.gru") op.attrs["linear_before_reset"] = {l.is_variant ? "1" : "0"};
  if (l.name == "dnnl.rnn") op.attrs["activation"] = {l.is_variant ? "relu" : "tanh"};
  const int64_t columns = l.gates() * h;
  for (int i : {1, 2}) {
    if (l.weight_bytes == 2) op.inputs[i].dtype = {kDLBfloat, 16, 1};
    if (l.weight_bytes != 1) continue;
    op.inputs[i].dtype = {kDLInt, 8, 1};
    op.inputs.push_back(Float32({d, columns}));
    op.inputs.push_back({{d, columns}, {kDLInt, 32, 1}});
  }
  Graph graph = GraphOf(op);
  const auto hold = [&graph](size_t at, const auto& values) {
    const auto own = std::make_shared<std::decay_t<decltype(values)>>(values);
    graph.constants.push_back({graph.inputs[at], {own->data(), [own](void*) {}}});
    graph.inputs.erase(graph.inputs.begin() + at);
  };
  if (l.weight_bytes == 1) {
    for (int i = 0; i < 2; ++i) {
      const float scale = std::sqrt(1.f / static_cast<float>(i == 0 ? l.inputs : h)) / 64;
      const size_t at = graph.inputs.size() - 4 + 2 * i;
      hold(at, Values(d * columns, scale));
      hold(at, std::vector<int32_t>(d * columns, kZeroPoint));
    }
  }
  for (int i = 1; i <= 3; ++i) {
    const Values& values = (*operands)[i];
    if (i == 3 || l.weight_bytes == 4) {
      hold(1, values);
    } else if (l.weight_bytes == 2) {
      std::vector<uint16_t> halves;
      for (float value : values) halves.push_back(UpperHalf(value));
      hold(1, halves);
    } else {
      const float scale = std::sqrt(1.f / static_cast<float>(i == 1 ? l.inputs : h));
      std::vector<int8_t> bytes;
      for (float value : values) {
        bytes.push_back(static_cast<int8_t>(Steps(value, scale) + kZeroPoint));
      }
      hold(1, bytes);
    }
  }
  return graph;
}

/*! \brief What a plan computes of operands. */
inline std::vector<Values> RunPlan(const Layer& l, const std::shared_ptr<const Plan>& plan,
                                   std::vector<Values>* operands) {
  const int64_t d = l.directions();
  std::vector<Values> results = {Values(l.steps * l.batch * d * l.hidden, 7.f)};
  results.resize(1 + l.states(), Values(d * l.batch * l.hidden, 7.f));
  std::vector<void*> addresses = {(*operands)[0].data()};
  for (size_t i = 4; i < operands->size(); ++i) addresses.push_back((*operands)[i].data());
  std::vector<int32_t> lengths = l.lengths;
  if (!lengths.empty()) addresses.push_back(lengths.data());
  for (Values& result : results) addresses.push_back(result.data());
  Context(plan).Run(addresses, nullptr);
  return results;
}

inline std::vector<std::vector<int64_t>> ShapesOf(const Layer& l) {
  const int64_t rows = l.is_batch_first ? l.batch : l.steps;
  std::vector<std::vector<int64_t>> shapes = {{rows, l.steps * l.batch / rows, l.inputs}};
  if (l.has_initial_state) {
    shapes.insert(shapes.end(), l.states(), {l.directions(), l.batch, l.hidden});
  }
  if (!l.lengths.empty()) shapes.push_back({l.batch});
  return shapes;
}

/*! \brief The largest difference to the reference. */
inline double ErrorOf(const Layer& l, const std::vector<Values>& results,
                      const std::vector<Values>& operands) {
  const auto expected = Reference(l, operands);
  double error = 0;
  for (size_t i = 0; i < results.size(); ++i) {
    for (size_t k = 0; k < results[i].size(); ++k) {
      const double difference = std::abs(results[i][k] - expected[i][k]);
      // A NaN is no small difference.
      error = difference <= error ? error : difference;
    }
  }
  return error;
}

/*! \brief float32 has 6e-8; sums of up to 300 and steps, which forget, make it some times that. */
constexpr double kTolerance = 5e-6;

inline void Check(const Layer& l, double tolerance = kTolerance) {
  std::vector<Values> operands = Draw(l);
  const auto plan = MakePlan(LayerGraph(l, &operands));
  const double error = ErrorOf(l, RunPlan(l, plan, &operands), operands);
  if (!EXPECT_TRUE(error < tolerance)) std::cerr << l.Text() << ": " << error << std::endl;
}

inline const std::vector<std::pair<std::string, bool>> kCells = {{"dnnl.lstm", false},
                                                                 {"dnnl.gru", false},
                                                                 {"dnnl.gru", true},
                                                                 {"dnnl.rnn", false},
                                                                 {"dnnl.rnn", true}};

/*! \brief What depends on a NaN is one, and nothing else. */
inline void CheckNaN(const Layer& l) {
  for (size_t operand : {0, 4, 5}) {
    std::vector<Values> operands = Draw(l);
    if (operand >= operands.size()) continue;
    // The data of the second step of the last sequence, or the last value of its state.
    const size_t at = operand == 0 ? 2 * l.batch * l.inputs : l.batch * l.hidden;
    operands[operand][at - 1] = std::numeric_limits<float>::quiet_NaN();
    const auto results = RunPlan(l, MakePlan(LayerGraph(l, &operands)), &operands);
    const auto expected = Reference(l, operands);
    bool is_right = true;
    for (size_t i = 0; i < results.size(); ++i) {
      for (size_t k = 0; k < results[i].size(); ++k) {
        is_right = is_right && std::isnan(results[i][k]) == std::isnan(expected[i][k]);
      }
    }
    if (!EXPECT_TRUE(is_right)) std::cerr << l.Text() << " operand " << operand << std::endl;
  }
}

}  // namespace dnnl_test

#endif  // TESTS_CPP_RUNTIME_DNNL_CORE_RECURRENT_LAYER_H_
