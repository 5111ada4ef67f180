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

namespace tvm::runtime::contrib::dnnl_backend {

std::vector<int> InversePermutation(const std::vector<int>& axes) {
  std::vector<int> inverse(axes.size());
  for (size_t i = 0; i < axes.size(); ++i) inverse[axes[i]] = static_cast<int>(i);
  return inverse;
}

dnnl::memory::desc PermutedDesc(const dnnl::memory::desc& md, const std::vector<int>& axes) {
  // oneDNN's argument says where each dimension goes, ours where each one comes from.
  return md.permute_axes(InversePermutation(axes));
}

Dims PermutedDims(const Dims& dims, const std::vector<int>& axes) {
  Dims permuted;
  for (int axis : axes) permuted.push_back(dims[axis]);
  return permuted;
}

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
  // oneDNN gives new dimensions of size one strides that its own kernels do not recognise.
  if (IsPlain(md)) return Tensor{buffer, PlainDesc(dims, md.get_data_type())};
  if (WouldShowPadding(md, dims)) return Tensor{};
  const dnnl::memory::desc reshaped = md.reshape(dims, /*allow_empty=*/true);
  return reshaped ? Tensor{buffer, reshaped} : Tensor{};
}

namespace {

/*! \brief For each dimension the product of its inner blocks. */
Dims BlockSizes(const dnnl::memory::desc& md) {
  Dims sizes(md.get_ndims(), 1);
  const Dims blocks = md.get_inner_blks();
  const Dims axes = md.get_inner_idxs();
  for (size_t i = 0; i < blocks.size(); ++i) sizes[axes[i]] *= blocks[i];
  return sizes;
}

}  // namespace

bool IsSameInMemory(const dnnl::memory::desc& a, const dnnl::memory::desc& b) {
  if (a == b) return true;
  const auto blocked = dnnl::memory::format_kind::blocked;
  if (a.get_format_kind() != blocked || b.get_format_kind() != blocked) return false;
  if (a.get_dims() != b.get_dims() || a.get_data_type() != b.get_data_type()) return false;
  if (a.get_padded_dims() != b.get_padded_dims()) return false;
  if (a.get_inner_blks() != b.get_inner_blks() || a.get_inner_idxs() != b.get_inner_idxs()) {
    return false;
  }
  const Dims blocks = BlockSizes(a), padded = a.get_padded_dims();
  const Dims a_strides = a.get_strides(), b_strides = b.get_strides();
  for (size_t i = 0; i < blocks.size(); ++i) {
    // The stride of the only block is never used.
    if (padded[i] != blocks[i] && a_strides[i] != b_strides[i]) return false;
  }
  return true;
}

std::pair<dnnl::memory::desc, size_t> SlicedDesc(const dnnl::memory::desc& md, const Slice& slice) {
  // A descriptor made without arguments would count as one.
  const std::pair<dnnl::memory::desc, size_t> none{dnnl_memory_desc_t{nullptr}, 0};
  if (md.get_format_kind() != dnnl::memory::format_kind::blocked) return none;
  const Dims blocks = BlockSizes(md);
  Dims strides = md.get_strides();
  int64_t offset = 0;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const bool is_whole = slice.dims[i] == md.get_dims()[i];
    const bool is_blocks = slice.begin[i] % blocks[i] == 0 && slice.dims[i] % blocks[i] == 0;
    if (blocks[i] != 1 && !is_whole && (!is_blocks || slice.steps[i] != 1)) return none;
    offset += slice.begin[i] / blocks[i] * strides[i];
    strides[i] *= slice.steps[i];
  }
  const size_t bytes = offset * dnnl::memory::data_type_size(md.get_data_type());
  if (md.get_inner_blks().empty()) {
    return {dnnl::memory::desc(slice.dims, md.get_data_type(), strides), bytes};
  }
  // With blocks there are no strides to give: oneDNN makes the part at the beginning.
  if (strides != md.get_strides()) return none;
  const Dims nowhere(blocks.size(), 0);
  return {md.submemory_desc(slice.dims, nowhere, /*allow_empty=*/true), bytes};
}

}  // namespace tvm::runtime::contrib::dnnl_backend
