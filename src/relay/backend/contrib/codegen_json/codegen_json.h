/*
 * Licensed to the Apache Software Foundation (ASF) under one
 * or more contributor license agreements.  See the NOTICE file
 * distributed with this work for additional information
 * regarding copyright ownership.  The ASF licenses this file
 * to you under the Apache License, Version 2.0 (the
 * "License"); you may not use this file except in compliance
 * with the License.  You may obtain a copy of the License at
 *
 *   http://www.apache.org/licenses/LICENSE-2.0
 *
 * Unless required by applicable law or agreed to in writing,
 * software distributed under the License is distributed on an
 * "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
 * KIND, either express or implied.  See the License for the
 * specific language governing permissions and limitations
 * under the License.
 */

/*!
 * \file src/relay/backend/contrib/codegen_json/codegen_json.h
 * \brief Serialises a Relay function to a JSON graph. Any backend may derive from it.
 */
#ifndef TVM_RELAY_BACKEND_CONTRIB_CODEGEN_JSON_CODEGEN_JSON_H_
#define TVM_RELAY_BACKEND_CONTRIB_CODEGEN_JSON_CODEGEN_JSON_H_

#include <tvm/ir/type.h>
#include <tvm/relay/expr.h>
#include <tvm/relay/expr_functor.h>
#include <tvm/relay/function.h>
#include <tvm/relay/type.h>
#include <tvm/runtime/container/array.h>
#include <tvm/runtime/container/string.h>
#include <tvm/runtime/ndarray.h>
#include <tvm/tir/expr.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../../../../runtime/contrib/json/json_graph.h"
#include "../../../../runtime/contrib/json/json_node.h"
#include "constant_names.h"
#include "op_attr_extractor.h"

namespace tvm {
namespace relay {
namespace backend {
namespace contrib {

/*!
 * \brief Serialises a Relay function.
 *
 * Each parameter, constant and call becomes a node; a visit of an expression returns the entries
 * that hold its value, one for each tensor in it. A tuple is the entries of its fields, so tuples
 * of tuples are flat. Expressions are visited once.
 *
 * A backend overrides VisitExpr_(const CallNode*) to name or merge calls its own way.
 */
class JSONSerializer
    : public ExprFunctor<std::vector<tvm::runtime::json::JSONGraphNodeEntry>(const Expr&)> {
 public:
  using JSONGraphNode = tvm::runtime::json::JSONGraphNode;
  using JSONGraphNodeEntry = tvm::runtime::json::JSONGraphNodeEntry;
  using Entries = std::vector<JSONGraphNodeEntry>;

  /*!
   * \brief Constructor.
   * \param symbol Name of the function in the compiled module.
   * \param expr The function.
   * \param naming How the constants are numbered. The default agrees with how TVM collects them.
   */
  JSONSerializer(const std::string& symbol, const Expr& expr,
                 ConstantNaming naming = ConstantNaming::kAuto)
      : symbol_(symbol), func_(expr) {
    if (ResolveConstantNaming(naming, expr) == ConstantNaming::kUpdaterOrder) {
      numbering_ = std::make_unique<ConstantNumbering>(expr);
    }
  }

  /*! \brief Visit the function. Call it once, before the getters. */
  void serialize() {
    const auto* func = func_.as<FunctionNode>();
    CHECK(func != nullptr) << Where() << " expects a function, got " << func_->GetTypeKey();
    for (const Var& param : func->params) {
      memo_[param] = AddNode(std::make_shared<JSONGraphNode>(param->name_hint(), "input"), param);
    }
    heads_ = VisitExpr(func->body);
  }

  /*! \brief The graph. */
  std::string GetJSON() const {
    const bool is_typed = FormatVersion() == tvm::runtime::json::kJSONGraphTyped;
    return is_typed ? tvm::runtime::json::WriteTypedJSONGraph(symbol_, nodes_, heads_)
                    : tvm::runtime::json::WriteJSONGraph(symbol_, nodes_, heads_);
  }

  /*! \brief The names of the constants that the graph uses, in the order of their nodes. */
  Array<String> const_names() const { return const_names_; }

  /*! \brief The constants that the graph uses. */
  std::unordered_map<std::string, runtime::NDArray> const_name_to_constant() const {
    return const_name_to_constant_;
  }

  /*! \brief The entries of an expression, from the first visit of it. */
  Entries VisitExpr(const Expr& expr) override {
    ICHECK(expr.defined());
    auto it = memo_.find(expr);
    if (it != memo_.end()) return it->second;
    Entries entries = ExprFunctor::VisitExpr(expr);
    memo_[expr] = entries;
    return entries;
  }

 protected:
  /*!
   * \brief The version of the format to write. TVM's own JSON runtimes read version 1; those that
   * derive from JSONRuntimeBase read both, and version 2 has typed and nested attributes.
   */
  virtual int64_t FormatVersion() const { return tvm::runtime::json::kJSONGraphRows; }

  /*! \brief The name of a constant. Change it only with an updater that gives the same names. */
  virtual std::string ConstantName(size_t number) const {
    return symbol_ + "_const_" + std::to_string(number);
  }

  /*!
   * \brief Add a node for an expression, with the shapes and types of its value.
   * \param node The node; the number of its outputs is set here.
   * \param expr The expression, typed.
   * \return The entries of the node, one for each tensor.
   */
  Entries AddNode(JSONGraphObjectPtr node, const Expr& expr) {
    std::vector<TensorType> types;
    // InferType may leave a dimension of a constant open: that of a bias of open channels is.
    const auto* constant = expr.as<ConstantNode>();
    FlattenType(constant ? constant->tensor_type() : expr->checked_type(), &types);
    std::vector<std::vector<int64_t>> shapes;
    std::vector<std::string> dtypes;
    for (const TensorType& type : types) {
      shapes.emplace_back();
      for (const PrimExpr& dim : type->shape) {
        const auto* known = dim.as<IntImmNode>();
        shapes.back().push_back(known ? known->value : -1);
      }
      dtypes.push_back(runtime::DLDataType2String(type->dtype));
    }
    node->SetAttr("shape", std::move(shapes));
    // A list also of one type, which a row of version 1 does not tell from a string.
    using tvm::runtime::json::JSONAttr;
    node->SetAttr("dtype", JSONAttr::Of(JSONAttr::List(dtypes.begin(), dtypes.end())));
    node->SetNumOutput(static_cast<uint32_t>(types.size()));

    const auto id = static_cast<uint32_t>(nodes_.size());
    nodes_.push_back(std::move(node));
    Entries entries;
    for (uint32_t i = 0; i < types.size(); ++i) entries.emplace_back(id, i);
    return entries;
  }

  /*!
   * \brief Set the attributes of a call: those of its op, or the pattern of a composite.
   * \param node The node to set them on.
   * \param call The call.
   */
  void SetCallNodeAttribute(JSONGraphObjectPtr node, const CallNode* call) {
    if (call->op->IsInstance<OpNode>()) {
      OpAttrExtractor(node).Extract(const_cast<BaseAttrsNode*>(call->attrs.get()));
    } else if (const auto* func = call->op.as<FunctionNode>()) {
      Optional<String> pattern = func->GetAttr<String>(attr::kPartitionedFromPattern);
      if (pattern) node->SetAttr(attr::kPartitionedFromPattern, std::string(pattern.value()));
    }
  }

  /*!
   * \brief A call of an op, or of a composite function, becomes one kernel.
   *
   * The kernel of a composite has the constants in its body as inputs after the arguments.
   */
  Entries VisitExpr_(const CallNode* call) override {
    std::string name;
    Entries inputs;
    for (const Expr& arg : call->args) Append(VisitExpr(arg), &inputs);
    if (const auto* op = call->op.as<OpNode>()) {
      name = op->name;
    } else if (const auto* func = call->op.as<FunctionNode>()) {
      Optional<String> composite = func->GetAttr<String>(attr::kComposite);
      CHECK(composite) << Where()
                       << " cannot serialise a call of a function that is not a composite";
      name = composite.value();
      for (const Constant& constant : ConstantsIn(func->body)) Append(VisitExpr(constant), &inputs);
    } else {
      LOG(FATAL) << Where() << " cannot serialise a call of " << call->op->GetTypeKey();
    }
    auto node = std::make_shared<JSONGraphNode>(name, "kernel", inputs);
    SetCallNodeAttribute(node, call);
    return AddNode(std::move(node), GetRef<Expr>(call));
  }

  Entries VisitExpr_(const VarNode* var) override {
    // Parameters and let-bound variables are in the memo before anything can refer to them.
    LOG(FATAL) << Where() << " found the free variable '" << var->name_hint() << "'";
    return {};
  }

  Entries VisitExpr_(const ConstantNode* constant) override {
    const std::string name =
        ConstantName(numbering_ ? (*numbering_)[constant] : const_names_.size());
    auto it = const_name_to_entries_.find(name);
    // A derived class may forget an entry of the memo; the node of a name stays the only one.
    if (it != const_name_to_entries_.end()) return it->second;
    const_names_.push_back(name);
    const_name_to_constant_[name] = constant->data;
    Entries entries =
        AddNode(std::make_shared<JSONGraphNode>(name, "const"), GetRef<Expr>(constant));
    const_name_to_entries_[name] = entries;
    return entries;
  }

  Entries VisitExpr_(const TupleNode* tuple) override {
    Entries entries;
    for (const Expr& field : tuple->fields) Append(VisitExpr(field), &entries);
    return entries;
  }

  Entries VisitExpr_(const TupleGetItemNode* get) override {
    const Entries entries = VisitExpr(get->tuple);
    const auto* type = get->tuple->checked_type().as<TupleTypeNode>();
    CHECK(type && get->index >= 0 && static_cast<size_t>(get->index) < type->fields.size())
        << Where() << " found item " << get->index << " of " << get->tuple->checked_type();
    // The fields before this one may be tuples themselves.
    std::vector<TensorType> before, up_to;
    for (int i = 0; i < get->index; ++i) FlattenType(type->fields[i], &before);
    up_to = before;
    FlattenType(type->fields[get->index], &up_to);
    ICHECK_LE(up_to.size(), entries.size())
        << Where() << ": a tuple has fewer outputs than its type";
    return Entries(entries.begin() + before.size(), entries.begin() + up_to.size());
  }

  Entries VisitExpr_(const LetNode* let) override {
    Expr body = GetRef<Expr>(let);
    // A loop, as a function in A-normal form is one long chain.
    while (const auto* inner = body.as<LetNode>()) {
      memo_[inner->var] = VisitExpr(inner->value);
      body = inner->body;
    }
    return VisitExpr(body);
  }

  Entries VisitExprDefault_(const Object* node) override {
    LOG(FATAL) << Where() << " cannot serialise " << node->GetTypeKey()
               << ". Leave it out of the partition.";
    return {};
  }

  /*! \brief The entries of each visited expression. */
  std::unordered_map<Expr, Entries, ObjectPtrHash, ObjectPtrEqual> memo_;

 private:
  /*! \brief Collects the constants of an expression in the order of a plain visitor. */
  struct ConstantCollector : public ExprVisitor {
    using ExprVisitor::VisitExpr_;
    void VisitExpr_(const ConstantNode* constant) final {
      constants.push_back(GetRef<Constant>(constant));
    }
    std::vector<Constant> constants;
  };

  static std::vector<Constant> ConstantsIn(const Expr& expr) {
    ConstantCollector collector;
    collector.VisitExpr(expr);
    return collector.constants;
  }

  static void Append(const Entries& from, Entries* to) {
    to->insert(to->end(), from.begin(), from.end());
  }

  void FlattenType(const Type& type, std::vector<TensorType>* tensors) const {
    if (const auto* tensor = type.as<TensorTypeNode>()) {
      tensors->push_back(GetRef<TensorType>(tensor));
    } else if (const auto* tuple = type.as<TupleTypeNode>()) {
      for (const Type& field : tuple->fields) FlattenType(field, tensors);
    } else {
      LOG(FATAL) << Where() << " cannot serialise a value of type " << type
                 << "; only tensors and tuples of tensors can cross into a JSON graph";
    }
  }

  std::string Where() const { return "The JSON serializer of '" + symbol_ + "'"; }

  std::string symbol_;
  Expr func_;
  /*! \brief Null where constants are numbered in the order of our visit. */
  std::unique_ptr<ConstantNumbering> numbering_;
  std::vector<JSONGraphObjectPtr> nodes_;
  Entries heads_;
  Array<String> const_names_;
  std::unordered_map<std::string, runtime::NDArray> const_name_to_constant_;
  std::unordered_map<std::string, Entries> const_name_to_entries_;
};

}  // namespace contrib
}  // namespace backend
}  // namespace relay
}  // namespace tvm

#endif  // TVM_RELAY_BACKEND_CONTRIB_CODEGEN_JSON_CODEGEN_JSON_H_
