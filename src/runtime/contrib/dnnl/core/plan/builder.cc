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
 * \file src/runtime/contrib/dnnl/core/plan/builder.cc
 * \brief The interface with which the lowerings build a plan.
 */
#include "builder.h"

#include <algorithm>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "../onednn.h"
#include "reserve.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief An argument of a step; undefined where it has none such. */
Tensor FindArg(const PlanBuilder::Args& args, int arg) {
  for (const auto& [id, tensor] : args) {
    if (id == arg) return tensor;
  }
  return {};
}

std::string LayoutOf(const PlanBuilder::Args& args, int arg) {
  const Tensor tensor = FindArg(args, arg);
  return tensor.defined() ? LayoutText(tensor.md) : "";
}

/*! \brief The types of source, weights and result, as oneDNN calls them: "u8s8f32". */
std::string TypesOf(const PlanBuilder::Args& args) {
  std::string types;
  for (int arg : {DNNL_ARG_SRC, DNNL_ARG_SRC_1, DNNL_ARG_WEIGHTS, DNNL_ARG_DST}) {
    const Tensor tensor = FindArg(args, arg);
    if (tensor.defined()) types += TypeText(tensor);
  }
  return types;
}

/*! \brief Note the types and layouts of a step's arguments, and the threads at hand. */
void Describe(const PlanBuilder::Args& args, StepInfo* info) {
  info->types = TypesOf(args);
  info->src_layout = LayoutOf(args, DNNL_ARG_SRC);
  info->dst_layout = LayoutOf(args, DNNL_ARG_DST);
  info->num_threads = CurrentNumThreads();
}

}  // namespace

PlanBuilder::PlanBuilder(const Graph& graph, int num_threads, bool sizes_change)
    : where_(graph.name),
      plan_(std::make_shared<Plan>()),
      owns_constants_(graph.owns_constants),
      sizes_change_(sizes_change),
      shares_weights_(graph.has_other_shapes),
      threads_(AvailableThreads(NumThreads(num_threads))),
      stream_() {
  plan_->engine = dnnl::engine(dnnl::engine::kind::cpu, 0);
  stream_ = dnnl::stream(plan_->engine);
}

dnnl::primitive_attr PlanBuilder::NewAttr() {
  dnnl::primitive_attr attr;
  // A workspace that the library owns is shared by all runs of a primitive, and so is not safe
  // when two threads run one plan.
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

void PlanBuilder::AddInput(const Edge& edge) {
  const auto md = DescOf(edge.argument);
  Buffer buffer(BufferKind::kArgument, md.get_size());
  buffer.argument = static_cast<int>(plan_->arguments.size());
  values_[edge.entry] = Tensor{AddBuffer(std::move(buffer)), md};
  plan_->arguments.push_back(edge.argument);
}

void PlanBuilder::AddOutput(const Edge& edge) {
  outputs_.emplace_back(edge.entry, static_cast<int>(plan_->arguments.size()));
  plan_->arguments.push_back(edge.argument);
}

const Argument* PlanBuilder::OutputOf(const NodeReader& node) const {
  for (const auto& [entry, argument] : outputs_) {
    if (entry.node == node.id() && entry.index == 0) return &plan_->arguments[argument];
  }
  return nullptr;
}

int PlanBuilder::ReservedAxis(const NodeReader& node) const {
  const Argument* const output = OutputOf(node);
  return output == nullptr ? -1 : output->reserved_axis;
}

dnnl::memory::desc PlanBuilder::OutputDesc(const NodeReader& node) const {
  return DescOf(*OutputOf(node));
}

const Tensor& PlanBuilder::Value(const Entry& entry, const std::string& where) const {
  const auto it = values_.find(entry);
  CORE_CHECK(it != values_.end()) << where << ": output " << entry.index << " of node "
                                  << entry.node << " is not computed";
  return it->second;
}

Tensor PlanBuilder::Input(const NodeReader& node, int index) const {
  const auto inputs = node.Inputs();
  CORE_CHECK(index >= 0 && index < static_cast<int>(inputs.size()))
      << node.Where() << ": input " << index << " is missing, there are " << inputs.size();
  return Value(inputs[index], node.Where());
}

void PlanBuilder::SetOutput(const NodeReader& node, const Tensor& value, int index) {
  CORE_CHECK(value.dims() == node.OutDims(index) && value.dtype() == node.OutType(index))
      << node.Where() << ": output " << index << " has shape " << ToText(node.OutDims(index))
      << " in the graph, but oneDNN computes " << ToText(value.dims());
  SetValue({node.id(), static_cast<uint32_t>(index)}, {value.buffer, WithUsualStrides(value.md)});
}

void PlanBuilder::SetValue(const Entry& entry, Tensor value) {
  Tensor& known = values_[entry];
  changes_.emplace_back(entry, std::exchange(known, std::move(value)));
}

Tensor PlanBuilder::NewTensor(const dnnl::memory::desc& md) {
  return Tensor{AddBuffer(Buffer(BufferKind::kArena, md.get_size())), md};
}

Tensor PlanBuilder::InLayout(const NodeReader& node, const Tensor& value,
                             const dnnl::memory::desc& want) {
  return Reordered(node, value, want, /*is_weight=*/false);
}

Tensor PlanBuilder::Weights(const NodeReader& node, const Tensor& value,
                            const dnnl::memory::desc& want) {
  return Reordered(node, value, want, /*is_weight=*/true);
}

Tensor PlanBuilder::Reordered(const NodeReader& node, const Tensor& value,
                              const dnnl::memory::desc& want, bool is_weight) {
  CORE_CHECK(value.dims() == want.get_dims())
      << node.Where() << ": a tensor of shape " << ToText(value.dims())
      << " cannot be reordered to " << ToText(want.get_dims());
  if (value.md == want) return value;
  auto& copies = reordered_[value.buffer];
  for (const Copy& copy : copies) {
    if (copy.from == value.md && copy.to.md == want && copy.is_weight == is_weight) return copy.to;
  }
  Tensor copy;
  if (IsConstant(value)) {
    copy = Packed(value, want, is_weight);
  } else {
    copy = NewTensor(want);
    EmitReorder(node.Where(), value, copy);
  }
  copies.push_back({value.md, copy, is_weight});
  return copy;
}

std::vector<Tensor> PlanBuilder::Derived(const Tensor& value, const std::string& kind,
                                         const std::function<std::vector<Tensor>()>& emit) {
  for (const DerivedTensors& known : derived_) {
    const bool is_same = known.from.buffer == value.buffer && known.from.md == value.md;
    if (is_same && known.kind == kind) return known.results;
  }
  derived_.push_back({value, kind, emit()});
  return derived_.back().results;
}

Tensor PlanBuilder::Plain(const NodeReader& node, const Tensor& value) {
  return IsPlain(value.md) ? value : InLayout(node, value, PlainDesc(value.dims(), value.dtype()));
}

Tensor PlanBuilder::Reshaped(const NodeReader& node, const Tensor& value, const Dims& dims) {
  CORE_CHECK(NumElements(dims) == NumElements(value.dims()))
      << node.Where() << ": a tensor of shape " << ToText(value.dims()) << " cannot be reshaped to "
      << ToText(dims);
  const Tensor view = value.Reshaped(dims);
  return view.defined() ? view : Plain(node, value).Reshaped(dims);
}

Tensor PlanBuilder::Sliced(const NodeReader& node, const Tensor& value, const Slice& slice) {
  if (slice.dims == value.dims()) return value;
  Tensor source = value;
  auto [md, offset] = SlicedDesc(source.md, slice);
  if (!md) {
    source = Plain(node, value);
    std::tie(md, offset) = SlicedDesc(source.md, slice);
  }
  return PartOf(source, md, offset);
}

bool PlanBuilder::MovedInto(const Tensor& part, const Tensor& target, const dnnl::memory::desc& md,
                            size_t offset) {
  Buffer& buffer = plan_->buffers[part.buffer];
  const bool is_free = buffer.kind == BufferKind::kArena && buffer.bytes == part.md.get_size();
  if (!is_free || !IsSameInMemory(part.md, md) || offset % kAlignment != 0) return false;
  buffer.kind = BufferKind::kPart;
  buffer.parent = target.buffer;
  buffer.offset = offset;
  return true;
}

void PlanBuilder::CopyInto(const NodeReader& node, const Tensor& part, const Tensor& target,
                           const dnnl::memory::desc& md, size_t offset) {
  EmitReorder(node.Where(), part, PartOf(target, md, offset));
}

bool PlanBuilder::SetInputLayouts(
    const NodeReader& node, size_t first,
    const std::function<dnnl::memory::desc(const dnnl::memory::desc&)>& layout) {
  bool is_changed = false;
  for (size_t i = first; i < node.Inputs().size(); ++i) {
    const Entry& entry = node.Inputs()[i];
    const Tensor value = Value(entry, node.Where());
    const dnnl::memory::desc want = layout(value.md);
    if (value.md == want) continue;
    SetValue(entry, InLayout(node, value, want));
    is_changed = true;
  }
  return is_changed;
}

int PlanBuilder::TensorIndex(const Tensor& tensor) {
  std::vector<int>& known = tensors_of_buffer_[tensor.buffer];
  for (int index : known) {
    if (plan_->tensors[index].md == tensor.md) return index;
  }
  plan_->tensors.push_back(tensor);
  known.push_back(static_cast<int>(plan_->tensors.size()) - 1);
  return known.back();
}

void PlanBuilder::EmitStep(const std::string& node, const std::string& op,
                           const dnnl::primitive_desc_base& desc, const dnnl::primitive& primitive,
                           Args args, std::vector<std::string> post_ops) {
  Step step;
  step.primitive = primitive;
  step.info.node = node;
  step.info.op = op;
  step.info.kind = dnnl_prim_kind2str(dnnl::convert_to_c(desc.get_kind()));
  step.info.impl = desc.impl_info_str();
  step.info.post_ops = std::move(post_ops);
  Describe(args, &step.info);
  const dnnl::memory::desc workspace = desc.scratchpad_desc();
  if (workspace && workspace.get_size() > 0) {
    if (scratchpad_buffer_ < 0) scratchpad_buffer_ = AddBuffer(Buffer(BufferKind::kScratchpad, 0));
    plan_->scratchpad_bytes = std::max(plan_->scratchpad_bytes, workspace.get_size());
    args.emplace_back(DNNL_ARG_SCRATCHPAD, Tensor{scratchpad_buffer_, workspace});
  }
  for (const auto& [arg, tensor] : args) step.args.emplace_back(arg, TensorIndex(tensor));
  plan_->steps.push_back(std::move(step));
}

void PlanBuilder::EmitKernel(const NodeReader& node, const std::string& kind, HostKernel kernel,
                             Args args, std::vector<std::string> post_ops) {
  Step step;
  step.info.node = node.Where();
  step.info.op = node.OpName();
  step.info.kind = kind;
  step.info.impl = "tvm:any";
  step.info.post_ops = std::move(post_ops);
  Describe(args, &step.info);
  for (const auto& [arg, tensor] : args) step.args.emplace_back(arg, TensorIndex(tensor));
  plan_->steps.push_back(std::move(step));
  AppendKernel(std::move(kernel));
}

void PlanBuilder::AppendKernel(HostKernel kernel) {
  Step& step = plan_->steps.back();
  CORE_CHECK(!step.kernel && step.args.size() <= Step::kMaxKernelArgs)
      << step.info.node << ": a kernel cannot have " << step.args.size() << " tensors";
  step.kernel = std::move(kernel);
}

void PlanBuilder::EmitReorder(const std::string& node, const Tensor& from, const Tensor& to) {
  const dnnl::reorder::primitive_desc desc(plan_->engine, from.md, plan_->engine, to.md, NewAttr());
  // DNNL_ARG_FROM and DNNL_ARG_TO are DNNL_ARG_SRC and DNNL_ARG_DST.
  EmitStep(node, "reorder", desc, dnnl::reorder(desc), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}},
           {});
}

PlanBuilder::Mark PlanBuilder::Here() const {
  return {plan_->buffers.size(), plan_->tensors.size(),   plan_->steps.size(),
          changes_.size(),       plan_->scratchpad_bytes, keeps_blocks_};
}

void PlanBuilder::BackTo(const Mark& mark) {
  const auto is_new = [&mark](int buffer) { return buffer >= static_cast<int>(mark.buffers); };
  ForgetTensors(mark);
  for (auto& [buffer, copies] : reordered_) {
    const bool is_from_new = is_new(buffer);
    const auto is_gone = [&](const Copy& copy) { return is_from_new || is_new(copy.to.buffer); };
    copies.erase(std::remove_if(copies.begin(), copies.end(), is_gone), copies.end());
  }
  const auto is_gone = [&](const DerivedTensors& known) {
    return is_new(known.from.buffer) ||
           std::any_of(known.results.begin(), known.results.end(),
                       [&](const Tensor& result) { return is_new(result.buffer); });
  };
  derived_.erase(std::remove_if(derived_.begin(), derived_.end(), is_gone), derived_.end());
  for (; changes_.size() > mark.changes; changes_.pop_back()) {
    auto& [entry, before] = changes_.back();
    if (before.defined()) {
      values_[entry] = std::move(before);
    } else {
      values_.erase(entry);
    }
  }
  for (size_t i = 0; i < mark.buffers; ++i) {
    Buffer& buffer = plan_->buffers[i];
    if (buffer.kind == BufferKind::kPart && buffer.parent >= static_cast<int>(mark.buffers)) {
      buffer.kind = BufferKind::kArena;
    }
  }
  if (scratchpad_buffer_ >= static_cast<int>(mark.buffers)) scratchpad_buffer_ = -1;
  plan_->buffers.erase(plan_->buffers.begin() + mark.buffers, plan_->buffers.end());
  plan_->steps.resize(mark.steps);
  plan_->scratchpad_bytes = mark.scratchpad_bytes;
  keeps_blocks_ = mark.keeps_blocks;
  ForgetOffers(mark);
}

bool PlanBuilder::HasReferenceSince(const Mark& mark) const {
  return std::any_of(plan_->steps.begin() + mark.steps, plan_->steps.end(),
                     [](const Step& step) { return IsReference(step.info); });
}

void PlanBuilder::BindOutput(const Tensor& value, int argument) {
  Buffer& buffer = plan_->buffers[value.buffer];
  const auto md = DescOf(plan_->arguments[argument]);
  // The last step may write straight into the caller's tensor when that lies like its result.
  if (buffer.kind == BufferKind::kArena && IsSameInMemory(value.md, md) &&
      value.md.get_size() == buffer.bytes) {
    buffer.kind = BufferKind::kArgument;
    buffer.argument = argument;
    return;
  }
  Buffer output(BufferKind::kArgument, md.get_size());
  output.argument = argument;
  const Tensor to{AddBuffer(std::move(output)), md};
  const size_t number = argument - (plan_->arguments.size() - outputs_.size());
  EmitReorder(where_ + ", output " + std::to_string(number), value, to);
}

std::shared_ptr<const Plan> PlanBuilder::Finish() {
  for (const auto& [entry, argument] : outputs_) {
    BindOutput(Value(entry, "output " + std::to_string(argument)), argument);
  }
  JoinReorders();
  PassConstants();
  FinishConstants();
  ComputeInPlace(offers_, plan_.get());
  PlaceArena(plan_.get());
  for (const Step& step : plan_->steps) {
    plan_->num_threads = std::max(plan_->num_threads, step.info.num_threads);
  }
  values_.clear();
  reordered_.clear();
  return std::move(plan_);
}

}  // namespace tvm::runtime::contrib::dnnl_backend
