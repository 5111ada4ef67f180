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
 * \file src/runtime/contrib/dnnl/core/plan/allocator.h
 * \brief Memory as oneDNN likes it: aligned, and on large pages where it is much.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_PLAN_ALLOCATOR_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_PLAN_ALLOCATOR_H_

#include <cstddef>
#include <memory>

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief Where tensors begin: at a cache line, which is also the widest vector register. */
constexpr size_t kAlignment = 64;

/*! \brief The number of bytes of a tensor and of the padding after it. */
inline size_t RoundUp(size_t bytes, size_t alignment = kAlignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

/*! \brief Memory of its own; a null pointer for no bytes. */
std::shared_ptr<void> AllocAligned(size_t bytes);

/*!
 * \brief Memory for many things that live about as long as each other.
 *
 * They lie side by side, so that large pages pay off: a run that streams through a hundred
 * megabytes of weights in small pages spends its time on finding the pages. A chunk is freed when
 * all that lies in it is.
 */
class MemoryPool {
 public:
  std::shared_ptr<void> Alloc(size_t bytes);

  /*! \brief Use the memory that the latest Alloc gave for the next one. */
  void TakeBack(const std::shared_ptr<void>& data);

 private:
  std::shared_ptr<void> chunk_;
  size_t chunk_bytes_{0};
  size_t used_{0};
};

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_PLAN_ALLOCATOR_H_
