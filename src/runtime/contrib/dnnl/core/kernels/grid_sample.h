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
 * \file src/runtime/contrib/dnnl/core/kernels/grid_sample.h
 * \brief Samples row-major images at computed coordinates, with linear interpolation.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_GRID_SAMPLE_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_GRID_SAMPLE_H_

#include <cstdint>

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief Each image has its own coordinates, and all of its channels the same. */
struct GridSampleKernel {
  int64_t batch, channels, height, width;
  /*! \brief Of an image. */
  int64_t samples;
  /*! \brief Whether -1 and 1 are the centers of the first and last elements, not their edges. */
  bool align_corners;
  /*! \brief Whether coordinates outside are those of the border, instead of zeros. */
  bool is_border;

  /*!
   * \param data (batch, channels, height, width).
   * \param grid (batch, 2, samples): columns, then rows.
   * \param dst (batch, channels, samples).
   */
  void Run(const float* data, const float* grid, float* dst) const;
};

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_GRID_SAMPLE_H_
