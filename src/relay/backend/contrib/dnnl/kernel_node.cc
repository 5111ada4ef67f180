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

#include <memory>
#include <string>

namespace tvm {
namespace relay {
namespace contrib {
namespace dnnl {

namespace {

using backend::contrib::JSONGraphObjectPtr;
using backend::contrib::OpAttrExtractor;
using tvm::runtime::json::JSONGraphNode;

/*! \brief Set the attributes of one op; those of a virtual op are its function's. */
void SetOpAttributes(const CallNode* call, const JSONGraphObjectPtr& node) {
  const auto* function = call->op.as<FunctionNode>();
  const Object* attrs = function ? static_cast<const Object*>(function->attrs.get())
                                 : static_cast<const Object*>(call->attrs.get());
  OpAttrExtractor(node).Extract(const_cast<Object*>(attrs));
}

void SetPostOps(const KernelCall& kernel, JSONGraphNode* node) {
  std::vector<std::string> names;
  for (const PostOp& post_op : kernel.post_ops) {
    const std::string prefix = "post_ops." + std::to_string(names.size()) + ".";
    auto attrs = std::make_shared<JSONGraphNode>();
    SetOpAttributes(post_op.call, attrs);
    if (post_op.operand >= 0) attrs->SetAttr("operand", std::to_string(post_op.operand));
    if (post_op.operand_first) attrs->SetAttr("operand_first", "1");
    node->CaptureAttrs(*attrs, prefix);
    names.push_back(OpNameOf(post_op.call));
  }
  if (!names.empty()) node->SetAttr("post_ops", names);
}

}  // namespace

JSONGraphObjectPtr MakeKernelNode(
    const KernelCall& kernel, const std::vector<tvm::runtime::json::JSONGraphNodeEntry>& inputs) {
  auto node = std::make_shared<JSONGraphNode>(kernel.name, "kernel", inputs);
  SetOpAttributes(kernel.root, node);
  if (kernel.IsComposite()) {
    node->SetAttr("root_op", kernel.RootName());
    SetPostOps(kernel, node.get());
  }
  return node;
}

}  // namespace dnnl
}  // namespace contrib
}  // namespace relay
}  // namespace tvm
