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
 * \file src/runtime/contrib/dnnl/core/kernels/log_softmax.h
 * \brief The logarithm of a softmax of contiguous rows, in float32.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_LOG_SOFTMAX_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_LOG_SOFTMAX_H_

#include <cstdint>

namespace tvm::runtime::contrib::dnnl_backend {

/*!
 * \brief Compute the logarithm of the softmax of each contiguous row; in place, too.
 *
 * A row with a NaN or an infinity, or of -inf alone, is all NaN. oneDNN stores the differences from
 * the largest value and reads them again. In us on two cores with AVX2, oneDNN and this kernel:
 *
 *    788 rows of  192   133   83
 *   1500 rows of  384   268  224
 *    512 rows of 1024   381  255
 */
void LogSoftmaxOfRows(const float* src, float* dst, int64_t rows, int64_t columns);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_LOG_SOFTMAX_H_
