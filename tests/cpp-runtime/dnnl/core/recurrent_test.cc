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
 * \file tests/cpp-runtime/dnnl/core/recurrent_test.cc
 * \brief LSTM, GRU and plain recurrent layers against a reference in float64.
 */
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "src/runtime/contrib/dnnl/core/infer.h"
#include "src/runtime/contrib/dnnl/core/lowering.h"
#include "tests/cpp-runtime/dnnl/core/valid_ops.h"
#include "tests/cpp-runtime/harness/test.h"

namespace {

using namespace tvm::runtime::contrib::dnnl_backend;  // NOLINT(build/namespaces)
using dnnl_test::Attr;
using dnnl_test::Float32;
using dnnl_test::GraphOf;
using dnnl_test::Valid;
using dnnl_test::ValidOp;

using Values = std::vector<float>;

struct Layer {
  std::string name;
  /*! \brief linear_before_reset of a GRU, a relu of a plain layer. */
  bool is_variant;
  std::string direction;
  bool is_batch_first, has_initial_state;
  int64_t steps, batch, inputs, hidden;

  int64_t directions() const { return direction == "bidirectional" ? 2 : 1; }
  int64_t gates() const { return name == "dnnl.lstm" ? 4 : name == "dnnl.gru" ? 3 : 1; }
  int64_t bias_gates() const { return gates() + (name == "dnnl.gru" && is_variant ? 1 : 0); }
  size_t states() const { return name == "dnnl.lstm" ? 2 : 1; }
  std::string Text() const {
    return name + (is_variant ? " variant " : " ") + direction +
           (is_batch_first ? " batch first" : "") + (has_initial_state ? " initial" : "") +
           " T=" + std::to_string(steps) + " N=" + std::to_string(batch) +
           " I=" + std::to_string(inputs) + " H=" + std::to_string(hidden);
  }
};

/*! \brief The values of the operands. */
std::vector<Values> Draw(const Layer& l, unsigned seed = 1) {
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
    for (int64_t k = 0; k < sizes[i]; ++k) values.push_back(static_cast<float>(draw(random)));
    operands.push_back(values);
  }
  return operands;
}

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

/*! \brief One step of one sequence: the new h and c. */
void Advance(const Layer& l, const float* x, const float* weight, const float* recurrent,
             const float* bias, std::vector<double>* h, std::vector<double>* c) {
  const int64_t size = l.hidden;
  const auto dot = [](const float* row, int64_t count, const auto& vector) {
    double sum = 0;
    for (int64_t k = 0; k < count; ++k) sum += static_cast<double>(row[k]) * vector[k];
    return sum;
  };
  const auto data = [&](int64_t row) {
    return dot(weight + row * l.inputs, l.inputs, x) + bias[row];
  };
  const auto state = [&](int64_t row, const std::vector<double>& of) {
    return dot(recurrent + row * size, size, of);
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
std::vector<std::vector<double>> Reference(const Layer& l, const std::vector<Values>& operands) {
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
Graph LayerGraph(const Layer& l, std::vector<Values>* operands, bool is_open = false) {
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
  if (l.name == "dnnl.gru") op.attrs["linear_before_reset"] = {l.is_variant ? "1" : "0"};
  if (l.name == "dnnl.rnn") op.attrs["activation"] = {l.is_variant ? "relu" : "tanh"};
  Graph graph = GraphOf(op);
  for (int i = 1; i <= 3; ++i) {
    graph.constants.push_back({graph.inputs[1], {(*operands)[i].data(), [](void*) {}}});
    graph.inputs.erase(graph.inputs.begin() + 1);
  }
  return graph;
}

/*! \brief What a plan computes of operands. */
std::vector<Values> RunPlan(const Layer& l, const std::shared_ptr<const Plan>& plan,
                            std::vector<Values>* operands) {
  const int64_t d = l.directions();
  std::vector<Values> results = {Values(l.steps * l.batch * d * l.hidden, 7.f)};
  results.resize(1 + l.states(), Values(d * l.batch * l.hidden, 7.f));
  std::vector<void*> addresses = {(*operands)[0].data()};
  for (size_t i = 4; i < operands->size(); ++i) addresses.push_back((*operands)[i].data());
  for (Values& result : results) addresses.push_back(result.data());
  Context(plan).Run(addresses, nullptr);
  return results;
}

std::vector<std::vector<int64_t>> ShapesOf(const Layer& l) {
  const int64_t rows = l.is_batch_first ? l.batch : l.steps;
  std::vector<std::vector<int64_t>> shapes = {{rows, l.steps * l.batch / rows, l.inputs}};
  if (l.has_initial_state) {
    shapes.insert(shapes.end(), l.states(), {l.directions(), l.batch, l.hidden});
  }
  return shapes;
}

/*! \brief The largest difference to the reference. */
double ErrorOf(const Layer& l, const std::vector<Values>& results,
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

void Check(const Layer& l) {
  std::vector<Values> operands = Draw(l);
  const auto plan = MakePlan(LayerGraph(l, &operands));
  const double error = ErrorOf(l, RunPlan(l, plan, &operands), operands);
  if (!EXPECT_TRUE(error < kTolerance)) std::cerr << l.Text() << ": " << error << std::endl;
}

const std::vector<std::pair<std::string, bool>> kCells = {{"dnnl.lstm", false},
                                                          {"dnnl.gru", false},
                                                          {"dnnl.gru", true},
                                                          {"dnnl.rnn", false},
                                                          {"dnnl.rnn", true}};

TEST(DNNLRecurrent, AgreesWithTheReference) {
  struct Sizes {
    int64_t steps, batch, inputs, hidden;
  };
  for (const auto& [name, is_variant] : kCells) {
    for (const char* direction : {"forward", "reverse", "bidirectional"}) {
      for (int bits = 0; bits < 4; ++bits) {
        for (const Sizes& s : {Sizes{1, 1, 3, 5}, Sizes{4, 1, 16, 16}, Sizes{29, 1, 13, 20},
                               Sizes{5, 2, 7, 33}, Sizes{3, 11, 18, 17}}) {
          Check({name, is_variant, direction, (bits & 1) != 0, (bits & 2) != 0, s.steps, s.batch,
                 s.inputs, s.hidden});
        }
      }
    }
    for (int64_t batch : {3, 4, 5, 6, 7, 64}) {
      Check({name, is_variant, "bidirectional", true, true, 3, batch, 9, 24});
    }
    // More steps than are multiplied at once, and larger matrices.
    Check({name, is_variant, "bidirectional", false, true, 61, 1, 40, 64});
    Check({name, is_variant, "forward", true, false, 5, 9, 130, 260});
  }
}

TEST(DNNLRecurrent, OpenShapes) {
  for (const auto& [name, is_variant] : kCells) {
    Layer l{name, is_variant, "bidirectional", true, true, 5, 2, 7, 18};
    std::vector<Values> operands = Draw(l);
    const Graph graph = LayerGraph(l, &operands, true);
    for (const auto& [steps, batch] : {std::pair<int64_t, int64_t>{5, 2}, {9, 1}, {1, 3}}) {
      l.steps = steps;
      l.batch = batch;
      std::vector<Values> drawn = Draw(l, 2);
      for (int i = 1; i <= 3; ++i) drawn[i] = operands[i];
      const auto plan = MakePlan(graph, ShapesOf(l));
      EXPECT_TRUE(ErrorOf(l, RunPlan(l, plan, &drawn), drawn) < kTolerance);
    }
  }
}

TEST(DNNLRecurrent, PlansShareTheirWeights) {
  const Layer l{"dnnl.lstm", false, "forward", false, false, 5, 1, 40, 64};
  std::vector<Values> operands = Draw(l);
  const Graph graph = LayerGraph(l, &operands, true);
  const auto first = MakePlan(graph, {{5, 1, 40}}), second = MakePlan(graph, {{8, 2, 40}});
  // Biases are too small to be looked for.
  EXPECT_TRUE(second->constant_bytes_shared >= 4 * 4 * 64 * (40 + 64));
}

TEST(DNNLRecurrent, ConcurrentRuns) {
  const Layer l{"dnnl.gru", false, "bidirectional", false, true, 11, 3, 12, 24};
  std::vector<Values> operands = Draw(l);
  const auto plan = MakePlan(LayerGraph(l, &operands));
  const std::vector<Values> expected = RunPlan(l, plan, &operands);
  std::vector<int> right(4, 0);
  std::vector<std::thread> threads;
  for (int& count : right) {
    threads.emplace_back([&l, &plan, &operands, &expected, &count]() {
      std::vector<Values> own = operands;
      for (int i = 0; i < 50; ++i) count += RunPlan(l, plan, &own) == expected;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, std::vector<int>(4, 50));
}

TEST(DNNLRecurrent, StateThatBecomesNaNStaysNaN) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  for (const auto& [name, is_variant] : kCells) {
    for (int64_t batch : {1, 4}) {
      const Layer l{name, is_variant, "forward", false, true, 4, batch, 5, 17};
      for (size_t operand : {0, 4, 5}) {
        std::vector<Values> operands = Draw(l);
        if (operand >= operands.size()) continue;
        // The data of the second step of the last sequence, or the last value of its state.
        const int64_t step = operand == 0 ? 1 : 0;
        operands[operand][operand == 0 ? (batch + batch) * 5 - 1 : batch * 17 - 1] = kNaN;
        const auto plan = MakePlan(LayerGraph(l, &operands));
        const std::vector<Values> results = RunPlan(l, plan, &operands);
        const auto expected = Reference(l, operands);
        EXPECT_TRUE(step == 0 || !std::isnan(results[0][0]));
        for (size_t i = 0; i < results.size(); ++i) {
          for (size_t k = 0; k < results[i].size(); ++k) {
            if (EXPECT_EQ(std::isnan(results[i][k]), std::isnan(expected[i][k]))) continue;
            std::cerr << l.Text() << " operand " << operand << " result " << i << std::endl;
            return;
          }
        }
      }
    }
  }
}

TEST(DNNLRecurrent, LargeGates) {
  // Sigmoids of 0 and 1, and tanhs of -1 and 1, without overflow.
  for (const auto& [name, is_variant] : kCells) {
    if (name == "dnnl.rnn" && is_variant) continue;
    const Layer l{name, is_variant, "forward", false, true, 3, 2, 5, 17};
    std::vector<Values> operands = Draw(l);
    for (float& value : operands[1]) value *= 1e4f;
    const auto plan = MakePlan(LayerGraph(l, &operands));
    EXPECT_TRUE(ErrorOf(l, RunPlan(l, plan, &operands), operands) < 1e-3);
  }
}

TEST(DNNLRecurrent, Refusals) {
  const auto infer = [](const ValidOp& op) { Infer(GraphOf(op), InputShapes(GraphOf(op))); };
  const auto with = [](ValidOp op, const std::string& key, const std::string& value) {
    op.attrs[key] = {value};
    return op;
  };
  const ValidOp lstm = Valid("dnnl.lstm"), gru = Valid("dnnl.gru"), rnn = Valid("dnnl.rnn");
  EXPECT_THROWS(infer(with(lstm, "direction", "backward")),
                "main, node 9 dnnl.lstm: direction is "
                "backward, expected one of: forward, reverse, bidirectional");
  EXPECT_THROWS(infer(with(rnn, "activation", "sigmoid")),
                "node 9 dnnl.rnn: activation is sigmoid");
  EXPECT_THROWS(infer(with(lstm, "direction", "forward")), "node 9 dnnl.lstm: input 1, the weight",
                "is float32 [2, 20, 4], expected: shape [1, 20, 4]");
  EXPECT_THROWS(infer(with(gru, "linear_before_reset", "0")), "node 9 dnnl.gru: input 3, the bias",
                "[2, 15]");
  EXPECT_THROWS(infer(with(lstm, "has_initial_state", "0")), "node 9 dnnl.lstm: has 6 inputs",
                "which makes it 4");
  EXPECT_THROWS(infer(with(rnn, "batch_first", "1")), "node 9 dnnl.rnn: input 4, the initial h");
  ValidOp op = lstm;
  op.inputs.pop_back();
  EXPECT_THROWS(infer(op), "node 9 dnnl.lstm: has 5 inputs", "which makes it 6");
  op = lstm;
  op.inputs[2].dtype = {kDLBfloat, 16, 1};
  EXPECT_THROWS(infer(op), "node 9 dnnl.lstm: input 2, the recurrent weight, is bfloat16",
                "the type of the data, float32 [3, 2, 4]");
  op = lstm;
  op.inputs[3].dtype = {kDLFloat, 16, 1};
  EXPECT_THROWS(infer(op), "input 3, the bias, is float16 [2, 20], expected: float32");
  op = rnn;
  op.attrs["post_ops"] = {"nn.relu"};
  op.attrs["root_op"] = {"dnnl.rnn"};
  EXPECT_THROWS(infer(op), "node 9 dnnl.rnn", "post-ops are not supported");
}

}  // namespace
