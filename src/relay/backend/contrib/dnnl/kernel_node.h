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
 * \file src/relay/backend/contrib/dnnl/kernel_node.h
 * \brief A call of the DNNL backend as the node of a JSON graph, for both codegens.
 */
#ifndef TVM_RELAY_BACKEND_CONTRIB_DNNL_KERNEL_NODE_H_
#define TVM_RELAY_BACKEND_CONTRIB_DNNL_KERNEL_NODE_H_

#include <vector>

#include "../codegen_json/codegen_json.h"
#include "composite.h"

namespace tvm {
namespace relay {
namespace contrib {
namespace dnnl {

/*!
 * \brief The node of a kernel: the root op's attributes, and those of the post-ops.
 * \param inputs The entries of `kernel.inputs`, in their order.
 */
backend::contrib::JSONGraphObjectPtr MakeKernelNode(
    const KernelCall& kernel, const std::vector<tvm::runtime::json::JSONGraphNodeEntry>& inputs);

}  // namespace dnnl
}  // namespace contrib
}  // namespace relay
}  // namespace tvm

#endif  // TVM_RELAY_BACKEND_CONTRIB_DNNL_KERNEL_NODE_H_
