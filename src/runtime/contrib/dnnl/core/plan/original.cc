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
 * \file src/runtime/contrib/dnnl/core/plan/original.cc
 * \brief The original of a constant, which may be in a library's file, at any address.
 */
#include "original.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "../desc.h"
#include "../library.h"
#include "allocator.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief A part of a reorder: the descriptors, and where each is in its tensor, in bytes. */
struct Part {
  dnnl::memory::desc from, to;
  size_t from_offset, to_offset;
};

/*! \brief Divide the reorder of a large matrix along the axis whose items are farthest apart. */
std::vector<Part> PartsOf(const dnnl::memory::desc& from, const dnnl::memory::desc& to) {
  constexpr int64_t kPartBytes = 16 << 20;
  // A multiple of the blocks that oneDNN packs rows in, such as 48 and 64.
  constexpr int64_t kRows = 192;
  const std::vector<Part> one = {{from, to, 0, 0}};
  const auto item = static_cast<int64_t>(dnnl::memory::data_type_size(from.get_data_type()));
  const auto blocked = dnnl::memory::format_kind::blocked;
  // Packed weights of 8 bits are followed by sums of all of them.
  if (from.get_size() < 2 * kPartBytes || from.get_ndims() != 2 || item == 1 ||
      dnnl::memory::data_type_size(to.get_data_type()) == 1 || from.get_format_kind() != blocked ||
      to.get_format_kind() != blocked || !from.get_inner_blks().empty()) {
    return one;
  }
  const Dims dims = from.get_dims(), strides = from.get_strides();
  const int axis = strides[0] < strides[1] ? 1 : 0;
  const int64_t count = std::max<int64_t>(1, kPartBytes / (strides[axis] * item * kRows)) * kRows;
  std::vector<Part> parts;
  Slice slice{{0, 0}, dims, {1, 1}};
  for (int64_t begin = 0; begin < dims[axis]; begin += count) {
    slice.begin[axis] = begin;
    slice.dims[axis] = std::min(count, dims[axis] - begin);
    const auto [own_from, from_offset] = SlicedDesc(from, slice);
    const auto [own_to, to_offset] = SlicedDesc(to, slice);
    if (!own_from || !own_to) return one;
    parts.push_back({own_from, own_to, from_offset, to_offset});
  }
  return parts;
}

}  // namespace

bool IsAligned(const void* data, const dnnl::memory::desc& md) {
  return reinterpret_cast<uintptr_t>(data) % dnnl::memory::data_type_size(md.get_data_type()) == 0;
}

std::shared_ptr<void> AlignedCopy(const void* data, size_t bytes) {
  std::shared_ptr<void> copy = AllocAligned(bytes);
  std::memcpy(copy.get(), data, bytes);
  return copy;
}

void ReleaseOriginal(const void* data, size_t bytes) {
  const char* begin = static_cast<const char*>(data);
  if (bytes >= kFewBytes && !LibraryAt(begin).empty()) ReleasePages(begin, begin + bytes);
}

void ReorderOriginal(const dnnl::memory::desc& from, const void* data, const dnnl::memory::desc& to,
                     void* packed, bool may_release, const dnnl::engine& engine,
                     dnnl::stream* stream) {
  for (const Part& part : PartsOf(from, to)) {
    const char* own = static_cast<const char*>(data) + part.from_offset;
    const size_t bytes = part.from.get_size();
    std::shared_ptr<void> copy;
    if (!IsAligned(own, part.from)) copy = AlignedCopy(own, bytes);
    dnnl::memory src(part.from, engine, copy != nullptr ? copy.get() : const_cast<char*>(own));
    dnnl::memory dst(part.to, engine, static_cast<char*>(packed) + part.to_offset);
    dnnl::reorder(src, dst).execute(*stream, src, dst);
    stream->wait();
    if (may_release) ReleaseOriginal(own, bytes);
  }
}

}  // namespace tvm::runtime::contrib::dnnl_backend
