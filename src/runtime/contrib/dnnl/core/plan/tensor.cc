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
 * \file src/runtime/contrib/dnnl/core/plan/tensor.cc
 * \brief Tensors of a plan: a piece of memory and the layout it is read with.
 */
#include "tensor.h"

#include <algorithm>
#include <vector>

#include "../error.h"

namespace tvm::runtime::contrib::dnnl_backend {

Tensor Tensor::Permuted(const std::vector<int>& axes) const {
  return Tensor{buffer, PermutedDesc(md, axes)};
}

namespace {

/*!
 * \brief Whether blocks hold padding that other dims would take for elements.
 *
 * oneDNN 3.2 loses the padding of a dimension of size one when it gives tensors other dims.
 */
bool WouldShowPadding(const dnnl::memory::desc& md, const Dims& dims) {
  if (md.get_format_kind() != dnnl::memory::format_kind::blocked) return false;
  const Dims from = md.get_dims(), padded = md.get_padded_dims();
  if (padded == from) return false;
  const auto without_ones = [](Dims sizes) {
    sizes.erase(std::remove(sizes.begin(), sizes.end(), 1), sizes.end());
    return sizes;
  };
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i] == 1 && padded[i] != 1) return true;
  }
  return without_ones(from) != without_ones(dims);
}

}  // namespace

Tensor Tensor::Reshaped(const Dims& dims) const {
  if (dims == md.get_dims()) return *this;
  CORE_CHECK(NumElements(dims) == NumElements(md.get_dims()))
      << "a tensor of shape " << ToText(md.get_dims()) << " cannot be reshaped to " << ToText(dims);
  // oneDNN gives new dimensions of size one strides that its own kernels do not recognise.
  if (IsPlain(md)) return Tensor{buffer, PlainDesc(dims, md.get_data_type())};
  if (WouldShowPadding(md, dims)) return Tensor{};
  const dnnl::memory::desc reshaped = md.reshape(dims, /*allow_empty=*/true);
  return reshaped ? Tensor{buffer, reshaped} : Tensor{};
}

}  // namespace tvm::runtime::contrib::dnnl_backend
