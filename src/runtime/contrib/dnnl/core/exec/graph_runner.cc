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
 * \file src/runtime/contrib/dnnl/core/exec/graph_runner.cc
 * \brief Runs a subgraph on the tensors of a call: what a runtime module does, whichever TVM's.
 */
#include "graph_runner.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "../desc.h"
#include "../error.h"
#include "../infer.h"
#include "../lowering.h"
#include "../plan/reserve.h"
#include "fork.h"
#include "profile.h"
#include "recorder.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief Call a function. What is not the core's own to throw names the function that is called.
 */
template <typename Function>
void NamingSymbol(const std::string& symbol, const Function& function) {
  try {
    function();
  } catch (const dnnl::error& error) {
    CORE_FAIL() << symbol << ": oneDNN failed: " << error.what() << " (status "
                << static_cast<int>(error.status) << ")";
  } catch (const std::bad_alloc&) {
    CORE_FAIL() << symbol << ": there is not enough memory";
  }
}

/*! \brief Whether the tensor has a shape, in which open dimensions stand for any size. */
bool HasShape(const DLTensor& tensor, const std::vector<int64_t>& shape) {
  return static_cast<size_t>(tensor.ndim) == shape.size() &&
         (tensor.shape != nullptr || shape.empty()) &&
         std::equal(shape.begin(), shape.end(), tensor.shape,
                    [](int64_t said, int64_t size) { return said == size || said == kOpen; });
}

/*! \brief Whether the tensor has no elements, and so perhaps no memory. */
bool IsEmpty(const DLTensor& tensor) {
  return tensor.shape != nullptr && tensor.ndim > 0 &&
         std::count(tensor.shape, tensor.shape + tensor.ndim, 0) > 0;
}

bool HasType(const DLTensor& tensor, DLDataType expected) {
  const DLDataType dtype = WithOneBool(tensor.dtype);
  return dtype.code == expected.code && dtype.bits == expected.bits &&
         dtype.lanes == expected.lanes;
}

/*! \brief "float32 [1, 2]", whatever the tensor says of itself. */
std::string ArgumentText(const DLTensor& tensor) {
  constexpr int kMaxRank = 32;
  const std::string type = ToText(WithOneBool(tensor.dtype));
  if (tensor.ndim < 0 || tensor.ndim > kMaxRank || (tensor.shape == nullptr && tensor.ndim > 0)) {
    return type + " of rank " + std::to_string(tensor.ndim);
  }
  return type + " " + ToText(Dims(tensor.shape, tensor.shape + tensor.ndim));
}

/*! \brief "float32 [?, 2]", the question mark for an open dimension. */
std::string ExpectedText(const Argument& argument) {
  std::string text;
  for (int64_t dim : argument.type.shape) {
    text += (text.empty() ? "" : ", ") + (dim == kOpen ? "?" : std::to_string(dim));
  }
  return ToText(argument.type.dtype) + " [" + text + "]";
}

/*! \brief Advice for an input of another size; empty for other mistakes. */
const char* Remedy(const DLTensor& tensor, const Argument& expected) {
  const bool is_size = expected.name.rfind("input ", 0) == 0 && tensor.shape != nullptr &&
                       static_cast<size_t>(tensor.ndim) == expected.type.shape.size() &&
                       HasType(tensor, expected.type.dtype);
  return is_size ? "; compile the model for this shape, or with open dimensions" : "";
}

}  // namespace

void CheckTensor(const DLTensor* tensor, const Argument& expected, const std::string& symbol) {
  CORE_CHECK(tensor != nullptr && (tensor->data != nullptr || IsEmpty(*tensor)))
      << symbol << ": " << expected.name << " is null";
  CORE_CHECK(HasShape(*tensor, expected.type.shape) && HasType(*tensor, expected.type.dtype))
      << symbol << ": " << expected.name << " must be " << ExpectedText(expected) << ", but is "
      << ArgumentText(*tensor) << Remedy(*tensor, expected);
  CORE_CHECK(IsEmpty(*tensor) || HasStrides(*tensor, expected.reserved_axis))
      << symbol << ": " << expected.name << " has strides that are not those of a row-major tensor";
  CORE_CHECK(tensor->device.device_type == kDLCPU)
      << symbol << ": " << expected.name << " must be on the CPU";
}

GraphRunner::GraphRunner(std::string symbol, PlanCacheLimits limits)
    : symbol_(std::move(symbol)), plans_(limits.plans, limits.bytes, BytesOf) {}

void GraphRunner::Init(Graph graph) {
  num_arguments_ = graph.inputs.size() + graph.outputs.size();
  if (IsDynamic(graph)) {
    CheckOps(graph);
    graph.has_other_shapes = true;
    graph_ = std::move(graph);
  } else {
    NamingSymbol(symbol_, [&]() {
      only_plan_ = std::make_shared<ReadyPlan>(CallWithOpenMP([&]() { return MakePlan(graph); }));
    });
  }
  initialised_ = true;
}

void GraphRunner::Run(size_t num_tensors, const std::function<const DLTensor*(size_t)>& tensor_at) {
  NamingSymbol(symbol_, [&]() { RunCall(num_tensors, tensor_at); });
}

void GraphRunner::RunCall(size_t num_tensors,
                          const std::function<const DLTensor*(size_t)>& tensor_at) {
  CORE_CHECK(num_tensors == num_arguments_)
      << symbol_ << ": " << num_arguments_ << " inputs and outputs are expected, but "
      << num_tensors << " were passed";
  if (only_plan_ == nullptr && HasNothingToCompute(tensor_at)) return;
  std::shared_ptr<ReadyPlan> of_shape;
  if (only_plan_ == nullptr) of_shape = PlanOf(tensor_at);
  ReadyPlan* ready = only_plan_ == nullptr ? of_shape.get() : only_plan_.get();
  // First of all: a call that is refused shall make no arena.
  for (size_t i = 0; i < num_tensors; ++i) {
    CheckTensor(tensor_at(i), ready->plan->arguments[i], symbol_);
  }
  std::unique_ptr<Context> context = ready->contexts.Take();
  std::vector<void*>* addresses = context->addresses();
  for (size_t i = 0; i < num_tensors; ++i) (*addresses)[i] = AddressOf(*tensor_at(i));
  Recorder* recorder = Recorder::OfThread();
  CallWithOpenMP([&]() { context->Run(*addresses, recorder); });
  ready->contexts.Return(std::move(context));
}

bool GraphRunner::HasNothingToCompute(
    const std::function<const DLTensor*(size_t)>& tensor_at) const {
  const size_t num_inputs = graph_.inputs.size();
  const auto is_empty = [&](size_t i) { return tensor_at(i) != nullptr && IsEmpty(*tensor_at(i)); };
  size_t i = 0;
  while (i < num_inputs && !is_empty(i)) ++i;
  if (i == num_inputs) return false;
  for (i = num_inputs; i < num_arguments_; ++i) {
    if (!is_empty(i)) return false;
  }
  for (i = 0; i < num_arguments_; ++i) {
    const Edge& edge = i < num_inputs ? graph_.inputs[i] : graph_.outputs[i - num_inputs];
    CheckTensor(tensor_at(i), edge.argument, symbol_);
  }
  return true;
}

std::shared_ptr<ReadyPlan> GraphRunner::PlanOf(
    const std::function<const DLTensor*(size_t)>& tensor_at) {
  // Kept, so that a shape that is known allocates nothing.
  static thread_local std::vector<int64_t> dims_of_thread;
  std::vector<int64_t>& open_dims = dims_of_thread;
  open_dims.clear();
  for (size_t i = 0; i < graph_.inputs.size(); ++i) {
    const Argument& input = graph_.inputs[i].argument;
    const DLTensor* tensor = tensor_at(i);
    CheckTensor(tensor, input, symbol_);
    for (size_t j = 0; j < input.type.shape.size(); ++j) {
      if (input.type.shape[j] == kOpen) open_dims.push_back(tensor->shape[j]);
    }
  }
  return plans_.Get(open_dims, [&]() {
    return std::make_shared<ReadyPlan>(
        CallWithOpenMP([&]() { return planner_.PlanFor(graph_, open_dims); }));
  });
}

std::string GraphRunner::Describe() const {
  CheckInitialised("get_plan");
  return only_plan_ != nullptr ? DescribePlan(symbol_, *only_plan_->plan)
                               : DescribePlans(graph_, plans_);
}

std::string GraphRunner::Measure(const char* name, int repeat, bool is_alone) const {
  CheckInitialised(name);
  std::shared_ptr<const Plan> plan;
  if (only_plan_ != nullptr) {
    plan = only_plan_->plan;
  } else {
    const auto plans = plans_.values();
    CORE_CHECK(!plans.empty()) << symbol_ << ": " << name
                               << " requires a run first: it describes the "
                               << "shape that was called last";
    plan = plans.front()->plan;
  }
  return CallWithOpenMP([&]() { return MeasurePrimitives(plan, repeat, is_alone); });
}

void GraphRunner::SetPlanCacheSize(int size) {
  CORE_CHECK(size >= 1 && size <= kMaxPlanCacheSize)
      << symbol_ << ": set_plan_cache_size: the number of plans must be from 1 to "
      << kMaxPlanCacheSize << ", but is " << size;
  plans_.SetCapacity(size);
}

void GraphRunner::CheckInitialised(const char* name) const {
  // Not the plan, which another thread may be about to make.
  CORE_CHECK(initialised_) << symbol_ << ": " << name
                           << " is available after the first run or __init_" << symbol_;
}

}  // namespace tvm::runtime::contrib::dnnl_backend
