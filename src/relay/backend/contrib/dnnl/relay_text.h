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
 * \file src/relay/backend/contrib/dnnl/relay_text.h
 * \brief A kernel of the graph as the Relay calls that it stands for, for people.
 */
#ifndef TVM_RELAY_BACKEND_CONTRIB_DNNL_RELAY_TEXT_H_
#define TVM_RELAY_BACKEND_CONTRIB_DNNL_RELAY_TEXT_H_

#include <string>
#include <utility>
#include <vector>

#include "../../../../runtime/contrib/json/json_attr.h"
#include "../../../../runtime/contrib/json/json_node.h"
#include "../codegen_c/graph_codegen_c.h"

namespace tvm {
namespace relay {
namespace contrib {
namespace dnnl {

/*!
 * \brief The attributes of a kernel by name, without those that are null and those that say what
 *        its outputs are.
 */
std::vector<std::pair<std::string, tvm::runtime::json::JSONAttr::Rows>> OpAttributes(
    const tvm::runtime::json::JSONGraphNode& node);

/*! \brief "nn.relu(add(nn.conv2d(in0, const_0, strides=[1, 1]), const_1))". */
std::string RelayText(const CKernel& kernel);

}  // namespace dnnl
}  // namespace contrib
}  // namespace relay
}  // namespace tvm

#endif  // TVM_RELAY_BACKEND_CONTRIB_DNNL_RELAY_TEXT_H_
