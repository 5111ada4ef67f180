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
 * \file src/runtime/contrib/dnnl/core/ops/reduce.h
 * \brief Reductions as parts of other ops.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_REDUCE_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_REDUCE_H_

#include <vector>

#include "../fusion/post_ops.h"
#include "../kernels/reduce.h"
#include "../plan/builder.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*!
 * \brief Append a reduction in any layout.
 * \param axes The axes to reduce, which have size one in the result.
 * \return The result in float32 for data of any type: row-major, or in the blocks of an image with
 * padded channels whose positions are reduced.
 */
Tensor Reduced(const NodeReader& node, PlanBuilder* plan, ReduceKind kind, const Tensor& value,
               const std::vector<int>& axes);

/*!
 * \brief Append what is fused to a node to its result, in float32, in a step of its own.
 * \return The result in the type of the node's, or in float32 if nothing is fused.
 */
Tensor WithPostOps(const NodeReader& node, PlanBuilder* plan, const Tensor& value,
                   const ResultView& view);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_REDUCE_H_
