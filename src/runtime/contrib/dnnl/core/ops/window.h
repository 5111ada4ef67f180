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
 * \file src/runtime/contrib/dnnl/core/ops/window.h
 * \brief Shared by convolutions, pooling and resizing: layouts, strides, padding and dilation.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_WINDOW_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_WINDOW_H_

#include <algorithm>
#include <string>
#include <vector>

#include "../node_reader.h"
#include "../plan/tensor.h"
#include "types.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief oneDNN's order of dimensions: "NC" for data or "OI" for weights, then "W", "HW" or "DHW".
 */
std::string ChannelsFirst(const std::string& channels, size_t spatial);

/*! \brief Values of an attribute for each spatial dimension; a single one counts for all. */
Dims ReadSpatial(const NodeReader& node, const std::string& key, size_t spatial, int64_t otherwise,
                 int64_t low);

/*! \brief The permutation that brings dimensions in `layout` into the order of `order`. */
std::vector<int> LayoutAxes(const NodeReader& node, const std::string& layout,
                            const std::string& order);

/*!
 * \brief Refuse extents that oneDNN's integers of 32 bits do not hold.
 * \param span How many values a window spans along a spatial dimension.
 * \param padded How many values there are, padding included.
 */
void CheckExtents(const NodeReader& node, int64_t span, int64_t padded);

/*!
 * \brief Dims with a 1 before the last: a signal as an image of one row.
 *
 * Grouped convolutions over one dimension have no fast code in oneDNN: of a depthwise one over 400
 * values in 256 channels, the image's takes a twentieth of the time.
 */
Dims AsRow(Dims dims);

/*! \brief How a window moves over the spatial dimensions, in oneDNN's terms. */
struct Window {
  Dims strides;
  /*! \brief The gaps between taps: Relay's dilation, the distance from tap to tap, less one. */
  Dims dilation;
  Dims pad_begin;
  Dims pad_end;

  /*! \brief Read strides, dilation and padding; absent ones are 1, 1 and 0. */
  static Window Read(const NodeReader& node, size_t spatial);
  /*! \brief How many values a kernel of this size spans along a spatial dimension. */
  int64_t Span(size_t dimension, int64_t kernel) const {
    return (kernel - 1) * (dilation[dimension] + 1) + 1;
  }
  /*! \brief Whether there are gaps between taps. */
  bool IsDilated() const {
    return std::any_of(dilation.begin(), dilation.end(), [](int64_t gap) { return gap > 0; });
  }
  /*! \brief Exchange height and width of an image. */
  void Transpose();
  /*! \brief Prepend a dimension, over which the window does not move. */
  void MakeRow();
};

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_WINDOW_H_
