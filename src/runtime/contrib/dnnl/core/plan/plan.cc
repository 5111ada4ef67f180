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
 * \file src/runtime/contrib/dnnl/core/plan/plan.cc
 * \brief A subgraph ready to run: primitives in order and the memory that they use.
 */
#include "plan.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "../error.h"
#include "../exec/recorder.h"
#include "../exec/threads.h"

namespace tvm::runtime::contrib::dnnl_backend {

std::pair<int, size_t> Plan::Locate(int buffer) const {
  size_t offset = 0;
  for (; buffers[buffer].kind == BufferKind::kPart; buffer = buffers[buffer].parent) {
    offset += buffers[buffer].offset;
  }
  return {buffer, offset};
}

std::vector<std::pair<int, int>>::iterator Step::FindArg(int arg) {
  return std::find_if(args.begin(), args.end(),
                      [arg](const auto& known) { return known.first == arg; });
}

void RunStep(const Step& step, const std::vector<dnnl_exec_arg_t>& args,
             const std::vector<void*>& handles, dnnl::stream* stream) {
  if (step.primitive) {
    // The C call: the C++ one copies the arguments into a container at every run.
    const dnnl_status_t status = dnnl_primitive_execute(step.primitive.get(), stream->get(),
                                                        static_cast<int>(args.size()), args.data());
    CORE_CHECK(status == dnnl_success) << step.info.node << ": oneDNN's " << step.info.kind << " ("
                                       << step.info.impl << ") failed with status " << status;
  }
  if (!step.kernel) return;
  stream->wait();
  void* addresses[Step::kMaxKernelArgs];
  for (size_t i = 0; i < step.args.size(); ++i) addresses[i] = handles[step.args[i].second];
  step.kernel(addresses);
}

Context::Context(std::shared_ptr<const Plan> plan)
    : plan_(std::move(plan)),
      stream_(plan_->engine),
      arena_(AllocAligned(plan_->arena_bytes)),
      scratchpad_(AllocAligned(plan_->scratchpad_bytes)) {
  std::vector<bool> is_of_primitive(plan_->tensors.size(), false);
  for (const Step& step : plan_->steps) {
    for (const auto& [arg, tensor] : step.args) {
      if (step.primitive) is_of_primitive[tensor] = true;
    }
  }
  for (size_t i = 0; i < plan_->tensors.size(); ++i) {
    const Tensor& tensor = plan_->tensors[i];
    const auto [root, offset] = plan_->Locate(tensor.buffer);
    const Buffer& buffer = plan_->buffers[root];
    void* handle = nullptr;
    switch (buffer.kind) {
      case BufferKind::kArgument:
        bound_.push_back({static_cast<int>(i), buffer.argument, offset, is_of_primitive[i]});
        break;
      case BufferKind::kConstant:
        handle = static_cast<char*>(buffer.data.get()) + offset;
        break;
      case BufferKind::kArena:
        handle = static_cast<char*>(arena_.get()) + buffer.offset + offset;
        break;
      case BufferKind::kScratchpad:
        handle = scratchpad_.get();
        break;
      case BufferKind::kPart:
        break;
    }
    handles_.push_back(handle);
    memories_.emplace_back(tensor.md, plan_->engine, handle);
  }
  for (const Step& step : plan_->steps) {
    std::vector<dnnl_exec_arg_t> args;
    for (const auto& [arg, tensor] : step.args) {
      args.push_back(dnnl_exec_arg_t{arg, memories_[tensor].get()});
    }
    exec_args_.push_back(std::move(args));
  }
  addresses_.resize(plan_->arguments.size() + plan_->passed.size());
}

void Context::Bind(const std::vector<void*>& arguments) {
  for (const Bound& bound : bound_) {
    void* address = static_cast<char*>(arguments[bound.argument]) + bound.offset;
    handles_[bound.tensor] = address;
    if (!bound.is_of_primitive) continue;
    const dnnl_status_t status =
        dnnl_memory_set_data_handle(memories_[bound.tensor].get(), address);
    CORE_CHECK(status == dnnl_success)
        << "oneDNN refused the address of argument " << bound.argument;
  }
}

void Context::Execute(size_t index) {
  dnnl_backend::RunStep(plan_->steps[index], exec_args_[index], handles_, &stream_);
}

void Context::RunStages(const std::vector<void*>& arguments, Recorder* recorder) {
  for (const PlanStage& stage : plan_->stages) {
    std::unique_ptr<Context> context = stage.ready->contexts.Take();
    std::vector<void*>* addresses = context->addresses();
    for (size_t i = 0; i < stage.addresses.size(); ++i) {
      const auto& [argument, offset] = stage.addresses[i];
      (*addresses)[i] =
          argument >= 0 ? arguments[argument] : static_cast<char*>(arena_.get()) + offset;
    }
    for (size_t i = 0; i < stage.constants.size(); ++i) {
      (*addresses)[stage.addresses.size() + i] = stage.constants[i].get();
    }
    context->Run(*addresses, recorder, stage.names.get());
    stage.ready->contexts.Return(std::move(context));
  }
}

void Context::Run(const std::vector<void*>& arguments, Recorder* recorder, const NodeNames* names) {
  if (!plan_->stages.empty()) return RunStages(arguments, recorder);
  Bind(arguments);
  if (plan_->steps.empty()) return;
  CheckThreads(plan_->num_threads);
  const std::string caller = recorder == nullptr ? "" : recorder->TakeCaller();
  ThreadScope threads(plan_->steps.front().info.num_threads);
  for (size_t i = 0; i < plan_->steps.size(); ++i) {
    threads.Change(plan_->steps[i].info.num_threads);
    if (recorder == nullptr) {
      Execute(i);
    } else {
      const StepInfo& step = plan_->steps[i].info;
      recorder->Add({plan_, i, names == nullptr ? caller : NodeOf(step, names), TimeStep(i)});
    }
  }
  stream_.wait();
}

double Context::TimeStep(size_t index) {
  const auto start = std::chrono::steady_clock::now();
  Execute(index);
  stream_.wait();
  const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
  return time.count();
}

double Context::RunStep(size_t index) {
  CheckThreads(plan_->num_threads);
  const ThreadScope threads(plan_->steps[index].info.num_threads);
  return TimeStep(index);
}

std::unique_ptr<Context> ContextPool::Take() {
  {
    std::lock_guard<ForkSafeMutex> lock(mutex_);
    if (!free_.empty()) {
      std::unique_ptr<Context> context = std::move(free_.back());
      free_.pop_back();
      return context;
    }
  }
  auto context = std::make_unique<Context>(plan_);
  ++num_made_;
  return context;
}

void ContextPool::Return(std::unique_ptr<Context> context) {
  std::lock_guard<ForkSafeMutex> lock(mutex_);
  free_.push_back(std::move(context));
}

size_t ContextPool::size() const {
  std::lock_guard<ForkSafeMutex> lock(mutex_);
  return free_.size();
}

}  // namespace tvm::runtime::contrib::dnnl_backend
