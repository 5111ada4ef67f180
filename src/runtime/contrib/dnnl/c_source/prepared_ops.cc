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
 * \file src/runtime/contrib/dnnl/c_source/prepared_ops.cc
 * \brief The ops of generated C source that are ready to run now, for those who want to look.
 */
#include "prepared_ops.h"

#include <tvm/runtime/container/string.h>
#include <tvm/runtime/registry.h>

#include "../core/exec/profile.h"
#include "../core/library.h"

namespace tvm {
namespace runtime {
namespace contrib {
namespace dnnl_backend {

void PreparedOps::Add(const TVMDNNLOp* op, std::shared_ptr<OpKernel> kernel) {
  std::lock_guard<std::mutex> lock(mutex_);
  kernels_[op] = std::move(kernel);
}

void PreparedOps::Remove(const TVMDNNLOp* op) {
  std::lock_guard<std::mutex> lock(mutex_);
  kernels_.erase(op);
}

std::string PreparedOps::Describe(const std::string& library) const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::string list;
  for (const auto& [op, kernel] : kernels_) {
    if (LibraryAt(op) != library) continue;
    list += (list.empty() ? "" : ",\n") + DescribePlan(op->symbol, kernel->plan());
  }
  return "[" + list + "]";
}

PreparedOps* PreparedOps::Global() {
  static auto* ops = new PreparedOps;
  return ops;
}

TVM_REGISTER_GLOBAL("runtime.contrib.dnnl.get_op_plans").set_body_typed([](String library) {
  return String(PreparedOps::Global()->Describe(library));
});

}  // namespace dnnl_backend
}  // namespace contrib
}  // namespace runtime
}  // namespace tvm
