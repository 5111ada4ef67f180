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

#include <memory>
#include <string>
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
  return kernels_.Get(KeyOf(op), [&op]() {
    return std::make_shared<OpKernel>(op, std::vector<void*>(op.num_inputs));
  });
}

KernelCache* KernelCache::Global() {
  static auto* cache = new KernelCache(kCapacity);
  return cache;
}

}  // namespace dnnl_backend
}  // namespace contrib
}  // namespace runtime
}  // namespace tvm
