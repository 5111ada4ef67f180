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
 * \file src/runtime/contrib/dnnl/core/plan/stages.cc
 * \brief Plans of a graph in stages, of which a new size needs few new ones.
 */
#include "stages.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "../lowering.h"
#include "builder.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief The sizes of a call, kOpen where another one has others. */
std::vector<int64_t> Changing(const std::vector<int64_t>& one, const std::vector<int64_t>& other) {
  std::vector<int64_t> dims = other;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (one[i] != other[i]) dims[i] = kOpen;
  }
  return dims;
}

/*! \brief Whether the inputs of a plan have these shapes. */
bool HaveShapes(const Plan& plan, const std::vector<std::vector<int64_t>>& shapes) {
  for (size_t i = 0; i < shapes.size(); ++i) {
    if (plan.arguments[i].type.shape != shapes[i]) return false;
  }
  return true;
}

/*! \brief Places values in an arena; the memory of one serves others that come later. */
class ValueArena {
 public:
  size_t Place(const TensorType& type) {
    const size_t bytes = RoundUp(BytesOf(type));
    bytes_unshared_ += bytes;
    std::vector<size_t>& free = free_[bytes];
    if (free.empty()) {
      free.push_back(bytes_);
      bytes_ += bytes;
    }
    const size_t offset = free.back();
    free.pop_back();
    return offset;
  }
  void Free(const TensorType& type, size_t offset) {
    free_[RoundUp(BytesOf(type))].push_back(offset);
  }

  size_t bytes() const { return bytes_; }
  size_t bytes_unshared() const { return bytes_unshared_; }

 private:
  /*! \brief Offsets, by size. */
  std::map<size_t, std::vector<size_t>> free_;
  size_t bytes_{0}, bytes_unshared_{0};
};

}  // namespace

StagedGraph::StagedGraph(Division division, std::vector<int64_t> changing, bool sizes_change)
    : stages_(std::move(division.stages)),
      num_values_(division.num_values),
      last_stages_(num_values_, 0),
      changing_(std::move(changing)),
      sizes_change_(sizes_change),
      is_useful_(!stages_.empty()) {
  for (size_t i = 0; i < stages_.size(); ++i) {
    for (int value : stages_[i].values) last_stages_[value] = i;
  }
}

bool StagedGraph::Fits(const std::vector<int64_t>& open_dims) const {
  return std::equal(open_dims.begin(), open_dims.end(), changing_.begin(), changing_.end(),
                    [](int64_t size, int64_t said) { return said == kOpen || size == said; });
}

std::shared_ptr<const Plan> StagedGraph::PlanFor(const Graph& graph,
                                                 const std::vector<int64_t>& open_dims) {
  const std::vector<std::vector<int64_t>> shapes = ShapesOf(graph, open_dims);
  auto plan = std::make_shared<Plan>();
  plan->engine = dnnl::engine(dnnl::engine::kind::cpu, 0);
  // Of all stages, so that packed constants lie side by side.
  PlanBuilder packer(graph, NumThreadsOf(graph));
  ValueArena arena;
  std::vector<TensorType> types(num_values_);
  std::vector<size_t> offsets(num_values_, 0);
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    plan->arguments.push_back(graph.inputs[i].argument);
    plan->arguments[i].type.shape = shapes[i];
    types[i] = plan->arguments[i].type;
  }
  const size_t num_arguments = graph.inputs.size() + graph.outputs.size();
  for (size_t index = 0; index < stages_.size(); ++index) {
    const Stage& stage = stages_[index];
    const size_t num_inputs = stage.graph.inputs.size();
    std::vector<std::vector<int64_t>> inputs;
    for (size_t i = 0; i < num_inputs; ++i) inputs.push_back(types[stage.values[i]].shape);
    std::shared_ptr<ReadyPlan> ready = stage.fixed;
    const bool is_same =
        stage.same >= 0 && HaveShapes(*plan->stages[stage.same].ready->plan, inputs);
    if (is_same) ready = plan->stages[stage.same].ready;
    PlanStage part{ready, {}, {}, ready != nullptr, is_same ? stage.names : nullptr};
    if (ready == nullptr) {
      ready = std::make_shared<ReadyPlan>(MakePlan(stage.graph, inputs, sizes_change_));
      part.ready = ready;
      if (!ready->plan->serves_other_constants) {
        is_useful_ = false;
        return nullptr;
      }
    }
    if (part.is_shared) {
      part.constants = packer.ConstantsFor(stage.graph, *ready->plan, plan.get());
    } else {
      for (const PassedConstant& own : ready->plan->passed) part.constants.push_back(own.data);
    }
    for (size_t i = 0; i < stage.values.size(); ++i) {
      const TensorType& type = ready->plan->arguments[i].type;
      const size_t value = stage.values[i];
      const bool is_input = i < num_inputs, is_own = value >= num_arguments;
      if (is_input && !IsSame(types[value], type)) return nullptr;
      if (!is_input) types[value] = type;
      if (!is_input && is_own) offsets[value] = arena.Place(type);
      part.addresses.push_back({is_own ? -1 : static_cast<int>(value), offsets[value]});
    }
    for (size_t value : stage.values) {
      const bool is_own = value >= num_arguments;
      if (is_own && last_stages_[value] == index) arena.Free(types[value], offsets[value]);
    }
    plan->stages.push_back(std::move(part));
  }
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    plan->arguments.push_back(graph.outputs[i].argument);
    plan->arguments.back().type = types[graph.inputs.size() + i];
  }
  plan->arena_bytes = arena.bytes();
  plan->arena_bytes_unshared = arena.bytes_unshared();
  return plan;
}

std::shared_ptr<const Plan> Planner::PlanFor(const Graph& graph,
                                             const std::vector<int64_t>& open_dims) {
  std::shared_ptr<const Plan> plan;
  std::shared_ptr<StagedGraph> staged = Find(graph, open_dims);
  if (staged != nullptr) plan = staged->PlanFor(graph, open_dims);
  if (plan == nullptr) {
    staged = layers_.Get(0, [&]() {
      return std::make_shared<StagedGraph>(DivideByLayers(graph), open_dims,
                                           /*sizes_change=*/false);
    });
    if (staged->is_useful()) plan = staged->PlanFor(graph, open_dims);
  }
  if (plan == nullptr) plan = MakePlanFor(graph, open_dims);
  std::lock_guard<ForkSafeMutex> lock(mutex_);
  last_ = open_dims;
  return plan;
}

std::shared_ptr<StagedGraph> Planner::Find(const Graph& graph,
                                           const std::vector<int64_t>& open_dims) {
  for (const std::shared_ptr<StagedGraph>& staged : staged_.values()) {
    if (staged->is_useful() && staged->Fits(open_dims)) return staged;
  }
  std::vector<int64_t> last;
  {
    std::lock_guard<ForkSafeMutex> lock(mutex_);
    last = last_;
  }
  if (last.empty() || last == open_dims) return nullptr;
  const std::vector<int64_t> changing = Changing(last, open_dims);
  const auto staged = staged_.Get(changing, [&]() {
    return std::make_shared<StagedGraph>(DivideBySizes(graph, last, open_dims), changing,
                                         /*sizes_change=*/true);
  });
  return staged->is_useful() ? staged : nullptr;
}

}  // namespace tvm::runtime::contrib::dnnl_backend
