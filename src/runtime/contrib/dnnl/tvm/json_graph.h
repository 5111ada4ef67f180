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
 * \file src/runtime/contrib/dnnl/tvm/json_graph.h
 * \brief A JSON graph as one of the core.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_TVM_JSON_GRAPH_H_
#define TVM_RUNTIME_CONTRIB_DNNL_TVM_JSON_GRAPH_H_

#include <string>
#include <vector>

#include "../../json/json_graph.h"
#include "../core/graph.h"

namespace tvm {
namespace runtime {
namespace contrib {
namespace dnnl_backend {

/*!
 * \brief A JSON graph that was checked as one of the core. The data of its constants is not set.
 *
 * Composites of writers that say what is fused by the name alone get the attributes root_op and
 * post_ops: Relax's DNNL codegen of TVM writes the attributes of the root op only.
 * \param symbol The function that the graph is.
 * \param json The graph.
 * \param const_names Names of the constants, in the order that they are to have.
 */
Graph GraphOf(const std::string& symbol, const json::JSONGraph& json,
              const std::vector<std::string>& const_names);

}  // namespace dnnl_backend
}  // namespace contrib
}  // namespace runtime
}  // namespace tvm

#endif  // TVM_RUNTIME_CONTRIB_DNNL_TVM_JSON_GRAPH_H_
