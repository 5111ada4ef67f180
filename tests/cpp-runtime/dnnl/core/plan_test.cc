// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/dnnl/core/plan_test.cc
 * \brief Graphs that become plans, and plans that run, without TVM.
 */
#include <map>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "src/runtime/contrib/dnnl/core/error.h"
#include "src/runtime/contrib/dnnl/core/exec/graph_runner.h"
#include "src/runtime/contrib/dnnl/core/exec/profile.h"
#include "src/runtime/contrib/dnnl/core/flat_attrs.h"
#include "src/runtime/contrib/dnnl/core/lowering.h"
#include "tests/cpp-runtime/harness/test.h"

namespace dnnl_test::plan {

using namespace tvm::runtime::contrib::dnnl_backend;  // NOLINT(build/namespaces)

constexpr DLDataType kFloat{kDLFloat, 32, 1};

TensorType Floats(std::vector<int64_t> shape) { return {std::move(shape), kFloat}; }

/*! \brief Data (1, 2, 3, 3), a convolution with weights of ones and what is fused to it. */
Graph ConvGraph() {
  static std::vector<float> weights(2 * 2, 1.f);
  Graph graph;
  graph.symbol = graph.name = "main";
  graph.inputs = {{{0, 0}, {"input data", Floats({1, 2, 3, 3})}}};
  graph.constants = {{{{1, 0}, {"weights", Floats({2, 2, 1, 1})}}, {weights.data(), [](void*) {}}}};
  Node conv{2, "dnnl.conv2d_relu", {}, {{0, 0}, {1, 0}}, {Floats({1, 2, 3, 3})}};
  conv.attrs["root_op"] = "nn.conv2d";
  conv.attrs["post_ops"] = std::vector<std::string>{"nn.relu"};
  NestAttrs(&conv.attrs);
  graph.nodes = {conv};
  graph.outputs = {{{2, 0}, {"output 0", Floats({1, 2, 3, 3})}}};
  return graph;
}

TEST(DNNLPlan, RunsWithoutTVM) {
  const auto plan = MakePlan(ConvGraph());
  std::vector<float> data(18, -1.f), result(18, 9.f);
  data[0] = 5.f;
  Context(plan).Run({data.data(), result.data()}, nullptr);
  EXPECT_EQ(result[0], 4.f);
  EXPECT_EQ(result[1], 0.f);
}

TEST(DNNLPlan, StepsInPlaceArePartsOfTheWhole) {
  Graph graph = ConvGraph();
  for (uint32_t id = 3; id < 8; ++id) {
    const uint32_t source = id == 3 ? 2 : id - 1;
    graph.nodes.push_back({id, "dnnl.tanh", {}, {{source, 0}}, {Floats({1, 2, 3, 3})}});
    graph.nodes.back().attrs["root_op"] = "tanh";
  }
  graph.outputs[0].entry = {7, 0};
  const auto plan = MakePlan(graph);
  int parts = 0;
  for (const Buffer& buffer : plan->buffers) {
    if (buffer.kind != BufferKind::kPart) continue;
    ++parts;
    EXPECT_TRUE(plan->buffers[buffer.parent].kind != BufferKind::kPart);
  }
  EXPECT_TRUE(parts >= 4);
}

TEST(DNNLPlan, IsDescribedAsJSON) {
  const std::string text = DescribePlan("ma\"i\nn\x01\xff", *MakePlan(ConvGraph()));
  for (const char* part :
       {"{\"symbol\": \"ma\\\"i\\nn\\\\x01\\\\xff\", ", "\"op\": \"nn.conv2d\"",
        "\"post_ops\": [\"eltwise_relu\"]", "\"types\": \"f32f32f32\"", "\"threads\": "}) {
    if (!EXPECT_TRUE(text.find(part) != std::string::npos)) std::cerr << text << std::endl;
  }
}

TEST(DNNLPlan, ErrorsNameTheNode) {
  Graph graph = ConvGraph();
  graph.nodes[0].attrs["strides"] = "wide";
  EXPECT_THROWS(MakePlan(graph), "main, node 2 nn.conv2d of dnnl.conv2d_relu",
                "attribute 'strides' is \"wide\", expected: list of integer");
  graph = ConvGraph();
  graph.nodes[0].name = "nn.unheard_of";
  graph.nodes[0].attrs.clear();
  EXPECT_THROWS(MakePlan(graph), "main, node 2 nn.unheard_of", "has no op nn.unheard_of");
  graph = ConvGraph();
  graph.nodes[0].outputs[0].dtype = {kDLFloat, 64, 1};
  EXPECT_THROWS(MakePlan(graph), "main, node 2 nn.conv2d",
                "output 0 has type float64 [1, 2, 3, 3] in the graph, but is float32 [1, 2, 3, 3]");
  graph = ConvGraph();
  graph.inputs[0].argument.type.dtype = {kDLFloat, 64, 1};
  EXPECT_THROWS(MakePlan(graph), "main: input data: oneDNN has no data type float64");
  graph = ConvGraph();
  graph.nodes[0].inputs[0] = {7, 1};
  EXPECT_THROWS(MakePlan(graph), "output 1 of node 7 is not computed");
}

/*! \brief The same graph with ones added, which the graph calls a bias or does not. */
Graph BiasGraph(bool is_bias, const std::vector<int64_t>& shape, const std::string& op = "add") {
  static std::vector<float> ones(18, 1.f);
  Graph graph = ConvGraph();
  graph.constants.push_back({{{3, 0}, {"bias", Floats(shape)}}, {ones.data(), [](void*) {}}});
  Node& conv = graph.nodes[0];
  conv.inputs.push_back({3, 0});
  conv.attrs["post_ops"] = std::vector<std::string>{op, "nn.relu"};
  conv.attrs["post_ops.0.operand"] = "2";
  if (is_bias) conv.attrs["post_ops.0.is_bias"] = "1";
  NestAttrs(&conv.attrs);
  return graph;
}

/*! \brief What is fused to the convolution of a plan that adds ones to it. */
std::vector<std::string> Fused(const Graph& graph) {
  const auto plan = MakePlan(graph);
  std::vector<float> data(18, 1.f), result(18);
  Context(plan).Run({data.data(), result.data()}, nullptr);
  EXPECT_EQ(result[17], 3.f);
  for (const Step& step : plan->steps) {
    if (step.info.kind == "convolution") return step.info.post_ops;
  }
  return {"no convolution"};
}

TEST(DNNLBias, IsWhatTheGraphSays) {
  EXPECT_TRUE(Fused(BiasGraph(true, {2, 1, 1})) ==
              std::vector<std::string>({"bias", "eltwise_relu"}));
  // Of an artifact that says nothing: the same values in another way.
  const std::vector<std::string> fused = Fused(BiasGraph(false, {2, 1, 1}));
  // oneDNN has no fast code for it before AVX2: three steps then.
  const dnnl::cpu_isa isa = dnnl::get_effective_cpu_isa();
  EXPECT_TRUE(fused == std::vector<std::string>({"binary_add", "eltwise_relu"}) ||
              (fused.empty() && (isa == dnnl::cpu_isa::sse41 || isa == dnnl::cpu_isa::avx)));
  EXPECT_THROWS(MakePlan(BiasGraph(true, {1})), "main, node 2 add", "does not fit 2 channels");
  EXPECT_THROWS(MakePlan(BiasGraph(true, {2, 1, 1}, "multiply")), "main, node 2 multiply",
                "a bias must be added first");
}

/*! \brief The flops of the only primitive that does some. */
double FlopsOf(const char* op, const std::vector<int64_t>& src, const std::vector<int64_t>& weights,
               const std::vector<int64_t>& dst,
               std::map<std::string, tvm::runtime::json::JSONAttr> attrs) {
  Graph graph;
  graph.symbol = graph.name = "main";
  graph.inputs = {{{0, 0}, {"x", Floats(src)}}, {{1, 0}, {"w", Floats(weights)}}};
  graph.nodes = {{2, op, std::move(attrs), {{0, 0}, {1, 0}}, {Floats(dst)}}};
  graph.outputs = {{{2, 0}, {"y", Floats(dst)}}};
  double flops = 0;
  const auto plan = MakePlan(graph);
  for (const Step& step : plan->steps) flops += step.info.flops;
  return flops;
}

TEST(DNNLFlops, AreCountedByTheFamily) {
  EXPECT_EQ(FlopsOf("nn.conv2d", {1, 4, 5, 5}, {8, 4, 3, 3}, {1, 8, 3, 3}, {}), 2. * 72 * 4 * 9);
  EXPECT_EQ(FlopsOf("nn.conv2d", {1, 5, 5, 4}, {3, 3, 4, 8}, {1, 3, 3, 8},
                    {{"data_layout", "NHWC"}, {"kernel_layout", "HWIO"}}),
            2. * 72 * 4 * 9);
  EXPECT_EQ(FlopsOf("nn.conv2d", {1, 4, 5, 5}, {4, 1, 3, 3}, {1, 4, 3, 3}, {{"groups", 4}}),
            2. * 36 * 9);
  EXPECT_EQ(FlopsOf("nn.conv2d_transpose", {1, 4, 5, 5}, {4, 8, 3, 3}, {1, 8, 11, 11},
                    {{"strides", std::vector<std::string>{"2", "2"}}}),
            2. * 100 * 8 * 9);
  EXPECT_EQ(FlopsOf("nn.dense", {2, 3, 16}, {8, 16}, {2, 3, 8}, {}), 2. * 48 * 16);
  EXPECT_EQ(FlopsOf("nn.matmul", {16, 6}, {16, 8}, {6, 8}, {{"transpose_a", true}}), 2. * 48 * 16);
  // The same matrix for each of the batch.
  EXPECT_EQ(FlopsOf("nn.batch_matmul", {1, 6, 16}, {5, 8, 16}, {5, 6, 8}, {}), 2. * 240 * 16);
}

TEST(DNNLError, SaysWhereAndWhat) {
  try {
    CORE_CHECK(1 + 1 == 3) << "node " << 4;
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()), "Check failed: (1 + 1 == 3) is false: node 4");
    EXPECT_TRUE(std::string(error.file()).find("plan_test.cc") != std::string::npos);
    EXPECT_TRUE(error.line() > 0);
    return;
  }
  EXPECT_TRUE(false);
}

TEST(DNNLPlan, JoinsVeryManyParts) {
  for (const char* op : {"concatenate", "stack"}) {
    for (uint32_t parts : {1024, 1025, 3100}) {
      const bool is_stack = std::string(op) == "stack";
      Graph graph;
      graph.symbol = graph.name = "main";
      const int64_t columns = 2 * static_cast<int64_t>(parts);
      const TensorType joined =
          Floats(is_stack ? std::vector<int64_t>{1, parts, 2} : std::vector<int64_t>{1, columns});
      Node node{parts, op, {}, {}, {joined}};
      node.attrs["axis"] = "1";
      std::vector<std::vector<float>> values;
      for (uint32_t i = 0; i < parts; ++i) {
        graph.inputs.push_back({{i, 0}, {"input", Floats({1, 2})}});
        node.inputs.push_back({i, 0});
        values.push_back({static_cast<float>(i), -1});
      }
      graph.nodes = {node};
      graph.outputs = {{{parts, 0}, {"output", joined}}};
      std::vector<float> result(columns);
      std::vector<void*> addresses;
      for (auto& part : values) addresses.push_back(part.data());
      addresses.push_back(result.data());
      Context(MakePlan(graph)).Run(addresses, nullptr);
      int64_t right = 0;
      for (uint32_t i = 0; i < parts; ++i) {
        right += result[2 * i] == static_cast<float>(i) && result[2 * i + 1] == -1;
      }
      EXPECT_EQ(right, parts);
    }
  }
}

TEST(DNNLPlan, ErrorsOfOthersNameTheFunction) {
  GraphRunner runner("main", {});
  runner.Init(ConvGraph());
  const auto fail_with = [&](const auto& error) {
    return [&]() { runner.Run(2, [&](size_t) -> const DLTensor* { throw error; }); };
  };
  EXPECT_THROWS(fail_with(std::bad_alloc())(), "main: ", "memory");
  EXPECT_THROWS(fail_with(dnnl::error(dnnl_out_of_memory, "no room"))(), "main: ", "no room");
}

}  // namespace dnnl_test::plan
