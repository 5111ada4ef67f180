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
 * \file src/runtime/contrib/dnnl/core/ops/matmul_tiles.h
 * \brief Multiplications of rows in bfloat16 by constants, by our kernel for AMX.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_MATMUL_TILES_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_MATMUL_TILES_H_

#include "../node_reader.h"
#include "../plan/builder.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*!
 * \brief Multiply some hundred rows in bfloat16 by weights that a core reads from memory.
 * \param weights The constant matrix: a row for each column of the result.
 * \return False where the kernel is not faster, or lacks a post-op.
 */
bool LowerTiles(const NodeReader& node, PlanBuilder* plan, const Tensor& weights);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_MATMUL_TILES_H_
