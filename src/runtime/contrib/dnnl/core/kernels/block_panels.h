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
 * \file src/runtime/contrib/dnnl/core/kernels/block_panels.h
 * \brief Products of many rows of data and rows of dequantized weights, in registers.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_BLOCK_PANELS_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_BLOCK_PANELS_H_

#include <cstdint>

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief The rows of data that lie side by side in a panel, (count, kPanelRows). */
constexpr int64_t kPanelRows = 16;

/*! \brief Whether this CPU has the vectors for it; oneDNN's sgemm is faster otherwise. */
bool HasPanelProducts();

/*!
 * \brief Copy up to kPanelRows rows into a panel; the others are zero.
 *
 * \param stride The elements from one row of data to the next.
 * \param order For each of `count` elements of a row of the panel, which of the row of data it is;
 *              negative for zero.
 */
void PackPanel(const float* data, int64_t rows, int64_t stride, const int32_t* order, int64_t count,
               float* panel);

/*!
 * \brief dst[m * dst_stride + n] = row m of data times row n of weights.
 *
 * \param weights (channels, count)
 * \param panels The panels of all rows of data, one after the other.
 */
void MultiplyDataPanels(const float* weights, int64_t channels, int64_t count, const float* panels,
                        int64_t rows, float* dst, int64_t dst_stride);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_BLOCK_PANELS_H_
