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
 * \file src/runtime/contrib/dnnl/core/kernels/element_pairs.h
 * \brief An operation on pairs of elements of two rows.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_ELEMENT_PAIRS_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_ELEMENT_PAIRS_H_

#include <cstdint>

#include "cpu_clones.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*!
 * \brief dst[i] = op(a[i * a_stride], b[i * b_stride]), with strides of 0 or more.
 *
 * The result may be in the place of an operand. `op` is no lambda that calls other functions, which
 * might not become a part of a function for several CPUs.
 */
template <typename T, typename Result, typename Op>
DNNL_INLINE void ComputePairs(const T* a, int64_t a_stride, const T* b, int64_t b_stride,
                              Result* dst, int64_t count, const Op& op) {
  if (a_stride == 1 && b_stride == 1) {
    DNNL_INDEPENDENT
    for (int64_t i = 0; i < count; ++i) dst[i] = op(a[i], b[i]);
  } else if (a_stride == 1 && b_stride == 0) {
    const T y = *b;
    DNNL_INDEPENDENT
    for (int64_t i = 0; i < count; ++i) dst[i] = op(a[i], y);
  } else if (a_stride == 0 && b_stride == 1) {
    const T x = *a;
    DNNL_INDEPENDENT
    for (int64_t i = 0; i < count; ++i) dst[i] = op(x, b[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) dst[i] = op(a[i * a_stride], b[i * b_stride]);
  }
}

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_ELEMENT_PAIRS_H_
