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
 * \file src/runtime/contrib/dnnl/core/ops/matmul_int8.h
 * \brief Matrix multiplications of 8-bit integers by our kernels.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_MATMUL_INT8_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_MATMUL_INT8_H_

#include "../node_reader.h"
#include "../plan/builder.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*!
 * \brief Multiply 8-bit operands where oneDNN's kernels would saturate, and ours do not.
 *
 * \return False, with nothing done, where the node is not for this kernel.
 */
bool LowerInt8Products(const NodeReader& node, PlanBuilder* plan);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_MATMUL_INT8_H_
