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
 * \file src/runtime/contrib/dnnl/core/plan/plan_constants.cc
 * \brief The constants of a plan that is built: packed at once, and in memory once.
 */
#include <memory>
#include <utility>
#include <vector>

#include "constant_pool.h"
#include "plan_builder.h"

namespace tvm {
namespace runtime {
namespace contrib {
namespace dnnl_backend {

void PlanBuilder::AddConstant(const Entry& entry, const NDArray& value, const std::string& where) {
  const ShapeTuple shape = value.Shape();
  const Dims dims = ToDims({shape.begin(), shape.end()}, where);
  const auto md = PlainDesc(dims, ToDNNLType(value.DataType(), where));
  ICHECK(value.IsContiguous()) << where << ": the constant is not contiguous";
  Buffer buffer(BufferKind::kConstant, md.get_size());
  // The array stays TVM's; the buffer only holds on to it for as long as a step reads it.
  void* data = static_cast<char*>(value->data) + value->byte_offset;
  buffer.data = std::shared_ptr<void>(data, [keep = value](void*) {});
  values_[{entry.id_, entry.index_}] = Tensor{AddBuffer(std::move(buffer)), md};
}

bool PlanBuilder::IsConstant(const Tensor& value) const {
  return plan_->buffers[plan_->Locate(value.buffer).first].kind == BufferKind::kConstant;
}

Tensor PlanBuilder::Packed(const Tensor& value, const dnnl::memory::desc& want) {
  Buffer buffer(BufferKind::kConstant, want.get_size());
  const std::shared_ptr<void> packed = pool_.Alloc(buffer.bytes);
  const auto [root, offset] = plan_->Locate(value.buffer);
  char* raw = static_cast<char*>(plan_->buffers[root].data.get()) + offset;
  dnnl::memory from(value.md, plan_->engine, raw);
  dnnl::memory to(want, plan_->engine, packed.get());
  dnnl::reorder(from, to).execute(stream_, from, to);
  stream_.wait();
  buffer.data = packed;
  Share(&buffer);
  if (buffer.is_shared) pool_.TakeBack(packed);
  return Tensor{AddBuffer(std::move(buffer)), want};
}

void PlanBuilder::Share(Buffer* buffer) {
  std::shared_ptr<void> shared = SharedConstants::Global()->Share(buffer->data, buffer->bytes);
  if (shared == buffer->data) return;
  buffer->data = std::move(shared);
  buffer->is_shared = true;
}

void PlanBuilder::FinishConstants() {
  std::vector<bool> is_used(plan_->buffers.size(), false);
  for (const Tensor& tensor : plan_->tensors) is_used[plan_->Locate(tensor.buffer).first] = true;
  for (size_t i = 0; i < is_used.size(); ++i) {
    Buffer& buffer = plan_->buffers[i];
    if (buffer.kind != BufferKind::kConstant) continue;
    if (!is_used[i]) {
      // It only served to make a packed one.
      buffer.data.reset();
      continue;
    }
    if (owns_constants_) Share(&buffer);
    plan_->constant_bytes += buffer.bytes;
    if (buffer.is_shared) plan_->constant_bytes_shared += buffer.bytes;
  }
}

}  // namespace dnnl_backend
}  // namespace contrib
}  // namespace runtime
}  // namespace tvm
