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
 * \file src/runtime/contrib/dnnl/core/ops/window.cc
 * \brief Shared by convolutions, pooling and resizing: layouts, strides, padding and dilation.
 */
#include "window.h"

#include <string>
#include <utility>
#include <vector>

namespace tvm::runtime::contrib::dnnl_backend {

Dims ReadSpatial(const NodeReader& node, const std::string& key, size_t spatial, int64_t otherwise,
                 int64_t low) {
  const Dims values = node.Get<std::vector<int64_t>>(key, Dims(spatial, otherwise));
  CheckSizes(node, key, values, low);
  if (values.size() == 1) return Dims(spatial, values[0]);
  CORE_CHECK(values.size() == spatial) << node.Where() << ": " << key << " " << ToText(values)
                                       << " does not fit " << spatial << " spatial dimensions";
  return values;
}

std::string ChannelsFirst(const std::string& channels, size_t spatial) {
  return channels + std::string("DHW").substr(3 - spatial);
}

std::vector<int> LayoutAxes(const NodeReader& node, const std::string& layout,
                            const std::string& order) {
  CORE_CHECK(layout.size() == order.size())
      << node.Where() << ": layout " << layout << " is not a permutation of " << order;
  std::vector<int> axes;
  for (char letter : order) {
    const size_t position = layout.find(letter);
    CORE_CHECK(position != std::string::npos)
        << node.Where() << ": layout " << layout << " is not a permutation of " << order;
    axes.push_back(static_cast<int>(position));
  }
  return axes;
}

void CheckExtents(const NodeReader& node, int64_t span, int64_t padded) {
  CORE_CHECK(span <= kMaxSize && padded <= kMaxSize)
      << node.Where() << ": windows over " << span << " of " << padded
      << " values, padding included, exceed oneDNN's limit of " << kMaxSize;
}

Dims AsRow(Dims dims) {
  dims.insert(dims.end() - 1, 1);
  return dims;
}

void Window::MakeRow() {
  strides.insert(strides.begin(), 1);
  for (Dims* values : {&dilation, &pad_begin, &pad_end}) values->insert(values->begin(), 0);
}

void Window::Transpose() {
  for (Dims* values : {&strides, &dilation, &pad_begin, &pad_end}) {
    std::swap((*values)[0], (*values)[1]);
  }
}

Window Window::Read(const NodeReader& node, size_t spatial) {
  Window window;
  window.strides = ReadSpatial(node, "strides", spatial, 1, 1);
  window.dilation = ReadSpatial(node, "dilation", spatial, 1, 1);
  for (int64_t& gap : window.dilation) --gap;
  // Relay's padding: one value, one per dimension, or all begins before all ends.
  Dims padding = node.Get<std::vector<int64_t>>("padding", {0});
  CheckSizes(node, "padding", padding, 0);
  if (padding.size() == 1) padding = Dims(spatial, padding[0]);
  if (padding.size() == spatial) padding.insert(padding.end(), padding.begin(), padding.end());
  CORE_CHECK(padding.size() == 2 * spatial) << node.Where() << ": padding " << ToText(padding)
                                            << " does not fit " << spatial << " spatial dimensions";
  window.pad_begin = Dims(padding.begin(), padding.begin() + spatial);
  window.pad_end = Dims(padding.begin() + spatial, padding.end());
  return window;
}

}  // namespace tvm::runtime::contrib::dnnl_backend
