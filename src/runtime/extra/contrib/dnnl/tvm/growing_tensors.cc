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
 * \file src/runtime/extra/contrib/dnnl/tvm/growing_tensors.cc
 * \brief Tensors whose memory has room for what later calls append to them.
 */
#include "growing_tensors.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../../../../contrib/dnnl/core/plan/allocator.h"
#include "../../../../contrib/dnnl/core/plan/reserve.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief Memory of tensors that begin at the same address, with how many items are taken. */
class Memory {
 public:
  Memory(size_t bytes, int64_t taken) : data_(Alloc(bytes), std::free), taken_(taken) {}
  ~Memory() {
    const std::lock_guard<std::mutex> lock(*mutex_);
    known_->erase(data_.get());
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  static std::shared_ptr<Memory> New(size_t bytes, int64_t taken) {
    auto memory = std::make_shared<Memory>(bytes, taken);
    const std::lock_guard<std::mutex> lock(*mutex_);
    (*known_)[memory->data()] = memory;
    return memory;
  }

  /*! \brief The memory that begins at an address; null where it is none of ours. */
  static std::shared_ptr<Memory> At(const void* data) {
    const std::lock_guard<std::mutex> lock(*mutex_);
    const auto it = known_->find(data);
    return it == known_->end() ? nullptr : it->second.lock();
  }

  void* data() const { return data_.get(); }

  /*! \brief Take the items [from, to) unless somebody has. */
  bool Take(int64_t from, int64_t to) { return taken_.compare_exchange_strong(from, to); }

 private:
  // Never destroyed: tensors may outlive the static objects of this library.
  static std::mutex* const mutex_;
  static std::unordered_map<const void*, std::weak_ptr<Memory>>* const known_;

  /*! \brief No large pages, which a tensor that has grown to one more would leave empty. */
  static void* Alloc(size_t bytes) {
    void* const data = std::aligned_alloc(kAlignment, RoundUp(std::max<size_t>(1, bytes)));
    if (data == nullptr) throw std::bad_alloc();
    return data;
  }

  const std::unique_ptr<void, decltype(&std::free)> data_;
  std::atomic<int64_t> taken_;
};

std::mutex* const Memory::mutex_ = new std::mutex;
std::unordered_map<const void*, std::weak_ptr<Memory>>* const Memory::known_ =
    new std::unordered_map<const void*, std::weak_ptr<Memory>>;

std::vector<int64_t> DimsOf(const ffi::Shape& shape) { return {shape.begin(), shape.end()}; }

/*! \brief A tensor in some memory, which it keeps. */
ffi::Tensor View(std::shared_ptr<Memory> memory, const std::vector<int64_t>& shape,
                 DLDataType dtype, int axis) {
  struct Viewed {
    std::shared_ptr<Memory> memory;
    std::vector<int64_t> shape, strides;
    DLManagedTensor tensor;
  };
  auto* view = new Viewed{std::move(memory), shape, ReservedStrides(shape, axis), {}};
  view->tensor.dl_tensor = {view->memory->data(),
                            {kDLCPU, 0},
                            static_cast<int32_t>(shape.size()),
                            dtype,
                            view->shape.data(),
                            view->strides.data(),
                            0};
  view->tensor.manager_ctx = view;
  view->tensor.deleter = [](DLManagedTensor* tensor) {
    delete static_cast<Viewed*>(tensor->manager_ctx);
  };
  return ffi::Tensor::FromDLPack(&view->tensor);
}

std::vector<int64_t> StridesOf(const DLTensor& tensor) {
  if (tensor.strides != nullptr) return {tensor.strides, tensor.strides + tensor.ndim};
  return ReservedStrides({tensor.shape, tensor.shape + tensor.ndim}, -1);
}

/*! \brief Whether the dimensions from an axis on are row-major without gaps. */
bool IsDense(const std::vector<int64_t>& dims, const std::vector<int64_t>& strides, int axis) {
  int64_t expected = 1;
  for (int i = static_cast<int>(dims.size()) - 1; i >= axis; --i) {
    if (dims[i] != 1 && strides[i] != expected) return false;
    expected *= dims[i];
  }
  return true;
}

}  // namespace

ffi::Tensor NewTensor(const ffi::Shape& shape, DLDataType dtype, int axis) {
  const std::vector<int64_t> dims = DimsOf(shape);
  std::vector<int64_t> sizes = dims;
  if (axis >= 0) sizes[axis] = ReservedSize(dims[axis]);
  const size_t bytes = ffi::GetDataSize(NumElements(sizes), dtype);
  return View(Memory::New(bytes, axis < 0 ? 0 : dims[axis]), dims, dtype, axis);
}

void Reserve(int axis, ffi::Tensor* past) {
  const ffi::Tensor& from = *past;
  const DLTensor& given = *from.GetDLTensorPtr();
  const std::vector<int64_t> dims = DimsOf(from.shape());
  const std::vector<int64_t> strides = StridesOf(given);
  // Others are refused when they are checked.
  if (axis >= static_cast<int>(dims.size()) || HasStrides(given, axis) ||
      !IsDense(dims, strides, axis)) {
    return;
  }
  const ffi::Tensor to = NewTensor(from.shape(), from.dtype(), axis);
  const int64_t items = NumElements(Dims(dims.begin(), dims.begin() + axis));
  const int64_t count = NumElements(Dims(dims.begin() + axis, dims.end()));
  const size_t bytes = ffi::GetDataSize(count, from.dtype());
  const size_t stride = ffi::GetDataSize(to.strides()[axis - 1], from.dtype());
  const auto* const source = static_cast<const char*>(from.data_ptr()) + from.byte_offset();
  for (int64_t i = 0; i < items; ++i) {
    int64_t offset = 0, index = i;
    for (int d = axis - 1; d >= 0; --d) {
      offset += index % dims[d] * strides[d];
      index /= dims[d];
    }
    // Negative strides are possible.
    const int64_t begin = offset * static_cast<int64_t>(ffi::GetDataSize(1, from.dtype()));
    std::memcpy(static_cast<char*>(to.data_ptr()) + i * stride, source + begin, bytes);
  }
  *past = to;
}

ffi::Tensor Longer(const ffi::Tensor& past, const ffi::Shape& shape, int axis) {
  const std::vector<int64_t> from = DimsOf(past.shape()), to = DimsOf(shape);
  std::vector<int64_t> dims = to;
  if (from.size() == to.size()) dims[axis] = from[axis];
  const bool is_longer =
      dims == from && from[axis] <= to[axis] && ReservedSize(from[axis]) == ReservedSize(to[axis]);
  if (is_longer && past.byte_offset() == 0 && HasStrides(*past.GetDLTensorPtr(), axis)) {
    const std::shared_ptr<Memory> memory = Memory::At(past.data_ptr());
    if (memory != nullptr && memory->Take(from[axis], to[axis])) {
      return View(memory, to, past.dtype(), axis);
    }
  }
  return NewTensor(shape, past.dtype(), axis);
}

}  // namespace tvm::runtime::contrib::dnnl_backend
