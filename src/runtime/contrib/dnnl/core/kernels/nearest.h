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
 * \file src/runtime/contrib/dnnl/core/kernels/nearest.h
 * \brief Copies the nearest values of row-major images to images of another size.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_NEAREST_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_NEAREST_H_

#include <array>
#include <cstdint>
#include <vector>

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief Which values of an image of channels first are copied. */
class NearestKernel {
 public:
  /*! \brief An axis of an image. */
  struct Axis {
    int64_t size{1};
    /*! \brief By coordinate of the result, that of the value which is copied. */
    std::vector<int64_t> indices{0};
  };

  /*!
   * \param planes The images times their channels.
   * \param axes Depth, height and width.
   * \param bytes Those of an element: 2 or 4.
   */
  NearestKernel(int64_t planes, std::array<Axis, 3> axes, int bytes);

  void Run(const void* src, void* dst) const;

 private:
  template <typename T>
  void RunRows(const T* src, T* dst, int64_t first, int64_t last) const;

  int64_t planes_;
  std::array<Axis, 3> axes_;
  int bytes_;
  /*! \brief How often each value of a row follows itself; 0 unless it is the same for all. */
  int64_t factor_;
};

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_NEAREST_H_
