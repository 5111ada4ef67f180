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
 * \file src/runtime/contrib/dnnl/c_source/kernels.cc
 * \brief The C functions of dnnl_kernel.h: errors become codes here, and no exception leaves.
 */
#include <tvm/runtime/container/string.h>
#include <tvm/runtime/data_type.h>
#include <tvm/runtime/logging.h>
#include <tvm/runtime/registry.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "../../json/json_graph.h"
#include "../core/exec/profile.h"
#include "../core/library.h"
#include "../dnnl_kernel.h"
#include "../tvm/errors.h"
#include "kernel_cache.h"
#include "op_kernel.h"

namespace tvm {
namespace runtime {
namespace contrib {
namespace dnnl_backend {

namespace {

/*!
 * \brief The kernels of the ops that are prepared, by address: the ops of a function are one array.
 *
 * TVMDNNLOp::kernel points at an op's kernel, which lives here until the op is released. oneDNN's
 * own cache of primitives is no substitute: it has no plan, no packed constants and no owner.
 */
struct PreparedOps {
  /*! \brief Held while ops are prepared, so that each is prepared once. */
  std::mutex mutex;
  std::map<const TVMDNNLOp*, std::shared_ptr<OpKernel>> kernels;

  /*! \brief Those of the process. They are never destroyed, so that they may be used at exit. */
  static PreparedOps* Global() {
    static auto* ops = new PreparedOps;
    return ops;
  }
};

// The slot is plain C, yet one thread may read it while another one prepares the op.
std::atomic<void*>* SlotOf(TVMDNNLOp* op) {
  static_assert(sizeof(std::atomic<void*>) == sizeof(void*), "an atomic pointer is a pointer");
  return reinterpret_cast<std::atomic<void*>*>(&op->kernel);
}

OpKernel* KernelOf(TVMDNNLOp* op) {
  return static_cast<OpKernel*>(SlotOf(op)->load(std::memory_order_acquire));
}

/*!
 * \brief Whether the process is ending.
 *
 * A library of generated code releases its ops when it is unloaded, which for most is after the
 * static objects of this library and of oneDNN are gone. What is left then goes with the process.
 */
std::atomic<bool> is_exiting{false};

struct ExitWatch {
  ~ExitWatch() { is_exiting = true; }
};
const ExitWatch exit_watch;

std::shared_ptr<OpKernel> MakeKernel(const TVMDNNLOp& op, const std::vector<void*>& constants) {
  for (void* address : constants) {
    if (address != nullptr) return std::make_shared<OpKernel>(op, constants);
  }
  // Without constants of its own, it may as well serve others of its kind.
  return KernelCache::Global()->Get(op);
}

/*! \brief From here on the op runs with this kernel. */
OpKernel* Install(const std::shared_ptr<OpKernel>& kernel, TVMDNNLOp* op) {
  PreparedOps::Global()->kernels[op] = kernel;
  SlotOf(op)->store(kernel.get(), std::memory_order_release);
  return kernel.get();
}

/*! \brief The address of a constant's values, once it is known to be what the op expects. */
void* ConstantData(const TVMDNNLOp& op, int index, const DLTensor* value) {
  const TVMDNNLTensor& expected = op.tensors[index];
  ICHECK(value != nullptr && value->data != nullptr)
      << WhereIs(op) << ": the constant of input " << index << " is missing";
  const bool is_same = value->ndim == expected.ndim &&
                       std::equal(value->shape, value->shape + value->ndim, expected.shape) &&
                       DLDataType2String(value->dtype) == expected.dtype;
  ICHECK(is_same) << WhereIs(op) << ": the constant of input " << index
                  << " has a different type or shape than the op's input";
  return static_cast<char*>(value->data) + value->byte_offset;
}

std::vector<void*> ConstantsAmong(const TVMDNNLOp& op, void* const* data) {
  std::vector<void*> constants(op.num_inputs);
  for (int i = 0; i < op.num_inputs; ++i) {
    if (op.tensors[i].constant == 0) continue;
    ICHECK(data[i] != nullptr) << WhereIs(op) << ": input " << i << ", a constant, is null";
    constants[i] = data[i];
  }
  return constants;
}

void Prepare(TVMDNNLOp* ops, int num_ops, DLTensor* const* constants) {
  std::lock_guard<std::mutex> lock(PreparedOps::Global()->mutex);
  std::vector<std::shared_ptr<OpKernel>> kernels(num_ops);
  for (int i = 0; i < num_ops; ++i) {
    if (KernelOf(&ops[i]) != nullptr) continue;
    std::vector<void*> addresses(ops[i].num_inputs);
    for (int j = 0; j < ops[i].num_inputs; ++j) {
      const int number = ops[i].tensors[j].constant;
      if (number > 0) addresses[j] = ConstantData(ops[i], j, constants[number - 1]);
    }
    kernels[i] = MakeKernel(ops[i], addresses);
  }
  for (int i = 0; i < num_ops; ++i) {
    if (kernels[i]) Install(kernels[i], &ops[i]);
  }
}

OpKernel* PrepareNow(TVMDNNLOp* op, void* const* data) {
  std::lock_guard<std::mutex> lock(PreparedOps::Global()->mutex);
  if (OpKernel* kernel = KernelOf(op)) return kernel;
  return Install(MakeKernel(*op, ConstantsAmong(*op, data)), op);
}

void Release(TVMDNNLOp* ops, int num_ops) {
  std::lock_guard<std::mutex> lock(PreparedOps::Global()->mutex);
  for (int i = 0; i < num_ops; ++i) {
    SlotOf(&ops[i])->store(nullptr);
    PreparedOps::Global()->kernels.erase(&ops[i]);
  }
}

/*! \brief The plans of the ops that the library at a path has prepared, as a list in JSON. */
std::string DescribePrepared(const std::string& library) {
  std::lock_guard<std::mutex> lock(PreparedOps::Global()->mutex);
  std::string list;
  for (const auto& [op, kernel] : PreparedOps::Global()->kernels) {
    if (LibraryAt(op) != library) continue;
    list += (list.empty() ? "" : ",\n") + DescribePlan(op->symbol, kernel->plan());
  }
  return "[" + list + "]";
}

TVM_REGISTER_GLOBAL("runtime.contrib.dnnl.get_op_plans").set_body_typed([](String library) {
  return String(DescribePrepared(library));
});

/*! \brief Make an exception TVM's last error. */
void ReportError(const TVMDNNLOp* op, const std::exception& error) noexcept {
  try {
    std::string text = json::detail::ErrorMessage(error);
    // An error that is not ours, such as a lack of memory, does not name the op.
    if (op != nullptr && text.find(op->symbol) == std::string::npos) {
      text = WhereIs(*op) + ": " + text;
    }
    TVMAPISetLastError(text.c_str());
  } catch (...) {
    TVMAPISetLastError("a kernel of the DNNL backend failed, and memory is too short to say how");
  }
}

/*! \brief Run a function; whatever it throws becomes TVM's last error. */
template <typename Function>
int Guard(const TVMDNNLOp* op, Function function) {
  try {
    WithTVMErrors(function);
    return 0;
  } catch (const std::exception& error) {
    ReportError(op, error);
  } catch (...) {
    TVMAPISetLastError("a kernel of the DNNL backend failed for an unknown reason");
  }
  return -1;
}

}  // namespace

}  // namespace dnnl_backend
}  // namespace contrib
}  // namespace runtime
}  // namespace tvm

namespace backend = tvm::runtime::contrib::dnnl_backend;

int TVMDNNLPrepareOps(TVMDNNLOp* ops, int32_t num_ops, DLTensor* const* constants) {
  return backend::Guard(nullptr, [&]() { backend::Prepare(ops, num_ops, constants); });
}

int TVMDNNLRunOp(TVMDNNLOp* op, void* const* data) {
  return backend::Guard(op, [&]() {
    backend::OpKernel* kernel = backend::KernelOf(op);
    if (kernel == nullptr) kernel = backend::PrepareNow(op, data);
    kernel->Run(*op, data);
  });
}

int TVMDNNLReleaseOps(TVMDNNLOp* ops, int32_t num_ops) {
  if (backend::is_exiting) return 0;
  return backend::Guard(nullptr, [&]() { backend::Release(ops, num_ops); });
}

int TVMDNNLRunOnce(const TVMDNNLOp* op, void* const* data) {
  return backend::Guard(op, [&]() { backend::KernelCache::Global()->Get(*op)->Run(*op, data); });
}
