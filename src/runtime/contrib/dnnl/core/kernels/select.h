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
 * \file src/runtime/contrib/dnnl/core/kernels/select.h
 * \brief Selects between the elements of two rows, by a condition or by their size.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_SELECT_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_SELECT_H_

#include <cstdint>

namespace tvm::runtime::contrib::dnnl_backend {

/*!
 * \brief dst[i] = condition[i] ? x[i * x_step] : y[i * y_step], with steps of 0 or 1.
 *
 * An element is copied as it is; one function for each size.
 */
void Select(const uint8_t* condition, const uint8_t* x, int64_t x_step, const uint8_t* y,
            int64_t y_step, uint8_t* dst, int64_t count);
void Select(const uint8_t* condition, const uint16_t* x, int64_t x_step, const uint16_t* y,
            int64_t y_step, uint16_t* dst, int64_t count);
void Select(const uint8_t* condition, const uint32_t* x, int64_t x_step, const uint32_t* y,
            int64_t y_step, uint32_t* dst, int64_t count);

/*!
 * \brief The larger or the smaller of two elements, or the first that is NaN.
 *
 * Each operand's elements are a stride apart, 0 or more. `infinity` is that of the 16-bit type.
 */
void Extremum(bool is_max, const float* a, int64_t a_stride, const float* b, int64_t b_stride,
              float* dst, int64_t count);
void Extremum(bool is_max, uint16_t infinity, const uint16_t* a, int64_t a_stride,
              const uint16_t* b, int64_t b_stride, uint16_t* dst, int64_t count);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_SELECT_H_
