// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/dnnl/core/infer_test.cc
 * \brief The types that ops make, with open dimensions too.
 */
#include "src/runtime/contrib/dnnl/core/infer.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "src/runtime/contrib/dnnl/core/desc.h"
#include "src/runtime/contrib/dnnl/core/error.h"
#include "src/runtime/contrib/dnnl/core/lowering.h"
#include "tests/cpp-runtime/dnnl/core/valid_ops.h"
#include "tests/cpp-runtime/harness/test.h"

namespace dnnl_test::infer {

/*! \brief The shape of the first output of an op whose output is open. */
Shape Inferred(ValidOp op, size_t rank) {
  op.outputs = {Float32(Shape(rank, kOpen))};
  const Graph graph = GraphOf(op);
  return Infer(graph, InputShapes(graph)).nodes[0].outputs[0].shape;
}

Shape Reshaped(const Shape& shape, const Attr& codes, size_t rank, bool is_reverse = false) {
  const char* name = is_reverse ? "contrib_reverse_reshape" : "reshape";
  return Inferred({name, {Float32(shape)}, {{"newshape", codes}}, {}}, rank);
}

TEST(DNNLInfer, CodesOfReshape) {
  EXPECT_EQ(Reshaped({2, 3, 4}, {"4", "0", "2"}, 3), Shape({4, 3, 2}));
  EXPECT_EQ(Reshaped({2, 3, 4}, {"6", "1", "-1"}, 3), Shape({6, 1, 4}));
  EXPECT_EQ(Reshaped({2, 3, 4}, {"-2"}, 3), Shape({2, 3, 4}));
  EXPECT_EQ(Reshaped({2, 3, 4}, {"2", "-2"}, 3), Shape({2, 3, 4}));
  EXPECT_EQ(Reshaped({2, 3, 4}, {"-2", "1", "1"}, 5), Shape({2, 3, 4, 1, 1}));
  EXPECT_EQ(Reshaped({2, 3, 4}, {"-3", "4"}, 2), Shape({6, 4}));
  EXPECT_EQ(Reshaped({2, 3, 4, 5}, {"-3", "-3"}, 2), Shape({6, 20}));
  EXPECT_EQ(Reshaped({2, 3, 4}, {"0", "-3"}, 2), Shape({2, 12}));
  EXPECT_EQ(Reshaped({2, 3, 4}, {"-4", "1", "2", "-2"}, 4), Shape({1, 2, 3, 4}));
  EXPECT_EQ(Reshaped({2, 3, 4}, {"2", "-4", "-1", "3", "-2"}, 4), Shape({2, 1, 3, 4}));
  EXPECT_EQ(Reshaped({2, 3, 4}, {"0", "0", "-1"}, 3), Shape({2, 3, 4}));
  EXPECT_EQ(Reshaped({1}, {}, 0), Shape({}));
  EXPECT_EQ(Reshaped({8, 3, 4}, {"-1", "0"}, 2, true), Shape({24, 4}));
  for (const Attr& codes : std::vector<Attr>{{"5", "-1"},
                                             {"-1", "-1"},
                                             {"0", "0", "0", "0"},
                                             {"-5"},
                                             {"-3", "-3"},
                                             {"-4", "1"},
                                             {"-4", "0", "-1", "-2"},
                                             {"-4", "-1", "-1", "-2"},
                                             {"7"}}) {
    EXPECT_THROWS(Reshaped({2, 3, 4}, codes, 2), "main, node 9 reshape: newshape", "does not fit");
  }
}

TEST(DNNLInfer, BatchesOfSeveralDimensions) {
  const auto batch_matmul = [](const Shape& src, const Shape& weights) {
    ValidOp op = Valid("nn.batch_matmul");
    op.inputs = {Float32(src), Float32(weights)};
    return Inferred(op, std::max(src.size(), weights.size()));
  };
  EXPECT_EQ(batch_matmul({2, 3, 4, 6}, {2, 3, 5, 6}), Shape({2, 3, 4, 5}));
  EXPECT_EQ(batch_matmul({2, 3, 4, 6}, {1, 1, 5, 6}), Shape({2, 3, 4, 5}));
  EXPECT_EQ(batch_matmul({1, 1, 4, 6}, {2, 3, 5, 6}), Shape({2, 3, 4, 5}));
  EXPECT_EQ(batch_matmul({2, 3, 4, 6}, {1, 3, 5, 6}), Shape({2, 3, 4, 5}));
  EXPECT_EQ(batch_matmul({2, 1, 4, 6}, {1, 3, 5, 6}), Shape({2, 3, 4, 5}));
  EXPECT_EQ(batch_matmul({2, 3, 4, 6}, {3, 5, 6}), Shape({2, 3, 4, 5}));
  EXPECT_EQ(batch_matmul({4, 6}, {2, 5, 6}), Shape({2, 4, 5}));
  EXPECT_THROWS(batch_matmul({2, 3, 4, 6}, {6, 5, 6}), "node 9 nn.batch_matmul",
                "batches [2, 3] and [6] do not broadcast");
  EXPECT_THROWS(batch_matmul({2, 3, 4, 6}, {6}), "node 9 nn.batch_matmul", "rank 2 or more");
}

TEST(DNNLInfer, WindowsThatRoundUp) {
  ValidOp pool = Valid("nn.max_pool2d");
  pool.inputs = {Float32({1, 4, 8, 8})};
  EXPECT_EQ(Inferred(pool, 4), Shape({1, 4, 4, 4}));
  pool.attrs["ceil_mode"] = {"1"};
  EXPECT_EQ(Inferred(pool, 4), Shape({1, 4, 5, 5}));
  // A last window of padding alone is no window, as in Relax and PyTorch.
  pool.inputs = {Float32({1, 4, 7, 9})};
  pool.attrs["pool_size"] = {"2", "2"};
  EXPECT_EQ(Inferred(pool, 4), Shape({1, 4, 4, 5}));
  pool.attrs["padding"] = {"0", "0"};
  pool.attrs["pool_size"] = {"1", "1"};
  EXPECT_EQ(Inferred(pool, 4), Shape({1, 4, 4, 5}));
  pool.inputs = {Float32({1, 4, 8, 8})};
  EXPECT_EQ(Inferred(pool, 4), Shape({1, 4, 4, 4}));
  // Nor is a first one.
  pool.attrs["padding"] = {"1", "1"};
  EXPECT_THROWS(Inferred(pool, 4), "main, node 9 nn.max_pool2d", "do not each contain some of 8");
}

TEST(DNNLInfer, DepthwiseWeightsWithMultiplier) {
  ValidOp conv = Valid("nn.conv2d");
  conv.inputs = {Float32({1, 4, 7, 7}), Float32({4, 2, 3, 3})};
  conv.attrs["groups"] = {"4"};
  conv.attrs["channels"] = {"8"};
  EXPECT_EQ(Inferred(conv, 4), Shape({1, 8, 4, 4}));
}

TEST(DNNLInfer, PartsOfASplit) {
  const auto split = [](const Attr& indices, Types outputs) {
    const Graph graph = GraphOf({"split",
                                 {Float32({6, 2})},
                                 {{"axis", {"0"}}, {"indices_or_sections", indices}},
                                 std::move(outputs)});
    const Graph inferred = Infer(graph, InputShapes(graph));
    std::vector<int64_t> sizes;
    for (const TensorType& part : inferred.nodes[0].outputs) sizes.push_back(part.shape[0]);
    return sizes;
  };
  const TensorType open = Float32({kOpen, 2});
  EXPECT_EQ(split({"3"}, {open, open, open}), Shape({2, 2, 2}));
  EXPECT_EQ(split({"1", "3"}, {open, open, open}), Shape({1, 2, 3}));
  EXPECT_EQ(split({"5"}, {open, open}), Shape({5, 1}));
  // A number of sections and a list of one index are one text.
  EXPECT_EQ(split({"2"}, {open, open}), Shape({3, 3}));
  EXPECT_EQ(split({"2"}, {Float32({2, 2}), open}), Shape({2, 4}));
  EXPECT_THROWS(split({"4"}, {open, open, open, open}), "4 sections of an axis of 6");
  EXPECT_THROWS(split({"3", "3"}, {open, open, open}), "do not ascend");
  EXPECT_THROWS(split({"2147483647"}, {open}), "do not give 1 parts");
}

/*! \brief Dense, a reshape of its rows and a bias, with an open number of rows. */
Graph RowsGraph() {
  Graph graph;
  graph.symbol = graph.name = "main";
  graph.inputs = {{{0, 0}, {"input x", Float32({kOpen, 4, 6})}},
                  {{1, 0}, {"input w", Float32({5, 6})}},
                  {{2, 0}, {"input b", Float32({5})}}};
  Node node{3, "dnnl.dense_bias", {}, {{0, 0}, {1, 0}, {2, 0}}, {Float32({kOpen, 5})}};
  node.attrs["root_op"] = "nn.dense";
  node.attrs["post_ops"] = Attr{"reshape", "add"};
  node.attrs["post_ops.0.newshape"] = Attr{"-1", "5"};
  node.attrs["post_ops.1.operand"] = "2";
  node.attrs["post_ops.1.is_bias"] = "1";
  NestAttrs(&node.attrs);
  graph.nodes = {node};
  graph.outputs = {{{3, 0}, {"output 0", Float32({kOpen, 5})}}};
  return graph;
}

TEST(DNNLInfer, OpenDimensionsAreThoseOfTheCall) {
  const Graph graph = RowsGraph();
  EXPECT_TRUE(IsDynamic(graph));
  for (int64_t rows : {1, 3}) {
    const Graph call = Infer(graph, {{rows, 4, 6}, {5, 6}, {5}});
    EXPECT_TRUE(!IsDynamic(call));
    EXPECT_EQ(call.nodes[0].op_types[0].shape, Shape({rows, 4, 5}));
    EXPECT_EQ(call.nodes[0].op_types[1].shape, Shape({rows * 4, 5}));
    EXPECT_EQ(call.outputs[0].argument.type.shape, Shape({rows * 4, 5}));
    std::vector<float> x(rows * 24, 1.f), w(30, 2.f), b(5, 3.f), y(rows * 20, 0.f);
    const auto plan = MakePlan(graph, {{rows, 4, 6}, {5, 6}, {5}});
    Context(plan).Run({x.data(), w.data(), b.data(), y.data()}, nullptr);
    EXPECT_EQ(y, std::vector<float>(rows * 20, 15.f));
  }
  EXPECT_THROWS(MakePlan(graph), "main: input x", "not static");
  EXPECT_THROWS(Infer(graph, {{3, 4, 7}, {5, 6}, {5}}),
                "main: input x must have shape [-1, 4, 6], but has [3, 4, 7]");
  EXPECT_THROWS(Infer(graph, {{3, 4}, {5, 6}, {5}}), "main: input x must have shape [-1, 4, 6]");
  EXPECT_THROWS(Infer(graph, {{3, 4, 6}}), "main: there are 3 inputs, but 1 shapes");
}

TEST(DNNLInfer, TheGraphMustAgree) {
  Graph graph = RowsGraph();
  graph.nodes[0].outputs[0].shape = {12, 5};
  Infer(graph, {{3, 4, 6}, {5, 6}, {5}});
  EXPECT_THROWS(Infer(graph, {{2, 4, 6}, {5, 6}, {5}}), "main, node 3 nn.dense of dnnl.dense_bias",
                "output 0 has type float32 [12, 5] in the graph, but is float32 [8, 5]");
  // A post-op's own checks name it.
  graph.inputs[2].argument.type.shape = {4};
  EXPECT_THROWS(Infer(graph, {{3, 4, 6}, {5, 6}, {4}}), "main, node 3 add of dnnl.dense_bias",
                "shapes [12, 5] and [4] do not broadcast");
}

TEST(DNNLInfer, AnyOrderOfPostOpsRuns) {
  // A reshape that no convolution can see its result by, and a sum that makes it larger.
  Graph graph = GraphOf({"nn.conv2d",
                         {Float32({1, 2, 3, 3}), Float32({2, 2, 1, 1}), Float32({4, 18})},
                         {{"post_ops", {"reshape", "add"}},
                          {"root_op", {"nn.conv2d"}},
                          {"post_ops.0.newshape", {"-1"}},
                          {"post_ops.1.operand", {"2"}}},
                         {Float32({4, 18})}});
  std::vector<float> x(18, 1.f), w(4, 1.f), b(72, 3.f), y(72, 0.f);
  Context(MakePlan(graph)).Run({x.data(), w.data(), b.data(), y.data()}, nullptr);
  EXPECT_EQ(y, std::vector<float>(72, 5.f));
}

/*! \brief Resize along a row. */
void InferResized(const std::string& name, std::map<std::string, Attr> attrs, int64_t size,
                  int64_t out) {
  attrs["layout"] = {"NCHW"};
  if (name == "nn.upsampling") {
    attrs["scale_w"] = {std::to_string(out / size)};
  } else {
    attrs["size"] = {"1", std::to_string(out)};
  }
  Inferred({name, {Float32({1, 1, 1, size})}, attrs, {}}, 4);
}

TEST(DNNLInfer, CoordinatesOfResize) {
  std::map<std::string, Attr> attrs = {{"method", {"linear"}},
                                       {"coordinate_transformation_mode", {"align_corners"}},
                                       {"rounding_method", {""}}};
  const auto infer = [&]() { InferResized("image.resize2d", attrs, 4, 8); };
  infer();
  attrs["coordinate_transformation_mode"] = {"half_pixels"};
  EXPECT_THROWS(infer(), "main, node 9 image.resize2d", "half_pixels");
  attrs["coordinate_transformation_mode"] = {"half_pixel"};
  attrs["rounding_method"] = {"up"};
  EXPECT_THROWS(infer(), "main, node 9 image.resize2d", "up");
  InferResized("nn.upsampling", {{"method", {"bilinear"}}, {"align_corners", {"1"}}}, 4, 8);
}

}  // namespace dnnl_test::infer
