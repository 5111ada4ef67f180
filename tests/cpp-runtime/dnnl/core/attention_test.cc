// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/dnnl/core/attention_test.cc
 * \brief Attention against a reference in float64.
 */
#include <algorithm>
#include <string>
#include <vector>

#include "src/runtime/contrib/dnnl/core/error.h"
#include "src/runtime/contrib/dnnl/core/exec/threads.h"
#include "tests/cpp-runtime/dnnl/core/attention_case.h"

namespace dnnl_test::attention {

using namespace tvm::runtime::contrib::dnnl_backend;  // NOLINT(build/namespaces)

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

TEST(DNNLAttention, Causal) {
  for (int64_t queries : {1, 7, 64, 130}) {
    Check({1, 4, 2, queries, queries, 16, 16, {}, true});
    Check({1, 4, 2, queries, queries + 65, 16, 16, {}, true});
  }
  // More blocks of rows and keys, of which the first rows see none.
  Check({1, 2, 2, 300, 300, 40, 72, {}, true});
  // The first rows see no keys.
  for (const char* softmax : {"nn.softmax", "dnnl.masked_softmax", "dnnl.nan_safe_softmax"}) {
    Check({1, 2, 2, 9, 4, 16, 16, {}, true, softmax});
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

TEST(DNNLAttention, ProductsInBFloat16) {
  // Whole pairs and vectors, odd numbers of keys, and widths that have no whole ones.
  for (bool is_bfloat16 : {false, true}) {
    const auto check = [is_bfloat16](Case c) {
      c.is_bfloat16 = is_bfloat16;
      c.fpmath = "bfloat16";
      Check(c);
    };
    for (int64_t keys : {1, 16, 33, 64, 65, 191}) {
      for (int64_t queries : {5, 6, 70}) check({2, 4, 2, queries, keys, 32, 16});
    }
    for (int64_t width : {2, 6, 31, 64, 80}) check({1, 2, 1, 20, 90, width, 64});
    for (int64_t width : {8, 48, 128}) check({1, 2, 1, 20, 90, 64, width});
    check({1, 4, 2, 130, 195, 64, 64, {}, true});
    // Several blocks of rows and of keys.
    check({1, 1, 1, 530, 530, 48, 48, {}, true});
    check({1, 2, 2, 300, 300, 48, 80, {1, 2, 300, 300}});
    check({1, 2, 2, 9, 4, 16, 16, {}, true, "dnnl.nan_safe_softmax"});
    check({2, 4, 2, 40, 90, 64, 64, {2, 1, 40, 90}});
  }
}

TEST(DNNLAttention, NaNInBFloat16) {
  Case c{1, 1, 1, 8, 20, 16, 16};
  c.fpmath = "bfloat16";
  std::vector<Values> inputs = InputsOf(c);
  inputs[0][0] = inputs[2][3] = kNaN;
  Check(c, inputs);
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
  // Some heads of keys for each thread, and as many as no number of threads divides.
  for (int64_t groups : {1, 3, 5}) {
    const Case c{1, 3 * groups, groups, 1, 2000, 16, 16, {1, 1, 1, 2000}};
    std::vector<Values> inputs = InputsOf(c);
    for (int threads : {1, 2, 4}) {
      SetNumThreads(threads);
      Check(c, inputs);
    }
    // All keys of a part are masked.
    std::fill(inputs[3].begin(), inputs[3].begin() + 1100, -kInf);
    Check(c, inputs);
  }
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
  expect([](ValidOp* op) { op->attrs["fpmath"] = {"float16"}; }, "fpmath is float16");
  expect([](ValidOp* op) { op->attrs.erase("scale"); }, "scale is missing");
}

}  // namespace dnnl_test::attention
