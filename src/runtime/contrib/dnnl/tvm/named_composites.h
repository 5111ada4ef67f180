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
 * \file src/runtime/contrib/dnnl/tvm/named_composites.h
 * \brief Composites of writers that say what is fused by the composite's name alone.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_TVM_NAMED_COMPOSITES_H_
#define TVM_RUNTIME_CONTRIB_DNNL_TVM_NAMED_COMPOSITES_H_

#include <vector>

#include "../../json/json_node.h"

namespace tvm {
namespace runtime {
namespace contrib {
namespace dnnl_backend {

/*!
 * \brief Give the node of a known name the attributes root_op and post_ops, where it has none.
 *
 * Relax's DNNL codegen writes the attributes of the root op only.
 * \param nodes All nodes of the graph.
 * \param id The number of the node.
 */
void AddPostOpsByName(std::vector<json::JSONGraphNode>* nodes, size_t id);

}  // namespace dnnl_backend
}  // namespace contrib
}  // namespace runtime
}  // namespace tvm

#endif  // TVM_RUNTIME_CONTRIB_DNNL_TVM_NAMED_COMPOSITES_H_
