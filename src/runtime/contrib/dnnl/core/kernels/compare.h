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
 * \file src/runtime/contrib/dnnl/core/kernels/compare.h
 * \brief Compares the elements of two rows.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_COMPARE_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_COMPARE_H_

#include <cstdint>

namespace tvm::runtime::contrib::dnnl_backend {

enum class Comparison { kEqual, kNotEqual, kLess, kLessEqual };

/*!
 * \brief dst[i] = a[i * a_stride] < b[i * b_stride] ? 1 : 0, or another comparison.
 *
 * NaN is not equal to anything, and neither less nor greater. The strides are 0 or more.
 */
void Compare(Comparison comparison, const float* a, int64_t a_stride, const float* b,
             int64_t b_stride, uint8_t* dst, int64_t count);
/*! \brief The same in 16 bits, of the type with this `infinity`. */
void Compare(Comparison comparison, uint16_t infinity, const uint16_t* a, int64_t a_stride,
             const uint16_t* b, int64_t b_stride, uint8_t* dst, int64_t count);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_COMPARE_H_
