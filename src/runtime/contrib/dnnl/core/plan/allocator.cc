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
 * \file src/runtime/contrib/dnnl/core/plan/allocator.cc
 * \brief Memory as oneDNN likes it: aligned, and on large pages where it is much.
 */
#include "allocator.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief The size of a large page on the CPUs that oneDNN is for. */
constexpr size_t kLargePage = size_t{2} << 20;
/*! \brief Chunks double in size between these, so that little is left over in the last one. */
constexpr size_t kFirstChunk = size_t{16} << 10;
constexpr size_t kLastChunk = size_t{32} << 20;

}  // namespace

std::shared_ptr<void> AllocAligned(size_t bytes) {
  if (bytes == 0) return nullptr;
  const size_t alignment = bytes >= kLargePage ? kLargePage : kAlignment;
  void* data = std::aligned_alloc(alignment, RoundUp(bytes, alignment));
  if (data == nullptr) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
  // Without large pages it works as well; it is only slower.
  if (bytes >= kLargePage) madvise(data, RoundUp(bytes, alignment), MADV_HUGEPAGE);
#endif
  return std::shared_ptr<void>(data, std::free);
}

std::shared_ptr<void> MemoryPool::Alloc(size_t bytes) {
  if (bytes == 0) return nullptr;
  // A block as large as a chunk gets a chunk of its own, and the chunk at hand stays in use.
  if (bytes >= kLastChunk) return AllocAligned(bytes);
  if (used_ + bytes > chunk_bytes_) {
    chunk_bytes_ = std::min(std::max(2 * chunk_bytes_, kFirstChunk), kLastChunk);
    while (chunk_bytes_ < bytes) chunk_bytes_ *= 2;
    chunk_ = AllocAligned(chunk_bytes_);
    used_ = 0;
  }
  void* data = static_cast<char*>(chunk_.get()) + used_;
  used_ = RoundUp(used_ + bytes);
  return std::shared_ptr<void>(chunk_, data);
}

void MemoryPool::TakeBack(const std::shared_ptr<void>& data) {
  const auto* begin = static_cast<const char*>(chunk_.get());
  const auto* at = static_cast<const char*>(data.get());
  if (chunk_ != nullptr && at >= begin && at < begin + used_) used_ = at - begin;
}

}  // namespace tvm::runtime::contrib::dnnl_backend
