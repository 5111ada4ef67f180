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
 * \file src/runtime/contrib/dnnl/core/kernels/interpolation.h
 * \brief Interpolates row-major images of float32 to images of another size.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_INTERPOLATION_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_INTERPOLATION_H_

#include <array>
#include <cstdint>
#include <vector>

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief Weighted sums of the values of an image, axis by axis, with the channels first. */
class InterpolationKernel {
 public:
  /*! \brief An axis of an image. */
  struct Axis {
    int64_t size{1}, out{1};
    /*! \brief The values of a sum: 1 where the axis is copied. */
    int64_t taps{1};
    /*! \brief Of each tap, for each coordinate of the result. */
    std::vector<int32_t> indices{0};
    std::vector<float> weights{1};

    /*! \brief Whether coordinates of the result are those of the source. */
    bool IsCopied() const { return taps == 1 && size == out; }
  };

  /*!
   * \param planes The images times their channels.
   * \param axes Depth, height and width.
   */
  InterpolationKernel(int64_t planes, std::array<Axis, 3> axes);

  void Run(const float* src, float* dst) const;

 private:
  void RunRows(const float* src, float* dst, int64_t first, int64_t last) const;

  int64_t planes_;
  std::array<Axis, 3> axes_;
  /*! \brief The factor of the width if its weights repeat for each value; else 0. */
  int64_t factor_;
};

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_INTERPOLATION_H_
