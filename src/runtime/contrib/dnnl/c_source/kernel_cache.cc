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
 * \file src/runtime/contrib/dnnl/c_source/kernel_cache.cc
 * \brief The kernels of ops that are described anew at each call.
 */
#include "kernel_cache.h"

#include <vector>

namespace tvm {
namespace runtime {
namespace contrib {
namespace dnnl_backend {

namespace {

/*! \brief More ops than one program calls in turn; a kernel is a few kilobytes and its workspace.
 */
constexpr size_t kCapacity = 128;

}  // namespace

std::string KeyOf(const TVMDNNLOp& op) {
  // A separator that no name or value holds: a C string ends there.
  constexpr char kEnd = '\0';
  std::string key = std::string(op.name) + kEnd;
  for (int i = 0; i < op.num_attrs; ++i) {
    key += std::string(op.attrs[i].name) + kEnd + op.attrs[i].value + kEnd;
  }
  key += kEnd;
  for (int i = 0; i < op.num_inputs + op.num_outputs; ++i) {
    const TVMDNNLTensor& tensor = op.tensors[i];
    key += std::string(tensor.dtype) + (i < op.num_inputs ? '<' : '>');
    for (int d = 0; d < tensor.ndim && d < TVM_DNNL_MAX_NDIM; ++d) {
      key += std::to_string(tensor.shape[d]) + ',';
    }
    key += kEnd;
  }
  return key;
}

std::shared_ptr<OpKernel> KernelCache::Get(const TVMDNNLOp& op) {
  const std::string key = KeyOf(op);
  std::promise<std::shared_ptr<OpKernel>> promise;
  Future future;
  bool is_new = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto it = by_key_.find(key);
    if (it != by_key_.end()) {
      entries_.splice(entries_.begin(), entries_, it->second);
      future = it->second->second;
    } else {
      is_new = true;
      future = promise.get_future().share();
      entries_.emplace_front(key, future);
      by_key_[key] = entries_.begin();
      if (entries_.size() > capacity_) {
        by_key_.erase(entries_.back().first);
        entries_.pop_back();
      }
    }
  }
  if (is_new) {
    try {
      promise.set_value(std::make_shared<OpKernel>(op, std::vector<void*>(op.num_inputs)));
    } catch (...) {
      // Others may be waiting for it. The next call tries again: memory may have been short.
      promise.set_exception(std::current_exception());
      Drop(key);
    }
  }
  return future.get();
}

void KernelCache::Drop(const std::string& key) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto it = by_key_.find(key);
  if (it == by_key_.end()) return;
  entries_.erase(it->second);
  by_key_.erase(it);
}

size_t KernelCache::size() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return entries_.size();
}

KernelCache* KernelCache::Global() {
  static auto* cache = new KernelCache(kCapacity);
  return cache;
}

}  // namespace dnnl_backend
}  // namespace contrib
}  // namespace runtime
}  // namespace tvm
