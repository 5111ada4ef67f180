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
 * \file src/runtime/contrib/dnnl/core/kernels/pool.h
 * \brief Max and average pools of row-major images.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_POOL_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_POOL_H_

#include <array>
#include <cstdint>

#include "window_axis.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief The sizes of a pool over depth, height and width, channels first. */
struct PoolShape {
  /*! \brief The images times their channels. */
  int64_t planes;
  std::array<WindowAxis, 3> axes;
};

/*! \brief The width of the largest window that the kernels support. */
constexpr int64_t kMaxPoolSpan = 1024;

/*!
 * \brief Compute the largest of the values of windows, which are float, uint8_t or int8_t.
 *
 * NaN is dropped, and the result of a window of nothing else is the lowest finite number, as
 * oneDNN's is.
 */
template <typename T>
void MaxPool(const PoolShape& shape, const T* src, T* dst);

/*!
 * \brief Compute the mean of the values of windows.
 * \param counts_padding Whether the padding of a window is counted as zeros; each window must
 *        contain a value if not.
 */
void AveragePool(const PoolShape& shape, bool counts_padding, const float* src, float* dst);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_POOL_H_
