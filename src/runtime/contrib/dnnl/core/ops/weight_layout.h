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
 * \file src/runtime/contrib/dnnl/core/ops/weight_layout.h
 * \brief The layout in which plans of all shapes share a packed weight.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_WEIGHT_LAYOUT_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_WEIGHT_LAYOUT_H_

#include <optional>

#include "../plan/builder.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*!
 * \brief The layout of a constant matrix of which a graph with open dimensions keeps one packed
 * copy, for one row and for many; nothing if each plan packs the matrix as oneDNN prefers.
 *
 * oneDNN's choice depends on the number of rows, but not its speed. On AVX-512, it reads blocks of
 * 64 columns for 1 row and for 128 or more, and blocks of 32 in between. With one thread, the times
 * of either for 2 to 96 rows by 576x576, 576x1536 and 1536x576 are within the noise of each other.
 *
 * \param matrix (columns, inputs)
 */
std::optional<dnnl::memory::desc> SharedWeightLayout(const PlanBuilder& plan,
                                                     const dnnl::memory::desc& matrix);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_WEIGHT_LAYOUT_H_
