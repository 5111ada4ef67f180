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
 * \file src/runtime/contrib/dnnl/core/kernels/int8_conv.h
 * \brief Exact convolutions of 8-bit integers, channels last, where `HasInt8Matrices`.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_INT8_CONV_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_INT8_CONV_H_

#include <array>
#include <cstdint>

#include "int8_matrices.h"
#include "window_axis.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief The sizes of a convolution without groups over depth, height and width. */
struct Int8ConvShape {
  int64_t images, channels, dst_channels;
  std::array<WindowAxis, 3> axes;
  /*! \brief Whether the source is (N, C, D, H, W), and not (N, D, H, W, C). */
  bool is_channels_first{false};

  /*!
   * \brief The values of a window that are contiguous: those of a row of taps, or of one tap where
   * there are gaps between them.
   */
  int64_t run() const { return channels * (axes[2].step == 1 ? axes[2].kernel : 1); }
  int64_t runs() const {
    return axes[0].kernel * axes[1].kernel * (axes[2].step == 1 ? 1 : axes[2].kernel);
  }
  /*! \brief The weights of each run; all of them are (depth, height, width, I, O), row-major. */
  Int8Matrix matrix() const { return {run(), dst_channels, dst_channels, 1, /*is_signed=*/true}; }
  /*! \brief The values that windows read along an axis, with padding. */
  int64_t Padded(int axis) const {
    return (axes[axis].dst - 1) * axes[axis].stride + axes[axis].span();
  }
  /*! \brief The 16-bit numbers of the workspace. */
  int64_t workspace() const {
    // A run of an odd length is multiplied with one value more.
    return images * Padded(0) * Padded(1) * Padded(2) * channels + 1;
  }
  int64_t positions() const { return images * axes[0].dst * axes[1].dst * axes[2].dst; }
};

/*!
 * \brief Convolve.
 * \param src Its number of rows is not read.
 * \param packed The weights of the runs, as `PackInt8Matrices` packs so many matrices.
 * \param finish Its zero point is 0: that of the weights.
 * \param dst (N, D, H, W, O), in float32 or 8 bits.
 */
void ConvInt8(const Int8Source& src, const Int8ConvShape& shape, const int8_t* packed,
              const Int8Finish& finish, int16_t* workspace, void* dst);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_INT8_CONV_H_
