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
 * \file src/runtime/contrib/dnnl/core/kernels/zero_rows.h
 * \brief What a softmax makes of a row without a finite result.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_ZERO_ROWS_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_ZERO_ROWS_H_

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief Which rows of a softmax that have no finite result become zero; the others become NaN. */
enum class ZeroRows { kNone, kMasked /*!< those whose scores are -inf alone */, kAll };

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_ZERO_ROWS_H_
