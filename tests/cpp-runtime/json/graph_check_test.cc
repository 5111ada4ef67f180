// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/json/graph_check_test.cc
 * \brief A JSON graph from a damaged or hostile file gives an error that says what is wrong.
 */
#include <tvm/runtime/container/array.h>
#include <tvm/runtime/container/string.h>

#include <random>

#include "src/runtime/contrib/json/json_graph_check.h"
#include "tests/cpp-runtime/harness/test.h"

namespace json_test::graph_check {

using tvm::runtime::Array;
using tvm::runtime::String;
using tvm::runtime::json::CheckJSONGraph;
using tvm::runtime::json::JSONGraph;
using tvm::runtime::json::ParseJSONGraph;
using tvm::runtime::json::Printable;

/*! \brief y, z = split(conv2d(x, w)) with heads y, z and x. */
const char kGood[] = R"({
  "symbol": "sym",
  "nodes": [
    {"op": "input", "name": "x", "attrs": {"shape": [[[1, 3, 8, 8]]], "dtype": [["float32"]]}},
    {"op": "const", "name": "sym_const_0",
     "attrs": {"shape": [[[4, 3, 3, 3]]], "dtype": [["float32"]]}},
    {"op": "kernel", "name": "nn.conv2d", "inputs": [[0, 0, 0], [1, 0, 0]],
     "attrs": {"num_inputs": "2", "num_outputs": "1", "groups": [["1"]],
               "shape": [[[1, 4, -1, 8]]], "dtype": [["float32"]]}},
    {"op": "kernel", "name": "split", "inputs": [[2, 0, 0]],
     "attrs": {"num_inputs": "1", "num_outputs": "2",
               "shape": [[[1, 2, 8, 8], []]], "dtype": [["float32", "int64"]]}}
  ],
  "arg_nodes": [0, 1],
  "heads": [[3, 0, 0], [3, 1, 0], [0, 0, 0]],
  "node_row_ptr": [0, 1, 2, 3, 5]
})";

JSONGraph Check(const std::string& json, const Array<String>& const_names = {"sym_const_0"}) {
  JSONGraph graph = ParseJSONGraph("sym", json);
  CheckJSONGraph("sym", graph, const_names);
  return graph;
}

/*! \brief The good graph with the first `from` replaced by `to`. */
std::string With(const std::string& from, const std::string& to) {
  std::string text = kGood;
  const size_t at = text.find(from);
  if (at == std::string::npos) throw std::runtime_error("not in the graph: " + from);
  return text.replace(at, from.size(), to);
}

TEST(JSONGraphCheck, AcceptsTheGoodGraph) {
  JSONGraph graph = Check(kGood);
  EXPECT_EQ(graph.symbol, "sym");
  EXPECT_EQ(graph.nodes.size(), 4U);
  EXPECT_EQ(graph.arg_nodes, (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(graph.node_row_ptr, (std::vector<uint32_t>{0, 1, 2, 3, 5}));
  EXPECT_EQ(graph.heads.size(), 3U);
  Check(With("\"symbol\"", "\"format_version\": 1, \"symbol\""));
  Check(With("\"symbol\": \"sym\",", ""));
  Check(std::string(" \r\n\t") + kGood + " \n\r\t");
}

TEST(JSONGraphCheck, WritesWhatItReads) {
  JSONGraph graph = Check(kGood);
  std::vector<std::shared_ptr<tvm::runtime::json::JSONGraphNode>> nodes;
  for (const auto& node : graph.nodes) {
    nodes.push_back(std::make_shared<tvm::runtime::json::JSONGraphNode>(node));
  }
  const std::string text = tvm::runtime::json::WriteJSONGraph("sym", nodes, graph.heads);
  JSONGraph back = Check(text);
  EXPECT_EQ(back.arg_nodes, graph.arg_nodes);
  EXPECT_EQ(back.node_row_ptr, graph.node_row_ptr);
  EXPECT_EQ(tvm::runtime::json::WriteJSONGraph("sym", nodes, back.heads), text);
}

TEST(JSONGraphCheck, Text) {
  EXPECT_THROWS(Check(""), "'sym'", "cannot be read");
  EXPECT_THROWS(Check("   "), "cannot be read");
  EXPECT_THROWS(Check("[]"), "cannot be read");
  EXPECT_THROWS(Check("null"), "cannot be read");
  EXPECT_THROWS(Check("{}"), "\"nodes\" is missing");
  EXPECT_THROWS(Check(std::string(kGood) + "x"), "after the end");
  EXPECT_THROWS(Check(std::string(kGood) + "}"), "after the end");
  EXPECT_THROWS(Check(std::string(kGood) + std::string(1, '\0')), "after the end");
  EXPECT_THROWS(Check(With("\"symbol\"", "\"other\": 1, \"symbol\"")), "Unknown key \"other\"");
  EXPECT_THROWS(Check(With("\"symbol\"", "\"symbol\": \"a\", \"symbol\"")), "appears twice");
  EXPECT_THROWS(Check(With("\"symbol\"", "\"format_version\": 3, \"symbol\"")),
                "\"format_version\" is 3", "only versions 1 and 2");
  EXPECT_THROWS(Check(With("\"symbol\"", "\"format_version\": \"1\", \"symbol\"")), "number");
  EXPECT_THROWS(Check(With("\"symbol\": \"sym\"", "\"symbol\": 7")), "Expect");
  EXPECT_THROWS(Check(With("\"arg_nodes\": [0, 1],", "")), "\"arg_nodes\" is missing");
  EXPECT_THROWS(Check(With("\"name\": \"nn.conv2d\"", "\"name\": 3")), "node 2");
  EXPECT_THROWS(Check(With("\"groups\": [[\"1\"]]", "\"groups\": [[1]]")), "node 2 'nn.conv2d'");
  EXPECT_THROWS(Check(With("[0, 1],", "[0, 1,],")), "cannot be read");
  EXPECT_THROWS(Check(With("[0, 1],", "[0 1],")), "cannot be read");
}

TEST(JSONText, OfUTF8IsPrintable) {
  const std::string name = "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\n";
  EXPECT_EQ(Printable(name), name);
  // Cut, longer than need be, surrogates, too large, and what a terminal would take for a command.
  EXPECT_EQ(Printable("\xe2\x82"), "\\xe2\\x82");
  EXPECT_EQ(Printable("\xc0\xaf"), "\\xc0\\xaf");
  EXPECT_EQ(Printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");
  EXPECT_EQ(Printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
  EXPECT_EQ(Printable("\xc2\x9b\x1b"), "\\xc2\\x9b\\x1b");
}

/*! \brief Python decodes messages as UTF-8, and no byte of these is part of such a character. */
TEST(JSONGraphCheck, MessagesArePrintable) {
  const std::string bytes = "\xff\xc3\x01";
  for (const std::string& text :
       {std::string(), bytes, std::string(kGood) + bytes,
        With("\"x\"", "\"" + bytes + "\", \"o\": 1"), With("\"kernel\"", "\"" + bytes + "\""),
        With("\"float32\"", "\"" + bytes + "\""),
        With("[[\"float32\"]]", "[[\"" + bytes + "\", \"\"]]"),
        With("sym_const_0", "const" + bytes)}) {
    try {
      Check(text, {"sym_const_0"});
      EXPECT_TRUE(!"an error was expected");
    } catch (const tvm::runtime::InternalError& error) {
      for (char c : error.message()) EXPECT_TRUE((c >= ' ' && c <= '~') || c == '\n');
    }
  }
}

TEST(JSONGraphCheck, EveryPrefixIsTooShort) {
  const std::string good = kGood;
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_THROWS(Check(good.substr(0, size)), "cannot be read");
  }
}

TEST(JSONGraphCheck, DeepNestingNeedsNoStack) {
  for (const char* open : {"[", "{\"a\":"}) {
    std::string deep;
    for (int i = 0; i < 1000000; ++i) deep += open;
    EXPECT_THROWS(Check(deep), "cannot be read");
    EXPECT_THROWS(Check(With("[[\"1\"]]", deep)), "cannot be read");
    EXPECT_THROWS(Check(With("[[[1, 3, 8, 8]]]", deep)), "cannot be read");
  }
}

TEST(JSONGraphCheck, Nodes) {
  EXPECT_THROWS(Check(R"({"nodes": [], "arg_nodes": [], "heads": [], "node_row_ptr": [0]})"),
                "no nodes");
  EXPECT_THROWS(Check(With("\"op\": \"kernel\"", "\"op\": \"kernal\"")), "node 2 'nn.conv2d'",
                "input, const or kernel");
  EXPECT_THROWS(Check(With("[1, 0, 0]]", "[3, 0, 0]]")), "node 2", "earlier node");
  EXPECT_THROWS(Check(With("[1, 0, 0]]", "[2, 0, 0]]")), "node 2", "earlier node");
  EXPECT_THROWS(Check(With("[1, 0, 0]]", "[4294967295, 0, 0]]")), "node 2", "earlier node");
  EXPECT_THROWS(Check(With("[1, 0, 0]]", "[1, 1, 0]]")), "node 2", "does not have");
  EXPECT_THROWS(Check(With("[1, 0, 0]]", "[1, 0, -1]]")), "-1");
  EXPECT_THROWS(Check(With("\"num_inputs\": \"2\"", "\"num_inputs\": \"3\"")), "\"num_inputs\"");
  EXPECT_THROWS(Check(With("\"num_outputs\": \"1\"", "\"num_outputs\": \"0\"")), "\"num_outputs\"");
  EXPECT_THROWS(Check(With("\"num_outputs\": \"1\"", "\"num_outputs\": \"4294967295\"")),
                "\"num_outputs\" is 4294967295");
  EXPECT_THROWS(Check(With("\"num_outputs\": \"1\"", "\"num_outputs\": \"2\"")), "one shape");
  EXPECT_THROWS(Check(With("\"name\": \"x\",", "\"name\": \"x\", \"inputs\": [[0, 0, 0]],")),
                "node 0 'x'", "only a kernel");
}

TEST(JSONGraphCheck, ShapesAndTypes) {
  EXPECT_THROWS(Check(With("\"shape\": [[[1, 4, -1, 8]]], ", "")), "node 2",
                "no attribute 'shape'");
  EXPECT_THROWS(Check(With(", \"dtype\": [[\"float32\"]]", "")), "node 0", "no attribute 'dtype'");
  EXPECT_THROWS(Check(With("[1, 4, -1, 8]", "[1, 4, -2, 8]")), "node 2", "dimension");
  EXPECT_THROWS(Check(With("[1, 4, -1, 8]", "[1], [2]")), "node 2", "one shape");
  EXPECT_THROWS(Check(With("[[[1, 4, -1, 8]]]", "[[]]")), "node 2", "one shape");
  EXPECT_THROWS(Check(With("[[[1, 4, -1, 8]]]", "[]")), "node 2", "one list");
  EXPECT_THROWS(Check(With("[1, 4, -1, 8]", "[4294967296, 4294967296]")), "node 2", "64 bits");
  EXPECT_THROWS(Check(With("[1, 4, -1, 8]", "[0, 4294967296, 4294967296]")), "node 2", "64 bits");
  EXPECT_THROWS(Check(With("[1, 4, -1, 8]", "[9223372036854775807]")), "node 2", "64 bits");
  EXPECT_THROWS(Check(With("[1, 4, -1, 8]", "[9223372036854775808]")), "node 2", "number");
  std::string rank33 = "[1";
  for (int i = 0; i < 32; ++i) rank33 += ", 1";
  EXPECT_THROWS(Check(With("[1, 4, -1, 8]", rank33 + "]")), "node 2", "too many dimensions");
  Check(With("[1, 4, -1, 8]", "[0, 4, 0]"));
  for (const char* type : {"float", "float320", "float34", "int24", "float32x0", "float32x65537",
                           "flaot32", "", "void", "custom", "custom[", "custom[]32", "float-32",
                           "float32 ", "int8x-1", "\\\"", "uint1", "float32xvscalex4"}) {
    EXPECT_THROWS(Check(With("[[\"float32\"]]", std::string("[[\"") + type + "\"]]")), "node 0",
                  "unknown type");
  }
  EXPECT_THROWS(Check(With("[[\"float32\"]]", "[[\"float32\", \"float32\"]]")), "node 0",
                "one type");
  EXPECT_THROWS(Check(With("[[\"float32\"]]", "[[\"float32\"], [\"float32\"]]")), "node 0",
                "'dtype'");
  for (const char* type : {"float16", "bfloat16", "int8", "uint8", "bool", "int64", "float32x4"}) {
    Check(With("[[\"float32\"]]", std::string("[[\"") + type + "\"]]"));
  }
}

TEST(JSONGraphCheck, Tables) {
  EXPECT_THROWS(Check(With("[0, 1, 2, 3, 5]", "[0, 1, 2, 3, 4]")), "\"node_row_ptr\"");
  EXPECT_THROWS(Check(With("[0, 1, 2, 3, 5]", "[0, 1, 2, 3]")), "\"node_row_ptr\"");
  EXPECT_THROWS(Check(With("[0, 1, 2, 3, 5]", "[]")), "\"node_row_ptr\"");
  EXPECT_THROWS(Check(With("[0, 1, 2, 3, 5]", "[1, 1, 2, 3, 5]")), "\"node_row_ptr\"");
  EXPECT_THROWS(Check(With("[0, 1, 2, 3, 5]", "[0, -1, 2, 3, 5]")), "\"node_row_ptr\" holds -1");
  EXPECT_THROWS(Check(With("[0, 1],", "[0, 1, 4],")), "\"arg_nodes\"");
  EXPECT_THROWS(Check(With("[0, 1],", "[0, 1, 2],")), "node 2", "is a kernel");
  EXPECT_THROWS(Check(With("[0, 1],", "[0, 1, 1],")), "node 1", "twice");
  EXPECT_THROWS(Check(With("[0, 1],", "[0],")), "node 1", "not in \"arg_nodes\"");
  EXPECT_THROWS(Check(With("[0, 1],", "[0, -1],")), "\"arg_nodes\" holds -1");
  EXPECT_THROWS(Check(With("[0, 1],", "[0, 1.5],")), "cannot be read");
  EXPECT_THROWS(Check(With("[[3, 0, 0], [3, 1, 0], [0, 0, 0]]", "[]")), "no heads");
  EXPECT_THROWS(Check(With("[3, 1, 0]", "[3, 2, 0]")), "node 3", "output 2");
  EXPECT_THROWS(Check(With("[3, 1, 0]", "[4, 0, 0]")), "a head");
  EXPECT_THROWS(Check(With("[3, 1, 0]", "[-1, 0, 0]")), "-1");
  EXPECT_THROWS(Check(With("[3, 1, 0]", "3")), "cannot be read");
}

TEST(JSONGraphCheck, Constants) {
  EXPECT_THROWS(Check(kGood, {}), "node 1 'sym_const_0'", "no constant of this name");
  EXPECT_THROWS(Check(kGood, {"sym_const_1"}), "node 1", "no constant of this name");
  EXPECT_THROWS(Check(kGood, {"sym_const_0", "sym_const_1"}), "no node uses", "'sym_const_1'");
  EXPECT_THROWS(Check(kGood, {"sym_const_0", "sym_const_0"}), "listed twice");
  EXPECT_THROWS(Check(With("\"op\": \"input\", \"name\": \"x\"",
                           "\"op\": \"const\", \"name\": \"sym_const_0\"")),
                "node 1", "the same constant");
  EXPECT_THROWS(Check(With("\"attrs\": {\"shape\": [[[4, 3, 3, 3]]], \"dtype\": [[\"float32\"]]}",
                           "\"attrs\": {\"num_outputs\": \"2\", \"shape\": [[[4], [3]]], "
                           "\"dtype\": [[\"float32\", \"float32\"]]}")),
                "node 1", "one output");
}

TEST(JSONGraphCheck, RandomDamageIsAnErrorOrAGraph) {
  std::mt19937 random(20240607);
  const std::string good = kGood;
  const std::string alphabet = "{}[]\",:0123456789-+.eE\\ \n\0null\xff";
  int errors = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text = good;
    for (int i = static_cast<int>(random() % 4); i >= 0; --i) {
      const size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text[at] = alphabet[random() % alphabet.size()];
          break;
        case 1:
          text.erase(at, random() % 9 + 1);
          break;
        case 2:
          text.insert(at, 1, alphabet[random() % alphabet.size()]);
          break;
        default:
          text.insert(at, good.substr(random() % good.size(), random() % 30));
      }
    }
    try {
      Check(text);
    } catch (const tvm::runtime::Error&) {
      ++errors;
    }
  }
  EXPECT_TRUE(errors > 10000);
}

}  // namespace json_test::graph_check
