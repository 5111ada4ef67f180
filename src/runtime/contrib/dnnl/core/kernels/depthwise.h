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
 * \file src/runtime/contrib/dnnl/core/kernels/depthwise.h
 * \brief Depthwise convolutions over three dimensions, in float32 and blocks of channels.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_DEPTHWISE_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_DEPTHWISE_H_

#include <array>
#include <cstdint>

#include "window_axis.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief The sizes and strides of a depthwise convolution over depth, height and width. */
struct DepthwiseShape {
  /*! \brief In elements; the channels of a block are contiguous. */
  struct Strides {
    int64_t image, block, position;
  };

  int64_t batch;
  /*! \brief Blocks of DepthwiseLanes() channels. */
  int64_t blocks;
  std::array<WindowAxis, 3> axes;
  Strides src, dst;
};

/*! \brief The channels of a block on this CPU. */
int DepthwiseLanes();

/*!
 * \brief Compute the convolution.
 * \param weights (blocks, taps, channels of a block), row-major.
 */
void DepthwiseConv(const DepthwiseShape& shape, const float* src, const float* weights, float* dst);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_DEPTHWISE_H_
