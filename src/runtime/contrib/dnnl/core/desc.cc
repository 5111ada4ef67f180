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
 * \file src/runtime/contrib/dnnl/core/desc.cc
 * \brief Dims, data types and memory descriptors.
 */
#include "desc.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "error.h"

namespace tvm::runtime::contrib::dnnl_backend {

dnnl::memory::data_type ToDNNLType(DLDataType dtype, const std::string& where) {
  using Type = dnnl::memory::data_type;
  const auto is = [&dtype](int code, int bits) {
    return dtype.code == code && dtype.bits == bits && dtype.lanes == 1;
  };
  if (is(kDLFloat, 32)) return Type::f32;
  if (is(kDLBfloat, 16)) return Type::bf16;
  if (is(kDLFloat, 16)) return Type::f16;
  if (is(kDLInt, 32)) return Type::s32;
  if (is(kDLInt, 8)) return Type::s8;
  // TVM's bool has one bit, but takes up a byte that is 0 or 1.
  if (is(kDLUInt, 8) || is(kDLUInt, 1)) return Type::u8;
  CORE_FAIL() << where << ": oneDNN has no data type " << ToText(dtype);
}

Dims ToDims(const std::vector<int64_t>& shape, const std::string& where, bool may_be_empty) {
  CORE_CHECK(shape.size() <= DNNL_MAX_NDIMS)
      << where << ": rank " << shape.size() << " exceeds oneDNN's limit of " << DNNL_MAX_NDIMS;
  for (int64_t dim : shape) {
    CORE_CHECK(dim > 0 || (may_be_empty && dim == 0))
        << where << ": shape " << ToText(shape)
        << (dim < 0 ? " has a dimension that is not static" : " has a dimension of size zero");
  }
  return shape.empty() ? Dims{1} : Dims(shape.begin(), shape.end());
}

void CheckType(const TensorType& type, const std::string& where, bool may_be_empty) {
  // With more, oneDNN 3.2 divides by zero in some primitives, and takes minutes to make others.
  constexpr int64_t kMaxElements = std::numeric_limits<int32_t>::max();
  ToDNNLType(type.dtype, where);
  int64_t elements = 1;
  for (int64_t dim : ToDims(type.shape, where, may_be_empty)) {
    CORE_CHECK(dim <= kMaxElements / elements)
        << where << ": shape " << ToText(type.shape) << " exceeds the limit of " << kMaxElements
        << " elements";
    elements *= std::max<int64_t>(dim, 1);
  }
}

dnnl::memory::desc PlainDesc(const Dims& dims, dnnl::memory::data_type dtype) {
  Dims strides(dims.size(), 1);
  for (int i = static_cast<int>(dims.size()) - 2; i >= 0; --i) {
    strides[i] = strides[i + 1] * dims[i + 1];
  }
  return dnnl::memory::desc(dims, dtype, strides);
}

dnnl::memory::desc AnyDesc(const dnnl::memory::desc& md) {
  return dnnl::memory::desc(md.get_dims(), md.get_data_type(), dnnl::memory::format_tag::any);
}

bool IsPlain(const dnnl::memory::desc& md) {
  if (md.get_format_kind() != dnnl::memory::format_kind::blocked) return false;
  const Dims dims = md.get_dims();
  const Dims strides = md.get_strides();
  if (!md.get_inner_blks().empty() || md.get_padded_dims() != dims) return false;
  if (md.get_submemory_offset() != 0) return false;
  int64_t expected = 1;
  for (int i = static_cast<int>(dims.size()) - 1; i >= 0; --i) {
    // The stride of a dimension of size one is never used, whatever its value.
    if (dims[i] != 1 && strides[i] != expected) return false;
    expected *= dims[i];
  }
  return true;
}

dnnl::memory::desc InBlocksOf(const dnnl::memory::desc& md, const Dims& dims,
                              dnnl::memory::data_type dtype) {
  using Tag = dnnl::memory::format_tag;
  static constexpr Tag kBlocks[][2] = {
      {Tag::nCw8c, Tag::nCw16c}, {Tag::nChw8c, Tag::nChw16c}, {Tag::nCdhw8c, Tag::nCdhw16c}};
  const int rank = static_cast<int>(dims.size()) - 3;
  if (rank < 0 || rank >= static_cast<int>(std::size(kBlocks))) return {};
  if (md.get_format_kind() != dnnl::memory::format_kind::blocked) return {};
  const Dims blocks = md.get_inner_blks();
  if (md.get_inner_idxs() != Dims{1} || (blocks != Dims{8} && blocks != Dims{16})) return {};
  return dnnl::memory::desc(dims, dtype, kBlocks[rank][blocks[0] == 16]);
}

dnnl::memory::desc WithUsualStrides(const dnnl::memory::desc& md) {
  const Dims dims = md.get_dims();
  if (IsPlain(md)) return PlainDesc(dims, md.get_data_type());
  if (md.get_ndims() < 3 || md.get_ndims() > 5) return md;
  // Two are equal if only strides of dimensions of size one differ.
  if (md == ChannelsLast(md)) return ChannelsLast(md);
  const dnnl::memory::desc blocks = InBlocksOf(md, dims, md.get_data_type());
  return md == blocks ? blocks : md;
}

namespace {

/*! \brief The dense descriptor with the dimensions in an order in memory, the outermost first. */
dnnl::memory::desc DenseDesc(const Dims& dims, dnnl::memory::data_type dtype,
                             const std::vector<int>& order) {
  return PermutedDesc(PlainDesc(PermutedDims(dims, order), dtype), InversePermutation(order));
}

}  // namespace

dnnl::memory::desc ChannelsLast(const dnnl::memory::desc& md) {
  std::vector<int> order = {0};
  for (int i = 2; i < md.get_ndims(); ++i) order.push_back(i);
  order.push_back(1);
  return DenseDesc(md.get_dims(), md.get_data_type(), order);
}

dnnl::memory::desc InOrderOf(const dnnl::memory::desc& md, const Dims& dims) {
  return DenseDesc(dims, md.get_data_type(), OrderByStride(md.get_strides()));
}

std::vector<int> InversePermutation(const std::vector<int>& axes) {
  std::vector<int> inverse(axes.size());
  for (size_t i = 0; i < axes.size(); ++i) inverse[axes[i]] = static_cast<int>(i);
  return inverse;
}

std::vector<int> OrderByStride(const Dims& strides) {
  std::vector<int> order(strides.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&strides](int a, int b) { return strides[a] > strides[b]; });
  return order;
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

namespace {

/*! \brief For each dimension the product of its inner blocks. */
Dims InnerBlocks(const dnnl::memory::desc& md) {
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
  const Dims blocks = InnerBlocks(a), padded = a.get_padded_dims();
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
  const Dims blocks = InnerBlocks(md);
  Dims strides = md.get_strides();
  int64_t offset = 0;
  const Dims dims = md.get_dims();
  for (size_t i = 0; i < blocks.size(); ++i) {
    const int64_t last = slice.begin[i] + (slice.dims[i] - 1) * slice.steps[i];
    CORE_CHECK(slice.begin[i] >= 0 && slice.dims[i] > 0 && last < dims[i])
        << "a part from " << ToText(slice.begin) << " on, of " << ToText(slice.dims)
        << " in steps of " << ToText(slice.steps) << ", is outside of a tensor of shape "
        << ToText(dims);
    const bool is_all = slice.dims[i] == dims[i];
    const bool is_blocks = slice.begin[i] % blocks[i] == 0 && slice.dims[i] % blocks[i] == 0;
    if (blocks[i] != 1 && !is_all && (!is_blocks || slice.steps[i] != 1)) return none;
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

int64_t NumElements(const Dims& dims) {
  return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<int64_t>());
}

std::string ToText(const Dims& dims) {
  std::ostringstream os;
  os << "[";
  for (size_t i = 0; i < dims.size(); ++i) os << (i ? ", " : "") << dims[i];
  os << "]";
  return os.str();
}

DLDataType WithOneBool(DLDataType dtype) {
  constexpr int kBoolCode = 6;  // kDLBool, which older dlpack.h lack
  if (dtype.code == kBoolCode && dtype.bits == 8) return {kDLUInt, 1, dtype.lanes};
  return dtype;
}

std::string ToText(DLDataType dtype) {
  if (dtype.code == kDLUInt && dtype.bits == 1 && dtype.lanes == 1) return "bool";
  std::ostringstream os;
  switch (dtype.code) {
    case kDLInt:
      os << "int";
      break;
    case kDLUInt:
      os << "uint";
      break;
    case kDLFloat:
      os << "float";
      break;
    case kDLBfloat:
      os << "bfloat";
      break;
    default:
      os << "type" << static_cast<int>(dtype.code) << "_";
  }
  os << static_cast<int>(dtype.bits);
  if (dtype.lanes != 1) os << "x" << dtype.lanes;
  return os.str();
}

std::string ToText(const TensorType& type) { return ToText(type.dtype) + " " + ToText(type.shape); }

std::string LayoutText(const dnnl::memory::desc& md) {
  if (md.get_format_kind() != dnnl::memory::format_kind::blocked) return "opaque";
  const Dims strides = md.get_strides();
  const Dims blocks = md.get_inner_blks();
  const Dims block_axes = md.get_inner_idxs();
  std::ostringstream os;
  for (int axis : OrderByStride(strides)) {
    const bool is_blocked = std::count(block_axes.begin(), block_axes.end(), axis) > 0;
    os << static_cast<char>((is_blocked ? 'A' : 'a') + axis);
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    os << blocks[i] << static_cast<char>('a' + block_axes[i]);
  }
  return os.str();
}

}  // namespace tvm::runtime::contrib::dnnl_backend
