// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/dnnl/core/recurrent_test.cc
 * \brief LSTM, GRU and plain recurrent layers against a reference in float64.
 */
#include <string>
#include <thread>
#include <vector>

#include "src/runtime/contrib/dnnl/core/exec/threads.h"
#include "src/runtime/contrib/dnnl/core/infer.h"
#include "tests/cpp-runtime/dnnl/core/recurrent_layer.h"

namespace dnnl_test::recurrent {

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
  for (const auto& [name, is_variant] : kCells) {
    for (int64_t batch : {1, 4}) {
      CheckNaN({name, is_variant, "forward", false, true, 4, batch, 5, 17});
    }
  }
}

/*! \brief One large sequence on two threads, which divide each step. */
TEST(DNNLRecurrent, LargeLayersOnSeveralThreads) {
  SetNumThreads(2);
  for (const auto& [name, is_variant] : kCells) {
    for (const char* direction : {"reverse", "bidirectional"}) {
      const Layer l{name, is_variant, direction, true, true, 3, 1, 64, 384};
      Check(l);
      CheckNaN(l);
    }
  }
  SetNumThreads(0);
}

/*! \brief Many sequences on one thread, of which most cells run on oneDNN's primitive. */
TEST(DNNLRecurrent, ManySequences) {
  SetNumThreads(1);
  for (const auto& [name, is_variant] : kCells) {
    for (const char* direction : {"forward", "bidirectional"}) {
      const Layer l{name, is_variant, direction, true, true, 3, 32, 32, 256};
      Check(l);
      CheckNaN(l);
    }
    Layer shorter{name, is_variant, "reverse", false, true, 3, 32, 32, 256};
    for (int i = 0; i < 32; ++i) shorter.lengths.push_back(i % 4);
    Check(shorter);
  }
  SetNumThreads(0);
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
                "expected: float32");
  op = lstm;
  op.inputs[3].dtype = {kDLFloat, 16, 1};
  EXPECT_THROWS(infer(op), "input 3, the bias, is float16 [2, 20], expected: float32");
  op = rnn;
  op.attrs["post_ops"] = {"nn.relu"};
  op.attrs["root_op"] = {"dnnl.rnn"};
  EXPECT_THROWS(infer(op), "node 9 dnnl.rnn", "post-ops are not supported");
}

}  // namespace dnnl_test::recurrent
