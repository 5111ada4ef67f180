// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/dnnl/core/flat_attrs_test.cc
 * \brief The attributes of fused ops, under names with dots and nested.
 */
#include "src/runtime/contrib/dnnl/core/flat_attrs.h"

#include <string>
#include <vector>

#include "src/runtime/contrib/dnnl/core/node_reader.h"
#include "tests/cpp-runtime/harness/test.h"

namespace dnnl_test::flat_attrs {

using namespace tvm::runtime::contrib::dnnl_backend;  // NOLINT(build/namespaces)
using tvm::runtime::json::JSONAttr;
using Texts = std::vector<std::string>;

Attrs FlatExample() {
  return {{"root_op", "nn.conv2d"},
          {"strides", Texts{"1", "1"}},
          {"post_ops", Texts{"add", "nn.relu", "qnn.quantize"}},
          {"post_ops.0.operand", "2"},
          {"post_ops.0.is_bias", "1"},
          {"post_ops.2.scale", "5"},
          {"post_ops.2.zero_point", "6"},
          {"dequantize.1.scale", "3"},
          {"dequantize.1.zero_point", "4"},
          {"dequantize.1.axis", "-1"}};
}

Node NodeWith(Attrs attrs) {
  const std::vector<Entry> inputs = {{0, 0}, {1, 0}, {2, 0}, {3, 0}, {4, 0}, {5, 0}, {6, 0}};
  return {9, "dnnl.fused", std::move(attrs), inputs, {{{2}, {kDLFloat, 32, 1}}}};
}

JSONAttr ListOf(JSONAttr::Object object) {
  return JSONAttr::Of(JSONAttr::List{JSONAttr::Of(std::move(object))});
}

TEST(DNNLFlatAttrs, AreNestedAndFlattened) {
  Attrs attrs = FlatExample();
  NestAttrs(&attrs);
  EXPECT_EQ(attrs.at("post_ops").Repr(),
            R"([{"is_bias": "1", "op": "add", "operand": "2"}, {"op": "nn.relu"}, )"
            R"({"op": "qnn.quantize", "scale": "5", "zero_point": "6"}])");
  EXPECT_EQ(attrs.at("dequantize").Repr(),
            R"([{"axis": "-1", "input": 1, "scale": "3", "zero_point": "4"}])");
  EXPECT_EQ(attrs.size(), 4U);
  EXPECT_TRUE(FlatAttrs(attrs) == FlatExample());
  Attrs again = attrs;
  NestAttrs(&again);
  EXPECT_TRUE(again == attrs);
}

TEST(DNNLFlatAttrs, OtherNamesStay) {
  Attrs attrs = {{"post_ops.x.alpha", "1"},
                 {"post_ops.1", "1"},
                 {"post_ops.-1.alpha", "1"},
                 {"dequantize.99999999999.scale", "1"}};
  const Attrs before = attrs;
  NestAttrs(&attrs);
  EXPECT_TRUE(attrs == before);
  attrs = {{"post_ops", "nn.relu"}, {"post_ops.7.alpha", "1"}, {"post_ops.0.op", "tanh"}};
  NestAttrs(&attrs);
  EXPECT_TRUE(attrs == (Attrs{{"post_ops", ListOf({{"op", "nn.relu"}})}}));
}

TEST(DNNLFlatAttrs, ReaderSeesTheNestedForm) {
  Attrs attrs = FlatExample();
  NestAttrs(&attrs);
  const Node node = NodeWith(attrs);
  const NodeReader reader(node, "main");
  EXPECT_EQ(reader.NumPostOps(), 3);
  EXPECT_EQ(reader.NumRootInputs(), 2);
  EXPECT_EQ(reader.PostOp(0).OpName(), "add");
  EXPECT_EQ(reader.PostOp(0).Operand(), 2);
  EXPECT_TRUE(reader.IsDequantized(1) && !reader.IsDequantized(0) && !reader.IsDequantized(7));
  EXPECT_EQ(reader.Dequantization(1).Get<int>("axis"), -1);
  EXPECT_TRUE(!reader.InFloat32().IsDequantized(1) && reader.IsQuantized());
  EXPECT_EQ(reader.WithoutQuantization().NumPostOps(), 2);
  EXPECT_THROWS(reader.PostOp(0).Get<std::string>("axis"), "main, node 9 add of dnnl.fused",
                "attribute post_ops.0.axis is missing");
}

TEST(DNNLFlatAttrs, ReaderNamesWhatIsMalformed) {
  const auto read = [](const std::string& key, const JSONAttr& value) {
    const Node node = NodeWith({{key, value}});
    NodeReader(node, "main");
  };
  const JSONAttr::Object nothing;
  const JSONAttr values[] = {
      "nn.relu", 7, true, Texts{"nn.relu", "tanh"}, JSONAttr::Of(nothing), ListOf(nothing)};
  for (const JSONAttr& value : values) {
    EXPECT_THROWS(read("post_ops", value), "main, node 9 dnnl.fused",
                  "attribute 'post_ops' is " + value.Repr(), "each with \"op\"");
    EXPECT_THROWS(read("dequantize", value), "attribute 'dequantize' is " + value.Repr(),
                  "each with \"input\"");
  }
  EXPECT_THROWS(read("post_ops", ListOf({{"op", JSONAttr::Of(nothing)}})), "each with \"op\"");
  EXPECT_THROWS(read("post_ops", ListOf({{"op", "add"}, {"operand", ListOf(nothing)}})),
                "main, node 9 add of dnnl.fused", "attribute 'post_ops.0.operand' is [{}]");
  for (int input : {-1, 7}) {
    EXPECT_THROWS(read("dequantize", ListOf({{"input", input}})),
                  "'dequantize' names input " + std::to_string(input) + ", but there are 7");
  }
  const JSONAttr one = JSONAttr::Of(JSONAttr::Object{{"input", 1}});
  EXPECT_THROWS(read("dequantize", JSONAttr::Of(JSONAttr::List{one, one})), "input 1 twice");
  // The scale is not there.
  const Node node = NodeWith({{"dequantize", JSONAttr::Of(JSONAttr::List{one})}});
  EXPECT_THROWS(NodeReader(node, "main").Dequantization(1), "node 9 qnn.dequantize of dnnl.fused",
                "attribute dequantize.1.scale is missing");
}

}  // namespace dnnl_test::flat_attrs
