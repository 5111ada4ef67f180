// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/json/typed_test.cc
 * \brief Version 2 of the JSON graph, whose attributes are typed and may be nested.
 */
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "src/runtime/contrib/json/json_graph_check.h"
#include "tests/cpp-runtime/harness/test.h"

namespace json_test::typed {

using tvm::runtime::json::CheckJSONGraph;
using tvm::runtime::json::JSONAttr;
using tvm::runtime::json::JSONGraph;
using tvm::runtime::json::JSONGraphNode;
using tvm::runtime::json::JSONGraphNodeEntry;
using tvm::runtime::json::JSONReader;
using tvm::runtime::json::ParseJSONGraph;
using Shapes = std::vector<std::vector<int64_t>>;
using Strings = std::vector<std::string>;

/*! \brief A graph with one kernel, whose attributes are given. */
std::string GraphWith(const std::string& attrs) {
  return R"({"format_version": 2, "symbol": "sym", "nodes": [
    {"op": "input", "name": "x", "attrs": {"shape": [[2, 3]], "dtype": ["float32"]}},
    {"op": "kernel", "name": "nn.softmax", "inputs": [[0, 0, 0]],
     "attrs": {"shape": [[2, 3]], "dtype": ["float32"])" +
         (attrs.empty() ? "" : ", " + attrs) + R"(}}],
    "arg_nodes": [0], "heads": [[1, 0, 0]], "node_row_ptr": [0, 1, 2]})";
}

JSONGraph Check(const std::string& text) {
  JSONGraph graph = ParseJSONGraph("sym", text);
  CheckJSONGraph("sym", graph, Strings());
  return graph;
}

JSONGraphNode NodeWith(const std::string& attrs) { return Check(GraphWith(attrs)).nodes[1]; }

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  if (at == std::string::npos) throw std::runtime_error("not in the graph: " + from);
  return text.replace(at, from.size(), to);
}

TEST(JSONTyped, ReadsEveryKind) {
  const JSONGraphNode node = NodeWith(R"("none": null, "flag": true, "axis": -1, "whole": 6.0,
      "epsilon": 1e-5, "mode": "constant", "strides": [1, 2], "pad_width": [[0, 0], [1, 2]],
      "empty": [], "inf": "-inf", "post_ops": [{"op": "add", "operand": 2, "nested": [[1]]}, {}])");
  EXPECT_TRUE(node.attrs().at("none").IsNull() && !node.attrs().at("axis").IsNull());
  EXPECT_EQ(node.GetAttr<bool>("flag"), true);
  EXPECT_EQ(node.GetAttr<int>("axis"), -1);
  EXPECT_EQ(node.GetAttr<double>("whole"), 6.0);
  EXPECT_EQ(node.GetAttr<double>("axis"), -1.0);
  EXPECT_EQ(node.GetAttr<double>("epsilon"), 1e-5);
  EXPECT_EQ(node.GetAttr<float>("inf"), -std::numeric_limits<float>::infinity());
  EXPECT_EQ(node.GetAttr<std::string>("mode"), "constant");
  EXPECT_EQ(node.GetAttr<std::vector<int>>("strides"), (std::vector<int>{1, 2}));
  EXPECT_EQ(node.GetAttr<Shapes>("pad_width"), (Shapes{{0, 0}, {1, 2}}));
  EXPECT_EQ(node.GetAttr<std::vector<int>>("empty"), std::vector<int>{});
  EXPECT_EQ(node.GetOpShape(), (Shapes{{2, 3}}));
  EXPECT_EQ(node.GetNumOutput(), 1U);
  EXPECT_EQ(node.GetNumInput(), 1U);
  const JSONAttr& post_ops = node.attrs().at("post_ops");
  ASSERT_EQ(post_ops.items().size(), 2U);
  EXPECT_EQ(post_ops.items()[0].Repr(), R"({"nested": [[1]], "op": "add", "operand": 2})");
  EXPECT_THROWS(node.GetAttr<int>("whole"), "'nn.softmax'", "'whole' is 6.0", "integer");
  EXPECT_THROWS(node.GetAttr<int>("post_ops"), "'nn.softmax'", "\"operand\": 2", "integer");
  EXPECT_THROWS(node.GetAttr<Strings>("post_ops"), "'post_ops'", "list of string");
  EXPECT_THROWS(node.GetAttr<uint32_t>("axis"), "'axis' is -1");
  EXPECT_THROWS(node.GetAttr<bool>("axis"), "'axis' is -1", "bool");
}

/*! \brief Other backends read strings and convert them, or pass numbers as strings. */
TEST(JSONTyped, ConvertsToAndFromStrings) {
  const JSONGraphNode node = NodeWith(R"("strides": [1, 2], "flags": [true, false], "eps": 0.5,
      "old": ["3", "4"], "axis": "7", "one": [5], "rows": [[1, 2]])");
  EXPECT_EQ(node.GetAttr<Strings>("strides"), (Strings{"1", "2"}));
  EXPECT_EQ(node.GetAttr<Strings>("flags"), (Strings{"1", "0"}));
  EXPECT_EQ(node.GetAttr<Strings>("eps"), (Strings{"0.5"}));
  EXPECT_EQ(node.GetAttr<std::vector<int>>("old"), (std::vector<int>{3, 4}));
  EXPECT_EQ(node.GetAttr<int>("axis"), 7);
  EXPECT_EQ(node.GetAttr<int>("one"), 5);
  EXPECT_EQ(node.GetAttr<std::vector<int>>("rows"), (std::vector<int>{1, 2}));
}

TEST(JSONTyped, RoundTrip) {
  const auto leaf = std::make_shared<JSONGraphNode>("x \"\\\n\x01", "input");
  leaf->SetAttr("shape", Shapes{{}});
  leaf->SetAttr("dtype", Strings{"float32"});
  const auto kernel = std::make_shared<JSONGraphNode>(
      "op", "kernel", std::vector<JSONGraphNodeEntry>{{0, 0}, {0, 0}}, 2);
  kernel->SetAttr("shape", Shapes{{1, -1}, {}});
  kernel->SetAttr("dtype", Strings{"float32", "int8"});
  kernel->SetAttr("none", JSONAttr());
  kernel->SetAttr("flag", false);
  kernel->SetAttr("third", 1.0 / 3);
  kernel->SetAttr("nan", std::numeric_limits<double>::quiet_NaN());
  kernel->SetAttr("most", std::numeric_limits<int64_t>::max());
  kernel->SetAttr("least", std::numeric_limits<int64_t>::min());
  kernel->SetAttr("key \"\t\xc3\xa4", JSONAttr::Of(JSONAttr::Object{{"a", 1}, {"b", "\xc3\xa4"}}));
  const std::vector<JSONGraphNodeEntry> heads = {{1, 1}, {1, 0}};
  const std::string text = tvm::runtime::json::WriteTypedJSONGraph("sym", {leaf, kernel}, heads);
  const JSONGraph graph = Check(text);
  EXPECT_EQ(graph.format_version, 2);
  EXPECT_EQ(graph.node_row_ptr, (std::vector<uint32_t>{0, 1, 3}));
  EXPECT_EQ(graph.nodes[0].GetOpName(), leaf->GetOpName());
  EXPECT_TRUE(graph.nodes[1].attrs().at("third") == kernel->attrs().at("third"));
  EXPECT_TRUE(graph.nodes[1].attrs().at("nan") == JSONAttr("nan"));
  std::vector<std::shared_ptr<JSONGraphNode>> nodes;
  for (const JSONGraphNode& node : graph.nodes) {
    nodes.push_back(std::make_shared<JSONGraphNode>(node));
  }
  EXPECT_EQ(tvm::runtime::json::WriteTypedJSONGraph("sym", nodes, graph.heads), text);
}

TEST(JSONTyped, NestedValuesAreNotWrittenInVersion1) {
  const auto node = std::make_shared<JSONGraphNode>("op", "kernel");
  node->SetAttr("post_ops", JSONAttr::Of(JSONAttr::List{JSONAttr::Of(JSONAttr::Object())}));
  EXPECT_THROWS(tvm::runtime::json::WriteJSONGraph("sym", {node}, {{0, 0}}), "'op'", "'post_ops'",
                "version 1");
}

TEST(JSONTyped, RefusesMalformedText) {
  const std::string good = GraphWith("");
  Check(good);
  for (const char* value : {"nul", "tru", "NaN", "Infinity", "-inf", "1.5.2", "01x", "+1", ".5",
                            "1e999", "9223372036854775808", "", "[1,]", "{\"a\" 1}", "{1: 2}",
                            "[1 2]", "\"a", "'a'", "{\"a\": 1, \"a\": 2}"}) {
    EXPECT_THROWS(Check(GraphWith(std::string("\"axis\": ") + value)), "cannot be read",
                  "node 1 'nn.softmax'");
  }
  EXPECT_THROWS(Check(GraphWith(R"("axis": 1, "axis": 2)")), "\"axis\" appears twice");
  for (const char* shape :
       {"[2, 3]", "[[[2, 3]]]", "[[\"2\", 3]]", "[[2.0, 3]]", "6", "null", "{\"a\": [2, 3]}"}) {
    EXPECT_THROWS(Check(Replaced(good, "[[2, 3]]", shape)), "node 0 'x'", "\"shape\"");
  }
  EXPECT_THROWS(Check(Replaced(good, "[[2, 3]]", "[]")), "'x'", "\"num_outputs\" is 0");
  EXPECT_THROWS(Check(Replaced(good, "[[2, 3]]", "[[2], [3]]")), "'x'", "\"dtype\"");
  EXPECT_THROWS(Check(Replaced(good, "[\"float32\"]", "[[\"float32\", \"int8\"]]")), "\"dtype\"");
  EXPECT_THROWS(Check(Replaced(good, "{\"shape\"", "[{\"shape\"")), "cannot be read");
  EXPECT_THROWS(Check(Replaced(good, R"("format_version": 2, )", "")), "cannot be read");
  const std::string late = Replaced(Replaced(good, R"("format_version": 2, )", ""), "\"arg_nodes\"",
                                    R"("format_version": 2, "arg_nodes")");
  EXPECT_THROWS(
      Check(Replaced(Replaced(late, "[[2, 3]]", "[[[2, 3]]]"), "[\"float32\"]", "[[\"float32\"]]")),
      "cannot be read");
  EXPECT_THROWS(Check(R"({"nodes": [], "format_version": 2})"), "must stand before \"nodes\"");
}

TEST(JSONTyped, EveryPrefixIsTooShort) {
  const std::string good = GraphWith(R"("a": [{"b": null, "c": [1.5, "d"]}])");
  Check(good);
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_THROWS(Check(good.substr(0, size)), "cannot be read");
  }
}

TEST(JSONTyped, DepthAndSizeAreBounded) {
  for (const char* open : {"[", "{\"a\":"}) {
    std::string deep;
    for (int i = 0; i < 1000000; ++i) deep += open;
    EXPECT_THROWS(Check(GraphWith("\"a\": " + deep)), "node 1", "nested too deep");
  }
  std::string many = "[";
  for (int i = 0; i < (1 << 22); ++i) many += "0,";
  EXPECT_THROWS(Check(GraphWith("\"a\": " + many + "0]")), "node 1", "too many values");
}

}  // namespace json_test::typed
