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
 * \file src/relay/backend/contrib/dnnl/kernel_node.cc
 * \brief A call of the DNNL backend as the node of a JSON graph, for both codegens.
 */
#include "kernel_node.h"

#include <tvm/relay/attrs/nn.h>
#include <tvm/relay/op_attr_types.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "../../../../runtime/contrib/dnnl/tvm/channel_bias.h"

namespace tvm {
namespace relay {
namespace contrib {
namespace dnnl {

namespace {

using backend::contrib::JSONGraphObjectPtr;
using backend::contrib::OpAttrExtractor;
using tvm::runtime::contrib::dnnl_backend::BiasAxis;
using tvm::runtime::contrib::dnnl_backend::LiesAlong;
using tvm::runtime::json::JSONGraphNode;

/*! \brief Set the attributes of one op; those of a virtual op are its function's. */
void SetOpAttributes(const CallNode* call, const JSONGraphObjectPtr& node) {
  const auto* function = call->op.as<FunctionNode>();
  const Object* attrs = function ? static_cast<const Object*>(function->attrs.get())
                                 : static_cast<const Object*>(call->attrs.get());
  OpAttrExtractor(node).Extract(const_cast<Object*>(attrs));
}

/*! \brief The axis of a bias, counted from the end as a reshape of the rows leaves it. */
int AxisFromEnd(const BiasAddAttrs& attrs, int rank) {
  return attrs.axis < 0 ? attrs.axis : attrs.axis - rank;
}

std::vector<int64_t> ShapeOf(const Expr& expr) {
  std::vector<int64_t> shape;
  for (const PrimExpr& dim : Downcast<TensorType>(expr->checked_type())->shape) {
    const auto* known = dim.as<IntImmNode>();
    shape.push_back(known ? known->value : -1);
  }
  return shape;
}

/*! \brief Whether an op gives the same elements other dimensions. */
bool IsReshape(const CallNode* call) {
  static const auto is_reshape = Op::GetAttrMap<TReshapeOp>("TReshapeOp");
  const auto* op = call->op.as<OpNode>();
  return op != nullptr && is_reshape.get(GetRef<Op>(op), false);
}

/*! \brief Whether the first post-op can be what the primitive does with its bias argument. */
bool IsBias(const KernelCall& kernel, const PostOp& post_op, const JSONGraphNode& root) {
  const std::string op = OpNameOf(post_op.call);
  if (op != "add" && op != "nn.bias_add") return false;
  const std::vector<int64_t> result = ShapeOf(GetRef<Expr>(post_op.call));
  const int axis = BiasAxis(root, result.size());
  if (const auto* attrs = post_op.call->attrs.as<BiasAddAttrs>()) {
    const int rank = static_cast<int>(result.size());
    return axis >= 0 && AxisFromEnd(*attrs, rank) == axis - rank;
  }
  return LiesAlong(axis, ShapeOf(kernel.inputs.at(post_op.operand)), result);
}

/*!
 * \brief Which post-op is the bias argument of the primitive; -1 for none.
 *
 * This is only asked of what TVM's MergeComposite has made, whose checks cannot leave the answer in
 * the composite; the rule is that of TVM's own composites.
 */
int FindBias(const KernelCall& kernel, const JSONGraphNode& root) {
  const auto& post_ops = kernel.post_ops;
  const auto first = std::find_if(post_ops.begin(), post_ops.end(),
                                  [](const PostOp& post_op) { return !IsReshape(post_op.call); });
  const bool is_bias = first != post_ops.end() && IsBias(kernel, *first, root);
  return is_bias ? static_cast<int>(first - post_ops.begin()) : -1;
}

void SetPostOps(const KernelCall& kernel, JSONGraphNode* node) {
  std::vector<std::string> names;
  const int bias = FindBias(kernel, *node);
  for (const PostOp& post_op : kernel.post_ops) {
    const std::string prefix = "post_ops." + std::to_string(names.size()) + ".";
    auto attrs = std::make_shared<JSONGraphNode>();
    SetOpAttributes(post_op.call, attrs);
    if (const auto* bias_add = post_op.call->attrs.as<BiasAddAttrs>()) {
      attrs->SetAttr("axis", AxisFromEnd(*bias_add, ShapeOf(GetRef<Expr>(post_op.call)).size()));
    }
    if (post_op.operand >= 0) attrs->SetAttr("operand", std::to_string(post_op.operand));
    if (post_op.operand_first) attrs->SetAttr("operand_first", "1");
    if (post_op.scale >= 0) {
      attrs->SetAttr("scale", std::to_string(post_op.scale));
      attrs->SetAttr("zero_point", std::to_string(post_op.zero_point));
    }
    if (static_cast<int>(names.size()) == bias) attrs->SetAttr("is_bias", "1");
    node->CaptureAttrs(*attrs, prefix);
    names.push_back(OpNameOf(post_op.call));
  }
  if (!names.empty()) node->SetAttr("post_ops", names);
}

/*! \brief Say of each input in 8 bits which others are its scale and zero point. */
void SetQuantizedInputs(const KernelCall& kernel, JSONGraphNode* node) {
  for (const QuantizedInput& quantized : kernel.quantized_inputs) {
    const std::string prefix = "dequantize." + std::to_string(quantized.input) + ".";
    auto attrs = std::make_shared<JSONGraphNode>();
    SetOpAttributes(quantized.call, attrs);
    attrs->SetAttr("scale", std::to_string(quantized.scale));
    attrs->SetAttr("zero_point", std::to_string(quantized.zero_point));
    node->CaptureAttrs(*attrs, prefix);
  }
}

}  // namespace

JSONGraphObjectPtr MakeKernelNode(
    const KernelCall& kernel, const std::vector<tvm::runtime::json::JSONGraphNodeEntry>& inputs) {
  auto node = std::make_shared<JSONGraphNode>(kernel.name, "kernel", inputs);
  if (kernel.attrs.defined()) {
    OpAttrExtractor(node).Extract(const_cast<DictAttrsNode*>(kernel.attrs.value().get()));
    return node;
  }
  SetOpAttributes(kernel.root, node);
  if (kernel.IsComposite()) {
    node->SetAttr("root_op", kernel.RootName());
    SetPostOps(kernel, node.get());
    SetQuantizedInputs(kernel, node.get());
  }
  return node;
}

}  // namespace dnnl
}  // namespace contrib
}  // namespace relay
}  // namespace tvm
