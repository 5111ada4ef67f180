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
 * \file src/runtime/contrib/dnnl/core/lowering.h
 * \brief From a graph to a plan.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_LOWERING_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_LOWERING_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "graph.h"
#include "plan/plan.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*!
 * \brief The plan of a graph for inputs of these shapes. What cannot be run is an error that names
 * the node.
 *
 * \param sizes_change Whether the next call probably has other shapes, so that kernels of ours,
 * which are ready at once, are better than primitives.
 */
std::shared_ptr<const Plan> MakePlan(const Graph& graph,
                                     const std::vector<std::vector<int64_t>>& input_shapes,
                                     bool sizes_change = false);

/*! \brief How many threads a model was compiled for, which all of its nodes say; 0 for any. */
int NumThreadsOf(const Graph& graph);

/*!
 * \brief Check what can be told of a graph before its shapes are known: that this runtime has its
 * ops, and oneDNN their types. Attributes are checked with the sizes, by which most of them are
 * right or wrong: at the first call of a shape.
 */
void CheckOps(const Graph& graph);

/*! \brief The plan of a graph without open dimensions. */
std::shared_ptr<const Plan> MakePlan(const Graph& graph);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_LOWERING_H_
