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
 * \file src/runtime/contrib/dnnl/core/kernels/float_rows.h
 * \brief Softmax and elementwise functions of rows of float32, of any sizes.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_FLOAT_ROWS_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_FLOAT_ROWS_H_

#include <cstdint>

#include "zero_rows.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief The softmax of a row; `zeros` says which rows that have none are zero. */
void SoftmaxOfRow(const float* src, float* dst, int64_t count, ZeroRows zeros);

enum class Arithmetic { kAdd, kSubtract, kMultiply, kDivide };

/*! \brief The operation on pairs of elements; each operand's are its stride, 0 or more, apart. */
void ComputeElements(Arithmetic op, const float* a, int64_t a_stride, const float* b,
                     int64_t b_stride, float* dst, int64_t count);

/*! \brief alpha * x + beta of elements that are a stride apart. */
void Linear(const float* src, int64_t stride, float alpha, float beta, float* dst, int64_t count);
/*! \brief x / (1 + exp(-alpha * x)) of such elements. */
void Swish(const float* src, int64_t stride, float alpha, float* dst, int64_t count);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_FLOAT_ROWS_H_
