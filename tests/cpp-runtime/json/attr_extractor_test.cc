// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/json/attr_extractor_test.cc
 * \brief Every kind of attribute that a Relay op can have becomes text in a JSON graph node.
 */
#include <tvm/ir/attrs.h>
#include <tvm/relay/attrs/nn.h>
#include <tvm/tir/op.h>
#include <tvm/tir/var.h>

#include <limits>

#include "src/relay/backend/contrib/codegen_json/op_attr_extractor.h"
#include "tests/cpp-runtime/harness/test.h"

namespace tvm {
namespace json_test {

/*! \brief One field of each C++ type that an attribute can have. */
struct AllKindsAttrs : public AttrsNode<AllKindsAttrs> {
  bool flag;
  int small;
  int64_t large;
  uint64_t huge;
  double real;
  std::string text;
  String string;
  DataType dtype;
  ObjectRef object;

  TVM_DECLARE_ATTRS(AllKindsAttrs, "test.attrs.AllKindsAttrs") {
    TVM_ATTR_FIELD(flag);
    TVM_ATTR_FIELD(small);
    TVM_ATTR_FIELD(large);
    TVM_ATTR_FIELD(huge);
    TVM_ATTR_FIELD(real);
    TVM_ATTR_FIELD(text);
    TVM_ATTR_FIELD(string);
    TVM_ATTR_FIELD(dtype);
    TVM_ATTR_FIELD(object);
  }
};
TVM_REGISTER_NODE_TYPE(AllKindsAttrs);

}  // namespace json_test
}  // namespace tvm

namespace json_test::attr_extractor {

using tvm::Array;
using tvm::FloatImm;
using tvm::Integer;
using tvm::Map;
using tvm::ObjectRef;
using tvm::PrimExpr;
using tvm::String;
using tvm::json_test::AllKindsAttrs;
using tvm::relay::backend::contrib::OpAttrExtractor;
using tvm::runtime::json::JSONGraphNode;
using Shapes = std::vector<std::vector<int64_t>>;
using Strings = std::vector<std::string>;

JSONGraphNode Extract(const tvm::Attrs& attrs) {
  auto node = std::make_shared<JSONGraphNode>("op", "kernel");
  OpAttrExtractor(node).Extract(const_cast<tvm::BaseAttrsNode*>(attrs.get()));
  return *node;
}

/*! \brief The node with one attribute, "object". */
JSONGraphNode ExtractObject(const ObjectRef& object) {
  auto attrs = tvm::runtime::make_object<AllKindsAttrs>();
  attrs->flag = true;
  attrs->small = -5;
  attrs->large = std::numeric_limits<int64_t>::min();
  attrs->huge = std::numeric_limits<uint64_t>::max();
  attrs->real = 0.1;
  attrs->text = "NCHW";
  attrs->string = "a \"b\"";
  attrs->dtype = tvm::DataType::BFloat(16);
  attrs->object = object;
  return Extract(tvm::Attrs(attrs));
}

std::string TextOf(const ObjectRef& object) {
  return ExtractObject(object).GetAttr<std::string>("object");
}

TEST(OpAttrExtractor, PlainFields) {
  JSONGraphNode node = ExtractObject(ObjectRef());
  EXPECT_EQ(node.GetAttr<std::string>("flag"), "1");
  EXPECT_EQ(node.GetAttr<int>("small"), -5);
  EXPECT_EQ(node.GetAttr<int64_t>("large"), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(node.GetAttr<uint64_t>("huge"), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(node.GetAttr<double>("real"), 0.1);
  EXPECT_EQ(node.GetAttr<std::string>("text"), "NCHW");
  EXPECT_EQ(node.GetAttr<std::string>("string"), "a \"b\"");
  EXPECT_EQ(node.GetAttr<std::string>("dtype"), "bfloat16");
  EXPECT_EQ(node.GetAttr<std::string>("object"), "");
}

TEST(OpAttrExtractor, Scalars) {
  EXPECT_EQ(TextOf(Integer(7)), "7");
  EXPECT_EQ(TextOf(tvm::IntImm(tvm::DataType::Int(64), -1)), "-1");
  EXPECT_EQ(TextOf(tvm::Bool(true)), "1");
  EXPECT_EQ(TextOf(tvm::Bool(false)), "0");
  EXPECT_EQ(TextOf(FloatImm(tvm::DataType::Float(32), 0.5)), "0.5");
  EXPECT_EQ(TextOf(tvm::tir::StringImm("x")), "x");
#ifdef TVM_JSON_HAS_BOXED_PRIMITIVES
  EXPECT_EQ(TextOf(tvm::runtime::Int(7)), "7");
  EXPECT_EQ(TextOf(tvm::runtime::Bool(true)), "1");
  EXPECT_EQ(TextOf(tvm::runtime::Float(0.5)), "0.5");
#endif
}

TEST(OpAttrExtractor, Arrays) {
  EXPECT_EQ(ExtractObject(Array<Integer>{1, 2}).GetAttr<Strings>("object"), (Strings{"1", "2"}));
  EXPECT_EQ(ExtractObject(Array<Integer>{}).GetAttr<Strings>("object"), Strings{});
  EXPECT_EQ(ExtractObject(Array<String>{"a", ""}).GetAttr<Strings>("object"), (Strings{"a", ""}));
  EXPECT_EQ(ExtractObject(Array<FloatImm>{FloatImm(tvm::DataType::Float(32), 0.25)})
                .GetAttr<std::vector<double>>("object"),
            std::vector<double>{0.25});
  EXPECT_EQ(ExtractObject(Array<Array<Integer>>{{0, 0}, {1, 2}, {}}).GetAttr<Shapes>("object"),
            (Shapes{{0, 0}, {1, 2}, {}}));
  EXPECT_EQ(
      ExtractObject(Array<ObjectRef>{Array<Integer>{1, 2}, Integer(3)}).GetAttr<Shapes>("object"),
      (Shapes{{1, 2}, {3}}));
  EXPECT_EQ(ExtractObject(Array<ObjectRef>{Integer(1), ObjectRef()}).GetAttr<Strings>("object"),
            (Strings{"1", ""}));
  EXPECT_EQ(ExtractObject(tvm::runtime::ShapeTuple({4, 5})).GetAttr<std::vector<int>>("object"),
            (std::vector<int>{4, 5}));
}

TEST(OpAttrExtractor, SymbolicExpressions) {
  tvm::tir::Var n("n", tvm::DataType::Int(64));
  EXPECT_EQ(TextOf(n), "n");
  EXPECT_EQ(TextOf(tvm::tir::Any()), "?");
  EXPECT_TRUE(TextOf(n * 2).find("n") != std::string::npos);
  EXPECT_EQ(ExtractObject(Array<PrimExpr>{1, n}).GetAttr<Strings>("object"), (Strings{"1", "n"}));
}

TEST(OpAttrExtractor, OtherObjects) {
  const std::string map = TextOf(Map<String, ObjectRef>{{"k", Integer(3)}});
  EXPECT_TRUE(map.find("k") != std::string::npos && map.find("3") != std::string::npos);
  EXPECT_TRUE(!TextOf(tvm::TensorType({2}, tvm::DataType::Float(32))).empty());
  EXPECT_TRUE(!TextOf(tvm::Op::Get("nn.relu")).empty());
}

TEST(OpAttrExtractor, ConstantsAreNotWritten) {
  auto data = tvm::runtime::NDArray::Empty({2, 3}, {kDLFloat, 32, 1}, {kDLCPU, 0});
  EXPECT_EQ(TextOf(tvm::relay::Constant(data)), "tensor float32[2, 3]");
  EXPECT_EQ(TextOf(data), "tensor float32[2, 3]");
}

TEST(OpAttrExtractor, DictAttrs) {
  JSONGraphNode node = Extract(
      tvm::DictAttrs(Map<String, ObjectRef>{{"axis", Integer(1)}, {"pads", Array<Integer>{1, 2}}}));
  EXPECT_EQ(node.GetAttr<int>("axis"), 1);
  EXPECT_EQ(node.GetAttr<std::vector<int>>("pads"), (std::vector<int>{1, 2}));
}

TEST(OpAttrExtractor, NoAttributes) {
  JSONGraphNode node("op", "kernel");
  EXPECT_TRUE(!Extract(tvm::Attrs()).HasAttr("axis"));
}

TEST(OpAttrExtractor, RelayAttributes) {
  auto attrs = tvm::runtime::make_object<tvm::relay::PadAttrs>();
  attrs->pad_width = {{0, 0}, {1, 2}};
  attrs->pad_mode = "constant";
  JSONGraphNode node = Extract(tvm::Attrs(attrs));
  EXPECT_EQ(node.GetAttr<Shapes>("pad_width"), (Shapes{{0, 0}, {1, 2}}));
  EXPECT_EQ(node.GetAttr<std::string>("pad_mode"), "constant");
}

}  // namespace json_test::attr_extractor
