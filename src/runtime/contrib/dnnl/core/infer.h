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
 * \file src/runtime/contrib/dnnl/core/infer.h
 * \brief From the shapes of a call's inputs to the types of all that a graph computes.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_INFER_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_INFER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "graph.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief Whether an input has an open dimension, so that each shape needs a plan of its own. */
bool IsDynamic(const Graph& graph);

/*! \brief The shapes of the inputs as the graph says them, open dimensions among them. */
std::vector<std::vector<int64_t>> InputShapes(const Graph& graph);

/*!
 * \brief The graph of one call, in which no dimension is open.
 *
 * The types of all results come from the ops themselves. Where the graph says something of them,
 * too, it must agree. Whatever oneDNN could not be asked for is an error that names the node.
 *
 * \param graph The graph, maybe with open dimensions.
 * \param input_shapes The shape of each of its inputs.
 */
Graph Infer(const Graph& graph, const std::vector<std::vector<int64_t>>& input_shapes);

/*! \brief The types of that call's results, such as "float32 [1, 8]". */
std::vector<std::string> ResultTypes(const Graph& graph,
                                     const std::vector<std::vector<int64_t>>& input_shapes);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_INFER_H_
