// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/json/node_test.cc
 * \brief Attributes and nodes of a JSON graph: values to text, text to values, errors.
 */
#include <clocale>
#include <limits>
#include <locale>

#include "src/runtime/contrib/json/json_node.h"
#include "tests/cpp-runtime/harness/test.h"

namespace json_test::node {

using tvm::runtime::json::JSONAttr;
using tvm::runtime::json::JSONGraphNode;
using tvm::runtime::json::JSONGraphNodeEntry;
using tvm::runtime::json::ParseText;
using tvm::runtime::json::TextOf;
using Shapes = std::vector<std::vector<int64_t>>;
using Strings = std::vector<std::string>;

std::string Save(const JSONGraphNode& node) {
  std::ostringstream os;
  dmlc::JSONWriter writer(&os);
  node.Save(&writer);
  return os.str();
}

JSONGraphNode Load(const std::string& text) {
  std::istringstream is(text);
  dmlc::JSONReader reader(&is);
  JSONGraphNode node;
  node.Load(&reader);
  return node;
}

JSONGraphNode KernelWith(const std::string& attrs) {
  return Load(R"({"op": "kernel", "name": "nn.conv2d", "inputs": [[0, 0, 0]], "attrs": {)" + attrs +
              "}}");
}

/*! \brief A locale whose numbers look nothing like JSON's. */
struct ForeignNumbers : public std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\1"; }
};

TEST(JSONText, FloatsReadBackExactly) {
  using Limits = std::numeric_limits<double>;
  for (double value : {0.0, -0.0, 1.0, 0.1, 1e-5, 0.0003, 1.0 / 3, 1e300, Limits::max(),
                       Limits::min(), Limits::denorm_min(), Limits::lowest(), 123456789.125}) {
    double back = 1;
    EXPECT_TRUE(ParseText(TextOf(value), &back));
    EXPECT_EQ(back, value);
    EXPECT_EQ(std::signbit(back), std::signbit(value));
  }
  EXPECT_EQ(TextOf(6.0), "6");
  EXPECT_EQ(TextOf(0.5), "0.5");
}

TEST(JSONText, NotFinite) {
  double back = 0;
  EXPECT_EQ(TextOf(-std::numeric_limits<double>::infinity()), "-inf");
  EXPECT_TRUE(ParseText("-inf", &back) && std::isinf(back) && back < 0);
  EXPECT_TRUE(ParseText("inf", &back) && std::isinf(back) && back > 0);
  EXPECT_EQ(TextOf(std::numeric_limits<double>::quiet_NaN()), "nan");
  EXPECT_TRUE(ParseText("nan", &back) && std::isnan(back));
}

TEST(JSONText, WholeTextMustBeTheNumber) {
  int number = 0;
  for (const char* text : {"", " 1", "1 ", "1x", "x1", "1.0", "+1", "0x10", "99999999999", "--1"}) {
    EXPECT_TRUE(!ParseText(text, &number));
  }
  double real = 0;
  for (const char* text : {"", " 1", "1 ", "1.5x", "1,5", "1e999", "one"}) {
    EXPECT_TRUE(!ParseText(text, &real));
  }
  float single = 0;
  EXPECT_TRUE(!ParseText("1e300", &single));
  EXPECT_TRUE(ParseText("inf", &single) && std::isinf(single));
  uint32_t count = 0;
  EXPECT_TRUE(!ParseText("-1", &count));
  bool flag = false;
  EXPECT_TRUE(ParseText("1", &flag) && flag);
  EXPECT_TRUE(ParseText("False", &flag) && !flag);
  EXPECT_TRUE(!ParseText("2", &flag));
}

TEST(JSONText, IgnoresTheLocale) {
  const std::locale before = std::locale::global(std::locale(std::locale(), new ForeignNumbers));
  double back = 0;
  const std::string text = TextOf(1234.5);
  const bool read = ParseText("1234.5", &back);
  std::locale::global(before);
  EXPECT_EQ(text, "1234.5");
  EXPECT_TRUE(read);
  EXPECT_EQ(back, 1234.5);
}

TEST(JSONAttr, ReadsEveryType) {
  JSONGraphNode node("op", "kernel");
  node.SetAttr("text", "NCHW");
  node.SetAttr("flag", true);
  node.SetAttr("whole", int64_t{-7});
  node.SetAttr("real", 0.25);
  node.SetAttr("row", Strings{"1", "2"});
  node.SetAttr("rows", JSONAttr::Rows{{"0", "1"}, {"2", "3"}});
  EXPECT_EQ(node.GetAttr<std::string>("text"), "NCHW");
  EXPECT_EQ(node.GetAttr<bool>("flag"), true);
  EXPECT_EQ(node.GetAttr<int>("whole"), -7);
  EXPECT_EQ(node.GetAttr<int64_t>("whole"), -7);
  EXPECT_EQ(node.GetAttr<double>("real"), 0.25);
  EXPECT_EQ(node.GetAttr<double>("whole"), -7.0);
  EXPECT_EQ(node.GetAttr<Strings>("row"), (Strings{"1", "2"}));
  EXPECT_EQ(node.GetAttr<std::vector<int>>("row"), (std::vector<int>{1, 2}));
  EXPECT_EQ(node.GetAttr<std::vector<int64_t>>("row"), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(node.GetAttr<std::vector<double>>("row"), (std::vector<double>{1, 2}));
  EXPECT_EQ(node.GetAttr<std::vector<bool>>("flag"), (std::vector<bool>{true}));
  EXPECT_EQ(node.GetAttr<Shapes>("rows"), (Shapes{{0, 1}, {2, 3}}));
  EXPECT_EQ(node.GetAttr<std::vector<Strings>>("rows"),
            (std::vector<Strings>{{"0", "1"}, {"2", "3"}}));
  EXPECT_EQ(node.GetAttr<Shapes>("row"), (Shapes{{1, 2}}));
}

TEST(JSONAttr, ErrorsNameNodeAttributeValueAndType) {
  JSONGraphNode node("nn.conv2d", "kernel");
  node.SetAttr("groups", "many");
  node.SetAttr("pad_width", JSONAttr::Rows{{"0", "1"}, {"2", "3"}});
  node.SetAttr("shape", Shapes{{1, 2}});
  EXPECT_THROWS(node.GetAttr<int>("groups"), "'nn.conv2d'", "'groups'", "\"many\"",
                "expected: integer");
  EXPECT_THROWS(node.GetAttr<int>("axis"), "'nn.conv2d'", "no attribute 'axis'");
  EXPECT_THROWS(node.GetAttr<Strings>("pad_width"), "'pad_width'", "list of string");
  EXPECT_THROWS(node.GetAttr<std::string>("pad_width"), "'pad_width'");
  EXPECT_THROWS(node.GetAttr<std::vector<int>>("groups"), "'groups'", "list of integer");
  EXPECT_THROWS(node.GetAttr<std::string>("shape"), "'shape'", "[[1, 2]]");
  EXPECT_THROWS(node.GetOpDataType(), "no attribute 'dtype'");
}

TEST(JSONAttr, TakesWhatOtherBackendsPass) {
  JSONGraphNode node("op", "kernel");
  node.SetAttr("padding", std::vector<dmlc::any>{Strings{"1", "2"}});
  std::vector<dmlc::any> rows;
  rows.emplace_back(Strings{"0", "1"});
  rows.emplace_back(Strings{"2"});
  node.SetAttr("pad_width", rows);
  std::vector<dmlc::any> shapes;
  shapes.emplace_back(Shapes{{1, -1}, {}});
  node.SetAttr("shape", shapes);
  std::vector<dmlc::any> dtypes;
  dtypes.emplace_back(Strings{"float32", "uint8"});
  node.SetAttr("dtype", dtypes);
  EXPECT_EQ(node.GetAttr<Strings>("padding"), (Strings{"1", "2"}));
  EXPECT_EQ(node.GetAttr<Shapes>("pad_width"), (Shapes{{0, 1}, {2}}));
  EXPECT_EQ(node.GetOpShape(), (Shapes{{1, -1}, {}}));
  ASSERT_EQ(node.GetOpDataType().size(), 2U);
  EXPECT_EQ(static_cast<int>(node.GetOpDataType()[1].bits), 8);
  std::vector<dmlc::any> wrong;
  wrong.emplace_back(1.5f);
  EXPECT_THROWS(node.SetAttr("scale", wrong), "'scale'", "std::vector<std::string>");
}

TEST(JSONNode, CaptureAttrs) {
  JSONGraphNode from("a", "kernel"), to("b", "kernel");
  from.SetAttr("axis", 1);
  from.SetAttr("both", 1);
  to.SetAttr("both", 2);
  to.CaptureAttrs(from);
  EXPECT_EQ(to.GetAttr<int>("axis"), 1);
  EXPECT_EQ(to.GetAttr<int>("both"), 1);
  EXPECT_TRUE(to.HasAttr("axis") && !to.HasAttr("epsilon"));
}

TEST(JSONNode, RoundTrip) {
  JSONGraphNode node("nn.conv2d", "kernel", {{0, 0}, {3, 1}}, 2);
  node.SetAttr("shape", Shapes{{1, -1}, {}});
  node.SetAttr("dtype", Strings{"float32", "int8"});
  node.SetAttr("odd", "a \"quoted\" \\ text\twith\nlines");
  node.SetAttr("none", "");
  node.SetAttr("empty", Strings{});
  JSONGraphNode back = Load(Save(node));
  EXPECT_EQ(Save(back), Save(node));
  EXPECT_EQ(back.GetOpName(), "nn.conv2d");
  EXPECT_EQ(back.GetOpType(), "kernel");
  EXPECT_EQ(back.GetNumOutput(), 2U);
  EXPECT_EQ(back.GetNumInput(), 2U);
  EXPECT_TRUE(!back.IsLeaf());
  ASSERT_EQ(back.GetInputs().size(), 2U);
  EXPECT_EQ(back.GetInputs()[1].id_, 3U);
  EXPECT_EQ(back.GetInputs()[1].index_, 1U);
  EXPECT_EQ(back.GetAttr<std::string>("odd"), "a \"quoted\" \\ text\twith\nlines");
  EXPECT_EQ(back.GetAttr<std::string>("none"), "");
  EXPECT_EQ(back.GetAttr<Strings>("empty"), Strings{});
  EXPECT_EQ(back.GetOpShape(), (Shapes{{1, -1}, {}}));
}

TEST(JSONNode, LeavesAreWrittenAsOtherBackendsExpect) {
  JSONGraphNode leaf("x", "input");
  leaf.SetAttr("shape", Shapes{{2}});
  const std::string text = Save(leaf);
  EXPECT_TRUE(text.find("inputs") == std::string::npos);
  EXPECT_TRUE(text.find("num_outputs") == std::string::npos);
  leaf.SetNumOutput(3);
  EXPECT_EQ(Load(Save(leaf)).GetNumOutput(), 3U);
  EXPECT_TRUE(leaf.IsLeaf());
}

TEST(JSONNode, AttributesAreSorted) {
  JSONGraphNode one("a", "kernel"), two("a", "kernel");
  one.SetAttr("x", 1);
  one.SetAttr("b", 2);
  two.SetAttr("b", 2);
  two.SetAttr("x", 1);
  EXPECT_EQ(Save(one), Save(two));
}

TEST(JSONNode, CountsDoNotDependOnTheOrderOfKeys) {
  JSONGraphNode node = Load(R"({"attrs": {}, "inputs": [[0, 0], [1, 0]], "name": "a",
                                "op": "kernel"})");
  EXPECT_EQ(node.GetNumInput(), 2U);
  EXPECT_EQ(node.GetNumOutput(), 1U);
}

TEST(JSONNode, RefusesMalformedText) {
  EXPECT_THROWS(Load(R"({"name": "a", "attrs": {}})"), "no \"op\"");
  EXPECT_THROWS(Load(R"({"op": "kernel", "attrs": {}})"), "no \"name\"");
  EXPECT_THROWS(Load(R"({"op": "kernel", "name": "a"})"), "no \"attrs\"");
  EXPECT_THROWS(Load(R"({"op": "input", "op": "input", "name": "a", "attrs": {}})"), "twice");
  EXPECT_THROWS(Load(R"({"op": "input", "name": "a", "attrs": {}, "extra": 1})"), "\"extra\"");
  EXPECT_THROWS(Load(R"({"op": "input", "name": 1, "attrs": {}})"), "Expect");
  EXPECT_THROWS(Load(R"({"op": "kernel", "name": "a", "inputs": [[-1, 0, 0]], "attrs": {}})"),
                "-1");
  EXPECT_THROWS(Load(R"({"op": "kernel", "name": "a", "inputs": [[0]], "attrs": {}})"),
                "[node, index, version]");
  EXPECT_THROWS(
      Load(R"({"op": "kernel", "name": "a", "inputs": [[4294967296, 0, 0]], "attrs": {}})"),
      "4294967296");
  EXPECT_THROWS(Load(R"({"op": "kernel", "name": "a", "inputs": [0, 0, 0], "attrs": {}})"),
                "Expect");
  EXPECT_THROWS(KernelWith(R"("axis": "1")"), "Expect");
  EXPECT_THROWS(KernelWith(R"("axis": [[1]])"), "Expect");
  EXPECT_THROWS(KernelWith(R"("axis": {"a": 1})"), "Expect");
  EXPECT_THROWS(KernelWith(R"("axis": null)"), "Expect");
  EXPECT_THROWS(KernelWith(R"("axis": [["\u0041"]])"), "escape");
  EXPECT_THROWS(KernelWith(R"("axis": [["1"]], "axis": [["2"]])"), "\"axis\" appears twice");
  EXPECT_THROWS(KernelWith(R"("num_outputs": 1)"), "Expect");
  EXPECT_THROWS(KernelWith(R"("num_outputs": "-1")"), "\"num_outputs\"", "\"-1\"");
  EXPECT_THROWS(KernelWith(R"("num_outputs": "1", "num_outputs": "1")"), "twice");
  EXPECT_THROWS(KernelWith(R"("shape": [[["1"]]])"), "Expect number");
  EXPECT_THROWS(KernelWith(R"("shape": [[[1.5]]])"), "Error");
  EXPECT_THROWS(KernelWith(R"("shape": [[1, 2]])"), "Expect");
  EXPECT_THROWS(KernelWith(R"("shape": [[[1]], [[2]]])"), "one list");
  EXPECT_THROWS(KernelWith(R"("shape": [[[99999999999999999999]]])"), "Expect number");
}

TEST(JSONNode, RefusesKeysThatCannotBeWritten) {
  JSONGraphNode node("a", "kernel");
  node.SetAttr("a\"b", 1);
  EXPECT_THROWS(Save(node), "cannot be written");
}

}  // namespace json_test::node
