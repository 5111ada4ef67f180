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
 * \file src/runtime/contrib/dnnl/core/kernels/window_axis.h
 * \brief How a window moves along a spatial dimension.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_WINDOW_AXIS_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_WINDOW_AXIS_H_

#include <algorithm>
#include <cstdint>

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief The taps of a window that read values and no padding, and where the first tap is. */
struct Taps {
  int64_t first, last, begin;
};

/*! \brief Sizes along a spatial dimension, and how the window moves there. */
struct WindowAxis {
  int64_t src{1}, dst{1}, kernel{1}, stride{1};
  /*! \brief The distance from tap to tap. */
  int64_t step{1};
  /*! \brief How far the first window begins before the first value. */
  int64_t pad{0};

  /*! \brief Consecutive results. */
  struct Range {
    int64_t first, last;
  };

  int64_t span() const { return (kernel - 1) * step + 1; }
  /*! \brief The results all taps of whose windows read values. */
  Range Inside() const {
    const int64_t first = pad <= 0 ? 0 : std::min(dst, (pad - 1) / stride + 1);
    const int64_t room = src + pad - span();
    return {first, room < 0 ? first : std::clamp<int64_t>(room / stride + 1, first, dst)};
  }
  /*! \brief The taps of the window of a result. */
  Taps TapsOf(int64_t result) const {
    const int64_t begin = result * stride - pad;
    const auto taps_below = [this](int64_t distance) {
      if (distance <= 0) return int64_t{0};
      return std::min(kernel, step == 1 ? distance : (distance + step - 1) / step);
    };
    return {taps_below(-begin), taps_below(src - begin), begin};
  }
};

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_WINDOW_AXIS_H_
