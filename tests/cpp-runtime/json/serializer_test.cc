// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/json/serializer_test.cc
 * \brief Relay functions become JSON graphs: expressions, names of constants, errors.
 */
#include <tvm/relay/analysis.h>
#include <tvm/relay/parser.h>
#include <tvm/relay/transform.h>

#include <algorithm>

#include "src/relay/backend/contrib/codegen_json/codegen_json.h"
#include "src/relay/backend/contrib/dnnl/json_codegen.h"
#include "src/runtime/contrib/json/json_graph_check.h"
#include "tests/cpp-runtime/harness/test.h"

namespace json_test::serializer {

using tvm::relay::backend::contrib::ConstantNaming;
using tvm::relay::backend::contrib::JSONSerializer;
using tvm::runtime::NDArray;
using tvm::runtime::json::JSONGraph;
using tvm::runtime::json::JSONGraphNode;
using tvm::runtime::json::JSONGraphNodeEntry;
using Shapes = std::vector<std::vector<int64_t>>;
using Strings = std::vector<std::string>;

/*! \brief Parse and type the function @main. */
tvm::relay::Function Parse(const std::string& main, const tvm::relay::MetaTable& meta = {}) {
  tvm::IRModule mod = tvm::relay::ParseModule("test", "#[version = \"0.0.5\"]\n" + main, {}, meta);
  return tvm::Downcast<tvm::relay::Function>(
      tvm::relay::transform::InferType()(mod)->Lookup("main"));
}

/*! \brief A serialised function. */
struct Serialized {
  explicit Serialized(const tvm::relay::Function& func,
                      ConstantNaming naming = ConstantNaming::kAuto)
      : serializer("sym", func, naming) {
    serializer.serialize();
    json = serializer.GetJSON();
    graph = tvm::runtime::json::ParseJSONGraph("sym", json);
    tvm::runtime::json::CheckJSONGraph("sym", graph, serializer.const_names());
    for (const tvm::runtime::String& name : serializer.const_names()) names.push_back(name);
  }
  explicit Serialized(const std::string& main) : Serialized(Parse(main)) {}

  /*! \brief "add(0.0, 1.0)": a node and what it reads. */
  std::string Text(size_t nid) const {
    const JSONGraphNode& node = graph.nodes.at(nid);
    std::string text = node.GetOpName();
    if (node.IsLeaf()) return text;
    return text + "(" + Text(node.GetInputs()) + ")";
  }

  static std::string Text(const std::vector<JSONGraphNodeEntry>& entries) {
    std::string text;
    for (const JSONGraphNodeEntry& entry : entries) {
      if (!text.empty()) text += ", ";
      text += std::to_string(entry.id_) + "." + std::to_string(entry.index_);
    }
    return text;
  }

  Strings Nodes() const {
    Strings texts;
    for (size_t nid = 0; nid < graph.nodes.size(); ++nid) texts.push_back(Text(nid));
    return texts;
  }

  JSONSerializer serializer;
  std::string json;
  JSONGraph graph;
  Strings names;
};

TEST(JSONSerializer, CallsAndConstants) {
  Serialized s(R"(def @main(%x: Tensor[(2, 3), float32], %y: Tensor[(3), float32]) {
    add(multiply(%x, %y), 2f)
  })");
  EXPECT_EQ(s.Nodes(), (Strings{"x", "y", "multiply(0.0, 1.0)", "sym_const_0", "add(2.0, 3.0)"}));
  EXPECT_EQ(s.graph.arg_nodes, (std::vector<uint32_t>{0, 1, 3}));
  EXPECT_EQ(s.Text(s.graph.heads), "4.0");
  EXPECT_EQ(s.graph.symbol, "sym");
  EXPECT_EQ(s.graph.nodes[0].GetOpType(), "input");
  EXPECT_EQ(s.graph.nodes[3].GetOpType(), "const");
  EXPECT_EQ(s.graph.nodes[3].GetOpShape(), (Shapes{{}}));
  EXPECT_EQ(s.graph.nodes[4].GetOpShape(), (Shapes{{2, 3}}));
  EXPECT_EQ(s.names, Strings{"sym_const_0"});
  const auto constants = s.serializer.const_name_to_constant();
  ASSERT_EQ(constants.size(), 1U);
  EXPECT_EQ(*static_cast<const float*>(constants.at("sym_const_0")->data), 2.0f);
}

TEST(JSONSerializer, SharedExpressionsAreOneNode) {
  Serialized s(R"(def @main(%x: Tensor[(2), float32]) {
    %0 = nn.relu(%x);
    add(%0, %0)
  })");
  EXPECT_EQ(s.Nodes(), (Strings{"x", "nn.relu(0.0)", "add(1.0, 1.0)"}));
}

TEST(JSONSerializer, SharedConstantIsOneNode) {
  tvm::relay::Constant c(NDArray::Empty({2}, {kDLFloat, 32, 1}, {kDLCPU, 0}));
  Serialized s(Parse(R"(def @main(%x: Tensor[(2), float32]) {
    add(multiply(%x, meta[relay.Constant][0]), meta[relay.Constant][0])
  })",
                     {{"relay.Constant", {c}}}));
  EXPECT_EQ(s.Nodes(), (Strings{"x", "sym_const_0", "multiply(0.0, 1.0)", "add(2.0, 1.0)"}));
  EXPECT_EQ(s.names, Strings{"sym_const_0"});
}

TEST(JSONSerializer, TuplesAndSeveralHeads) {
  Serialized s(R"(def @main(%x: Tensor[(4), float32]) {
    %0 = split(%x, indices_or_sections=2);
    %1 = (%0.1, %x);
    (concatenate((%0.0, %1.0)), %1, %0.0)
  })");
  EXPECT_EQ(s.Nodes(), (Strings{"x", "split(0.0)", "concatenate(1.0, 1.1)"}));
  EXPECT_EQ(s.Text(s.graph.heads), "2.0, 1.1, 0.0, 1.0");
  EXPECT_EQ(s.graph.nodes[1].GetNumOutput(), 2U);
  EXPECT_EQ(s.graph.nodes[1].GetOpShape(), (Shapes{{2}, {2}}));
  EXPECT_EQ(s.graph.nodes[1].GetAttr<Strings>("dtype"), (Strings{"float32", "float32"}));
  EXPECT_EQ(s.graph.node_row_ptr, (std::vector<uint32_t>{0, 1, 3, 4}));
}

TEST(JSONSerializer, NestedTuplesAreFlat) {
  Serialized s(R"(def @main(%t: ((Tensor[(1), float32], Tensor[(2), int8]), Tensor[(3), int64])) {
    %0 = %t.0;
    %1 = (%0, %t.1, %t);
    %2 = %1.2;
    %3 = %2.0;
    (%0.1, %t.1, %3.1, %1.1)
  })");
  EXPECT_EQ(s.Nodes(), Strings{"t"});
  EXPECT_EQ(s.graph.nodes[0].GetNumOutput(), 3U);
  EXPECT_EQ(s.graph.nodes[0].GetOpShape(), (Shapes{{1}, {2}, {3}}));
  EXPECT_EQ(s.Text(s.graph.heads), "0.1, 0.2, 0.1, 0.2");
}

TEST(JSONSerializer, MultiOutputCall) {
  Serialized s(R"(def @main(%x: Tensor[(1, 2, 4, 4), float32], %g: Tensor[(2), float32],
                            %b: Tensor[(2), float32], %m: Tensor[(2), float32],
                            %v: Tensor[(2), float32]) {
    %0 = nn.batch_norm(%x, %g, %b, %m, %v, epsilon=0.001f);
    nn.relu(%0.0)
  })");
  EXPECT_EQ(s.Text(5), "nn.batch_norm(0.0, 1.0, 2.0, 3.0, 4.0)");
  EXPECT_EQ(s.graph.nodes[5].GetNumOutput(), 3U);
  EXPECT_EQ(s.Text(6), "nn.relu(5.0)");
}

TEST(JSONSerializer, LetChain) {
  std::string body = "let %v0 = nn.relu(%x);\n";
  for (int i = 1; i < 2000; ++i) {
    body += "let %v" + std::to_string(i) + " = add(%v" + std::to_string(i - 1) + ", %x);\n";
  }
  Serialized s("def @main(%x: Tensor[(2), float32]) {\n" + body + "%v1999\n}");
  EXPECT_EQ(s.graph.nodes.size(), 2001U);
  EXPECT_EQ(s.Text(2000), "add(1999.0, 0.0)");
  EXPECT_EQ(s.Text(s.graph.heads), "2000.0");
}

TEST(JSONSerializer, SymbolicShapes) {
  Serialized s(R"(def @main(%x: Tensor[(?, 3), float32]) { nn.relu(%x) })");
  EXPECT_EQ(s.graph.nodes[0].GetOpShape(), (Shapes{{-1, 3}}));
  EXPECT_EQ(s.graph.nodes[1].GetOpShape(), (Shapes{{-1, 3}}));
}

const char kComposite[] = R"(def @main(%x: Tensor[(4), float32]) {
    %0 = fn (%p: Tensor[(4), float32], %q: Tensor[(), float32], Composite="a.add_relu",
             PartitionedFromPattern="add_nn.relu_") -> Tensor[(4), float32] {
      nn.relu(add(multiply(%p, %q), 1f))
    };
    add(%0(%x, 2f), 3f)
  })";

TEST(JSONSerializer, Composite) {
  Serialized s((std::string(kComposite)));
  // The plain visitor meets the constant in the body first.
  EXPECT_EQ(s.Nodes(), (Strings{"x", "sym_const_1", "sym_const_0", "a.add_relu(0.0, 1.0, 2.0)",
                                "sym_const_2", "add(3.0, 4.0)"}));
  EXPECT_EQ(s.graph.nodes[3].GetAttr<Strings>("PartitionedFromPattern"), Strings{"add_nn.relu_"});
  EXPECT_EQ(s.names, (Strings{"sym_const_1", "sym_const_0", "sym_const_2"}));
}

/*! \brief What TVM's default updater does: name each constant by the visit of a plain visitor. */
class PlainUpdater : public tvm::relay::ExprVisitor {
 public:
  using tvm::relay::ExprVisitor::VisitExpr_;
  void VisitExpr_(const tvm::relay::ConstantNode* constant) final {
    values["sym_const_" + std::to_string(values.size())] = constant->data;
  }
  std::unordered_map<std::string, NDArray> values;
};

TEST(JSONSerializer, NamesAgreeWithTheUpdater) {
  tvm::relay::Function func = Parse(kComposite);
  PlainUpdater updater;
  updater(func);
  Serialized s(func);
  for (const auto& item : s.serializer.const_name_to_constant()) {
    EXPECT_TRUE(updater.values.at(item.first).same_as(item.second));
  }
}

/*! \brief A backend that looks at the arguments of composites only. */
class SkipsBodies : public JSONSerializer {
 public:
  using JSONSerializer::JSONSerializer;

 private:
  using JSONSerializer::VisitExpr_;
  Entries VisitExpr_(const tvm::relay::CallNode* call) final {
    if (call->op->IsInstance<tvm::OpNode>()) return JSONSerializer::VisitExpr_(call);
    Entries inputs;
    for (const auto& arg : call->args) {
      for (const auto& entry : VisitExpr(arg)) inputs.push_back(entry);
    }
    auto node = std::make_shared<JSONGraphNode>("mine", "kernel", inputs, 1);
    SetCallNodeAttribute(node, call);
    return AddNode(node, tvm::GetRef<tvm::relay::Expr>(call));
  }
};

Strings ConstNames(const tvm::relay::Function& func, ConstantNaming naming) {
  SkipsBodies serializer("sym", func, naming);
  serializer.serialize();
  Strings names;
  for (const tvm::runtime::String& name : serializer.const_names()) names.push_back(name);
  return names;
}

TEST(JSONSerializer, ConstantNaming) {
  tvm::relay::Function func = Parse(kComposite);
  EXPECT_EQ(ConstNames(func, ConstantNaming::kUpdaterOrder),
            (Strings{"sym_const_1", "sym_const_2"}));
  EXPECT_EQ(ConstNames(func, ConstantNaming::kVisitOrder), (Strings{"sym_const_0", "sym_const_1"}));
  EXPECT_EQ(ConstNames(func, ConstantNaming::kAuto), (Strings{"sym_const_1", "sym_const_2"}));
  // Backends that number the constants by the visit are those with an updater of their own.
  func = WithAttr(std::move(func), tvm::relay::attr::kCompiler, tvm::runtime::String("json_test"));
  EXPECT_EQ(ConstNames(func, ConstantNaming::kAuto), (Strings{"sym_const_1", "sym_const_2"}));
  tvm::runtime::Registry::Register("relay.ext.json_test.constant_updater", true)
      .set_body([](tvm::runtime::TVMArgs, tvm::runtime::TVMRetValue*) {});
  EXPECT_EQ(ConstNames(func, ConstantNaming::kAuto), (Strings{"sym_const_0", "sym_const_1"}));
  tvm::runtime::Registry::Remove("relay.ext.json_test.constant_updater");
}

TEST(JSONSerializer, SameFunctionGivesTheSameText) {
  EXPECT_EQ(Serialized((std::string(kComposite))).json, Serialized((std::string(kComposite))).json);
}

TEST(JSONSerializer, Errors) {
  EXPECT_THROWS(Serialized(R"(def @main(%x: Tensor[(2), float32]) {
    let %f = fn (%p: Tensor[(2), float32]) -> Tensor[(2), float32] { nn.relu(%p) };
    %f(%x)
  })"),
                "'sym'", "relay.Function");
  EXPECT_THROWS(Serialized(R"(def @main(%x: Tensor[(2), float32]) {
    %0 = fn (%p: Tensor[(2), float32]) -> Tensor[(2), float32] { nn.relu(%p) };
    %0(%x)
  })"),
                "'sym'", "not a composite");
  EXPECT_THROWS(Serialized(R"(def @main(%c: Tensor[(), bool], %x: Tensor[(2), float32]) {
    if (%c) { nn.relu(%x) } else { %x }
  })"),
                "'sym'", "relay.If");
  EXPECT_THROWS(Serialized(R"(def @main(%f: fn (Tensor[(2), float32]) -> Tensor[(2), float32],
                                        %x: Tensor[(2), float32]) { %f(%x) })"),
                "'sym'");
  tvm::relay::Var free("free", tvm::TensorType({2}, tvm::DataType::Float(32)));
  EXPECT_THROWS(Serialized(tvm::relay::Function({}, free, {}, {})), "free variable 'free'");
  JSONSerializer not_a_function("sym", free);
  EXPECT_THROWS(not_a_function.serialize(), "expects a function");
}

TEST(DNNLSerializer, NamesThePythonThatReadsOtherComposites) {
  const auto function = Parse(R"(def @main(%x: Tensor[(4), float32]) {
    %0 = fn (%p: Tensor[(4), float32], Composite="dnnl.any") { nn.relu(exp(%p)) };
    %0(%x)
  })");
  const auto partition = tvm::WithAttr(function, tvm::attr::kGlobalSymbol, tvm::String("sym"));
  EXPECT_THROWS(tvm::relay::contrib::dnnl::SerializePartition(partition), "dnnl.any",
                "tvm.relay.op.contrib.dnnl", "partition_for_dnnl");
}

}  // namespace json_test::serializer
