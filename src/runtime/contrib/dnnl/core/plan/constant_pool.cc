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
 * \file src/runtime/contrib/dnnl/core/plan/constant_pool.cc
 * \brief Constants that are the same in several plans of a process are in memory once.
 */
#include "constant_pool.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace tvm {
namespace runtime {
namespace contrib {
namespace dnnl_backend {

namespace {

/*! \brief To note less than this costs more than it saves. */
constexpr size_t kFewBytes = 4096;

/*!
 * \brief A number that equal bytes have in common. It looks at a word here and there: what is in
 *        question is compared as a whole anyway.
 */
uint64_t Fingerprint(const void* data, size_t bytes) {
  constexpr size_t kWords = 256;
  const size_t step = std::max(sizeof(uint64_t), bytes / kWords);
  uint64_t print = bytes;
  for (size_t at = 0; at + sizeof(uint64_t) <= bytes; at += step) {
    uint64_t word;
    std::memcpy(&word, static_cast<const char*>(data) + at, sizeof(word));
    // The multiplier of Fowler, Noll and Vo's hash.
    print = (print ^ word) * 0x100000001b3;
    print ^= print >> 32;
  }
  return print;
}

}  // namespace

SharedConstants* SharedConstants::Global() {
  // Never destroyed: plans may outlive the static objects of this library.
  static auto* constants = new SharedConstants;
  return constants;
}

std::shared_ptr<void> SharedConstants::Share(std::shared_ptr<void> data, size_t bytes) {
  if (bytes < kFewBytes) return data;
  const uint64_t print = Fingerprint(data.get(), bytes);
  std::lock_guard<std::mutex> lock(mutex_);
  const auto [begin, end] = known_.equal_range(print);
  for (auto it = begin; it != end; ++it) {
    std::shared_ptr<void> other = it->second.data.lock();
    if (other == nullptr || it->second.bytes != bytes) continue;
    if (other.get() == data.get() || std::memcmp(other.get(), data.get(), bytes) == 0) return other;
  }
  if (known_.size() >= next_removal_) RemoveExpired();
  known_.emplace(print, Known{data, bytes});
  return data;
}

void SharedConstants::RemoveExpired() {
  for (auto it = known_.begin(); it != known_.end();) {
    it = it->second.data.expired() ? known_.erase(it) : std::next(it);
  }
  next_removal_ = std::max<size_t>(1024, 2 * known_.size());
}

}  // namespace dnnl_backend
}  // namespace contrib
}  // namespace runtime
}  // namespace tvm
