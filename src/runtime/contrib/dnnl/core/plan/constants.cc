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
 * \file src/runtime/contrib/dnnl/core/plan/constants.cc
 * \brief The constants of a plan that is built: packed at once, and in memory once.
 */
#include "constants.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "builder.h"
#include "original.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief Entries of constants that are gone are looked for when there are more, 1.5 kB each. */
constexpr size_t kFewEntries = 32;

/*!
 * \brief A number that equal bytes have in common. It looks at a few words: what is in question is
 *        compared as a whole anyway, and of a constant that stays in a file, each word that is read
 *        maps 16 pages.
 */
uint64_t Fingerprint(const void* data, size_t bytes) {
  constexpr size_t kWords = 32;
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

/*! \brief Put zeros in the place of numbers that are smaller than any normal one. */
void FlushSubnormals(float* values, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (std::abs(values[i]) < std::numeric_limits<float>::min()) values[i] = 0.0F;
  }
}

/*! \brief Align what a plan reads as it is: one copy for all plans. */
void Align(const dnnl::memory::desc& md, bool may_release, Buffer* buffer) {
  if (buffer->data == nullptr || IsAligned(buffer->data.get(), md)) return;
  const auto bytes = PlainDesc({static_cast<int64_t>(buffer->bytes)}, dnnl::memory::data_type::u8);
  const SharedConstants::Packing packing{buffer->data, 0, bytes, bytes, false};
  std::shared_ptr<void> aligned = SharedConstants::Global()->FindPacked(packing);
  if (aligned == nullptr) {
    aligned = AlignedCopy(buffer->data.get(), buffer->bytes);
    if (may_release) ReleaseOriginal(buffer->data.get(), buffer->bytes);
    SharedConstants::Global()->KeepPacked(packing, aligned);
  }
  buffer->data = std::move(aligned);
}

/*!
 * \brief Whether a matrix is stored by columns. An inner_product and a matmul read the transposed
 * of each other's weights, and should find what the other packed.
 */
bool IsTransposed(const dnnl::memory::desc& md) {
  // Packed weights of 8 bits are followed by sums, whose descriptor oneDNN does not permute.
  const bool is_float = dnnl::memory::data_type_size(md.get_data_type()) > 1;
  return is_float && md.get_ndims() == 2 &&
         md.get_format_kind() == dnnl::memory::format_kind::blocked && md.get_inner_nblks() == 0 &&
         md.get_strides()[0] < md.get_strides()[1];
}

/*! \brief Whether two pointers keep the same object alive. */
bool IsSameOwner(const std::weak_ptr<void>& known, const std::shared_ptr<void>& other) {
  return !known.owner_before(other) && !other.owner_before(known);
}

/*! \brief Add a constant to those of a plan, for its description. */
void Count(const Buffer& constant, Plan* plan) {
  plan->constant_bytes += constant.bytes;
  if (constant.is_shared) plan->constant_bytes_shared += constant.bytes;
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
  // Whoever is the last one to have some of these lets go of them without the lock.
  std::vector<std::shared_ptr<void>> others;
  std::lock_guard<ForkSafeMutex> lock(mutex_);
  const auto [begin, end] = known_.equal_range(print);
  for (auto it = begin; it != end; ++it) {
    others.push_back(it->second.data.lock());
    const std::shared_ptr<void>& other = others.back();
    if (other == nullptr || it->second.bytes != bytes) continue;
    if (other.get() == data.get() || std::memcmp(other.get(), data.get(), bytes) == 0) return other;
  }
  RemoveExpired();
  known_.emplace(print, Known{data, bytes});
  return data;
}

std::shared_ptr<void> SharedConstants::FindPacked(const Packing& packing) {
  std::lock_guard<ForkSafeMutex> lock(mutex_);
  const auto [begin, end] = packings_.equal_range(packing.source.get());
  for (auto it = begin; it != end; ++it) {
    const KnownPacking& known = it->second;
    const bool is_same = IsSameOwner(known.source, packing.source) &&
                         known.offset == packing.offset && known.from == packing.from &&
                         known.to == packing.to && known.is_weight == packing.is_weight;
    if (!is_same) continue;
    if (std::shared_ptr<void> packed = known.packed.lock()) return packed;
  }
  return nullptr;
}

void SharedConstants::KeepPacked(const Packing& packing, const std::shared_ptr<void>& packed) {
  if (packing.to.get_size() < kFewBytes) return;
  std::lock_guard<ForkSafeMutex> lock(mutex_);
  RemoveExpired();
  const auto& [source, offset, from, to, is_weight] = packing;
  packings_.emplace(source.get(), KnownPacking{source, offset, from, to, is_weight, packed});
}

void SharedConstants::RemoveExpired() {
  if (known_.size() + packings_.size() < next_removal_) return;
  for (auto it = known_.begin(); it != known_.end();) {
    it = it->second.data.expired() ? known_.erase(it) : std::next(it);
  }
  for (auto it = packings_.begin(); it != packings_.end();) {
    const bool is_gone = it->second.source.expired() || it->second.packed.expired();
    it = is_gone ? packings_.erase(it) : std::next(it);
  }
  next_removal_ = std::max(kFewEntries, 2 * (known_.size() + packings_.size()));
}

void PlanBuilder::AddConstant(const Constant& constant) {
  const Argument& argument = constant.edge.argument;
  const auto md = PlainDesc(ToDims(argument.type.shape, argument.name),
                            ToDNNLType(argument.type.dtype, argument.name));
  Buffer buffer(BufferKind::kConstant, md.get_size());
  buffer.data = constant.data;
  buffer.constant = static_cast<int>(is_passed_.size());
  is_passed_.push_back(constant.is_passed);
  values_[constant.edge.entry] = Tensor{AddBuffer(std::move(buffer)), md};
}

bool PlanBuilder::IsConstant(const Tensor& value) const {
  return plan_->buffers[plan_->Locate(value.buffer).first].kind == BufferKind::kConstant;
}

Tensor PlanBuilder::ConstantOf(const void* data, const dnnl::memory::desc& md) {
  Buffer buffer(BufferKind::kConstant, md.get_size());
  buffer.data = AllocAligned(md.get_size());
  std::memcpy(buffer.data.get(), data, md.get_size());
  return Tensor{AddBuffer(std::move(buffer)), md};
}

Tensor PlanBuilder::NewConstant(int32_t value) {
  return ConstantOf(&value, PlainDesc({1}, dnnl::memory::data_type::s32));
}

Tensor PlanBuilder::NewConstant(const std::vector<float>& values) {
  const auto size = static_cast<int64_t>(values.size());
  return ConstantOf(values.data(), PlainDesc({size}, dnnl::memory::data_type::f32));
}

Tensor PlanBuilder::Filled(const NodeReader& node, const Tensor& element, const Dims& dims) {
  CORE_CHECK(IsConstant(element) && NumElements(element.dims()) == 1)
      << node.Where() << ": the fill value is not a constant with one element";
  const auto md = PlainDesc(dims, element.dtype());
  const size_t bytes = dnnl::memory::data_type_size(element.dtype());
  Buffer buffer(BufferKind::kConstant, md.get_size());
  buffer.data = AllocAligned(md.get_size());
  for (size_t at = 0; at < md.get_size(); at += bytes) {
    std::memcpy(static_cast<char*>(buffer.data.get()) + at, DataOf(element), bytes);
  }
  return Tensor{AddBuffer(std::move(buffer)), md};
}

void* PlanBuilder::DataOf(const Tensor& constant) const {
  const auto [root, offset] = plan_->Locate(constant.buffer);
  plan_->buffers[root].is_read = true;
  Align(constant.md, owns_constants_, &plan_->buffers[root]);
  return static_cast<char*>(plan_->buffers[root].data.get()) + offset;
}

void PlanBuilder::RunNow(const Mark& mark) {
  std::vector<Step> steps(plan_->steps.begin() + mark.steps, plan_->steps.end());
  const std::shared_ptr<void> scratchpad = AllocAligned(plan_->scratchpad_bytes);
  for (const Step& step : steps) {
    std::vector<dnnl::memory> memories;
    std::vector<dnnl_exec_arg_t> args;
    std::vector<void*> handles(plan_->tensors.size(), nullptr);
    for (const auto& [arg, index] : step.args) {
      const Tensor& tensor = plan_->tensors[index];
      Buffer& buffer = plan_->buffers[plan_->Locate(tensor.buffer).first];
      if (buffer.kind == BufferKind::kArena) {
        buffer.kind = BufferKind::kConstant;
        buffer.data = AllocAligned(buffer.bytes);
      }
      const bool is_scratchpad = buffer.kind == BufferKind::kScratchpad;
      handles[index] = is_scratchpad ? scratchpad.get() : DataOf(tensor);
      memories.emplace_back(tensor.md, plan_->engine, handles[index]);
      args.push_back({arg, memories.back().get()});
    }
    RunStep(step, args, handles, &stream_);
  }
  stream_.wait();
  // The constants of the steps are forgotten with them.
  plan_->steps.resize(mark.steps);
  plan_->scratchpad_bytes = mark.scratchpad_bytes;
  ForgetTensors(mark);
  ForgetOffers(mark);
}

void PlanBuilder::ForgetTensors(const Mark& mark) {
  const auto is_new = [&mark](int index) { return index >= static_cast<int>(mark.tensors); };
  for (auto& [buffer, tensors] : tensors_of_buffer_) {
    tensors.erase(std::remove_if(tensors.begin(), tensors.end(), is_new), tensors.end());
  }
  plan_->tensors.resize(mark.tensors);
}

void PlanBuilder::ForgetOffers(const Mark& mark) {
  while (!offers_.empty() && offers_.back().step >= mark.steps) offers_.pop_back();
  any_layout_.erase(any_layout_.lower_bound(mark.steps), any_layout_.end());
}

Tensor PlanBuilder::Packed(const Tensor& value, const dnnl::memory::desc& want, bool is_weight) {
  Buffer buffer(BufferKind::kConstant, want.get_size());
  const auto [root, offset] = plan_->Locate(value.buffer);
  if (plan_->buffers[root].packing) {
    // A recipe has one step.
    plan_->buffers[root].is_read = true;
  } else if (plan_->buffers[root].constant >= 0) {
    buffer.constant = plan_->buffers[root].constant;
    buffer.packing = PackingRecipe{value.md, want, offset, is_weight};
  }
  const bool is_transposed = IsTransposed(value.md) && want.get_ndims() == 2 &&
                             want.get_format_kind() == dnnl::memory::format_kind::blocked &&
                             want.get_data_type() == value.dtype();
  const SharedConstants::Packing packing{
      plan_->buffers[root].data, offset, is_transposed ? value.md.permute_axes({1, 0}) : value.md,
      is_transposed ? want.permute_axes({1, 0}) : want, is_weight};
  buffer.data = SharedConstants::Global()->FindPacked(packing);
  if (buffer.data != nullptr) {
    buffer.is_shared = true;
    return Tensor{AddBuffer(std::move(buffer)), want};
  }
  const std::shared_ptr<void> packed = pool_.Alloc(buffer.bytes);
  const char* original = static_cast<const char*>(plan_->buffers[root].data.get()) + offset;
  ReorderOriginal(value.md, original, want, packed.get(), owns_constants_, plan_->engine, &stream_);
  // Opaque layouts of recurrent layers hold more than the weights.
  if (is_weight && want.get_data_type() == dnnl::memory::data_type::f32 &&
      want.get_format_kind() == dnnl::memory::format_kind::blocked) {
    FlushSubnormals(static_cast<float*>(packed.get()), want.get_size() / sizeof(float));
  }
  buffer.data = packed;
  Share(&buffer);
  if (buffer.is_shared) pool_.TakeBack(packed);
  SharedConstants::Global()->KeepPacked(packing, buffer.data);
  return Tensor{AddBuffer(std::move(buffer)), want};
}

void PlanBuilder::Share(Buffer* buffer) {
  std::shared_ptr<void> shared = SharedConstants::Global()->Share(buffer->data, buffer->bytes);
  if (shared == buffer->data) return;
  buffer->data = std::move(shared);
  buffer->is_shared = true;
}

void PlanBuilder::PassConstants() {
  const auto is_passed = [this](const Buffer& buffer) {
    return buffer.kind == BufferKind::kConstant && buffer.constant >= 0 &&
           is_passed_[buffer.constant];
  };
  const auto is_read = [&](const Buffer& buffer) { return is_passed(buffer) && buffer.is_read; };
  plan_->serves_other_constants =
      std::none_of(plan_->buffers.begin(), plan_->buffers.end(), is_read);
  if (!plan_->serves_other_constants) return;
  for (const Tensor& tensor : plan_->tensors) {
    Buffer& buffer = plan_->buffers[plan_->Locate(tensor.buffer).first];
    if (!is_passed(buffer)) continue;
    Align(tensor.md, owns_constants_, &buffer);
    Count(buffer, plan_.get());
    buffer.kind = BufferKind::kArgument;
    buffer.argument = static_cast<int>(plan_->arguments.size() + plan_->passed.size());
    plan_->passed.push_back({buffer.constant, buffer.packing, tensor.md, buffer.bytes,
                             std::exchange(buffer.data, nullptr)});
  }
}

std::vector<std::shared_ptr<void>> PlanBuilder::ConstantsFor(const Graph& graph, const Plan& plan,
                                                             Plan* parent) {
  std::vector<std::shared_ptr<void>> constants;
  for (const PassedConstant& passed : plan.passed) {
    const Constant& constant = graph.constants.at(passed.constant);
    const size_t bytes = BytesOf(constant.edge.argument.type);
    Buffer original(BufferKind::kConstant, bytes);
    original.data = constant.data;
    int index = AddBuffer(std::move(original));
    if (passed.packing) {
      const auto& [from, to, offset, is_weight] = *passed.packing;
      index = Packed(PartOf({index, from}, from, offset), to, is_weight).buffer;
    } else {
      Align(passed.md, owns_constants_, &plan_->buffers[index]);
    }
    const Buffer& buffer = plan_->buffers[index];
    Count(buffer, parent);
    constants.push_back(buffer.data);
  }
  return constants;
}

void PlanBuilder::FinishConstants() {
  std::vector<bool> is_used(plan_->buffers.size(), false);
  for (const Tensor& tensor : plan_->tensors) {
    const int root = plan_->Locate(tensor.buffer).first;
    Buffer& buffer = plan_->buffers[root];
    is_used[root] = true;
    if (buffer.kind == BufferKind::kConstant) Align(tensor.md, owns_constants_, &buffer);
  }
  for (size_t i = 0; i < is_used.size(); ++i) {
    Buffer& buffer = plan_->buffers[i];
    if (buffer.kind != BufferKind::kConstant) continue;
    if (!is_used[i]) {
      // It only served to make a packed one.
      buffer.data.reset();
      continue;
    }
    if (owns_constants_ && !buffer.is_shared) {
      Share(&buffer);
      // A library's file was mapped around each word that this has read.
      ReleaseOriginal(buffer.data.get(), buffer.bytes);
    }
    Count(buffer, plan_.get());
  }
}

}  // namespace tvm::runtime::contrib::dnnl_backend
