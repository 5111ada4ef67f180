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
 * \brief Plans of a graph of which only some sizes change, such as the past of a language model.
 */
#include "stages.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "../infer.h"
#include "../lowering.h"
#include "../ops/types.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

bool IsSame(const TensorType& a, const TensorType& b) {
  return a.shape == b.shape && a.dtype == b.dtype;
}

bool IsSame(const Types& a, const Types& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const TensorType& x, const TensorType& y) { return IsSame(x, y); });
}

size_t BytesOf(const TensorType& type) {
  size_t bytes = (type.dtype.bits * type.dtype.lanes + 7) / 8;
  for (int64_t dim : type.shape) bytes *= dim;
  return bytes;
}

/*! \brief The sizes of a call, kOpen where another one has others. */
std::vector<int64_t> Changing(const std::vector<int64_t>& one, const std::vector<int64_t>& other) {
  std::vector<int64_t> dims = other;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (one[i] != other[i]) dims[i] = kOpen;
  }
  return dims;
}

/*! \brief Whether two constants are one, or equal: few bytes, such as a factor. */
bool IsSame(const Constant& a, const Constant& b) {
  constexpr size_t kFewBytes = 64;
  const TensorType& type = a.edge.argument.type;
  if (!IsSame(type, b.edge.argument.type)) return false;
  return a.data == b.data || (BytesOf(type) <= kFewBytes &&
                              std::memcmp(a.data.get(), b.data.get(), BytesOf(type)) == 0);
}

using Attrs = std::map<std::string, json::JSONAttr>;

bool IsSame(const Attrs& a, const Attrs& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.first == y.first && x.second.Repr() == y.second.Repr();
  });
}

/*! \brief Whether two graphs differ in the numbers of their nodes and in names alone. */
bool HaveSameOps(const Graph& a, const Graph& b) {
  if (a.inputs.size() != b.inputs.size() || a.constants.size() != b.constants.size() ||
      a.nodes.size() != b.nodes.size() || a.outputs.size() != b.outputs.size()) {
    return false;
  }
  // The nodes of `b` that stand for those of `a`.
  std::map<Entry, Entry> known;
  const auto are_same = [&known](const Entry& x, const Entry& y) {
    const auto it = known.find(x);
    return it != known.end() && it->second.node == y.node && it->second.index == y.index;
  };
  for (size_t i = 0; i < a.inputs.size(); ++i) {
    if (!IsSame(a.inputs[i].argument.type, b.inputs[i].argument.type)) return false;
    known[a.inputs[i].entry] = b.inputs[i].entry;
  }
  for (size_t i = 0; i < a.constants.size(); ++i) {
    if (!IsSame(a.constants[i], b.constants[i])) return false;
    known[a.constants[i].edge.entry] = b.constants[i].edge.entry;
  }
  for (size_t i = 0; i < a.nodes.size(); ++i) {
    const Node &x = a.nodes[i], &y = b.nodes[i];
    if (x.name != y.name || !IsSame(x.attrs, y.attrs) || !IsSame(x.outputs, y.outputs) ||
        !std::equal(x.inputs.begin(), x.inputs.end(), y.inputs.begin(), y.inputs.end(), are_same)) {
      return false;
    }
    for (uint32_t k = 0; k < x.outputs.size(); ++k) known[{x.id, k}] = {y.id, k};
  }
  return std::equal(a.outputs.begin(), a.outputs.end(), b.outputs.begin(),
                    [&](const Edge& x, const Edge& y) {
                      return are_same(x.entry, y.entry) && IsSame(x.argument.type, y.argument.type);
                    });
}

/*! \brief Whether the inputs of a plan have these shapes. */
bool HaveShapes(const Plan& plan, const std::vector<std::vector<int64_t>>& shapes) {
  for (size_t i = 0; i < shapes.size(); ++i) {
    if (plan.arguments[i].type.shape != shapes[i]) return false;
  }
  return true;
}

}  // namespace

/*! \brief Divides a graph by the types of its values in two calls. */
class StagedGraph::Divider {
 public:
  Divider(const Graph& graph, const std::vector<int64_t>& one, const std::vector<int64_t>& other)
      : graph_(graph),
        one_(Infer(graph, ShapesOf(graph, one))),
        other_(Infer(graph, ShapesOf(graph, other))) {}

  /*! \brief Stages in the order of their runs; none where they are not useful. */
  std::vector<Stage> Divide() {
    std::vector<Stage> stages;
    if (!NameValues()) return stages;
    FindPhases();
    if (!IsUseful()) return stages;
    std::set<int> phases;
    for (const auto& [node, phase] : phases_) phases.insert(phase);
    for (int phase : phases) {
      Stage stage = StageOf(phase);
      for (size_t i = 0; i < stages.size() && stage.fixed == nullptr && stage.same < 0; ++i) {
        if (HaveSameOps(stages[i].graph, stage.graph)) stage.same = static_cast<int>(i);
      }
      stages.push_back(std::move(stage));
    }
    return stages;
  }

  size_t num_values() const { return num_values_; }

 private:
  /*! \brief Number the graph's own values; false where an output is not one of a node alone. */
  bool NameValues() {
    for (const Edge& input : graph_.inputs) values_[input.entry] = num_values_++;
    for (const Constant& constant : graph_.constants) constants_[constant.edge.entry] = &constant;
    for (const Edge& output : graph_.outputs) {
      const bool is_new = values_.emplace(output.entry, num_values_++).second;
      if (!is_new || constants_.count(output.entry) > 0) return false;
      outputs_[output.entry] = &output;
    }
    return true;
  }

  static bool Changes(int phase) { return (phase & 1) != 0; }

  /*!
   * \brief Give each node a phase, not before those of its operands: odd where sizes change.
   *
   * What depends on inputs alone, such as a mask, is in phase -1, so that the first layer's
   * attention is a stage that has the same ops as those of other layers.
   */
  void FindPhases() {
    std::set<Entry> changed;
    for (size_t i = 0; i < graph_.inputs.size(); ++i) {
      const Argument &a = one_.inputs[i].argument, &b = other_.inputs[i].argument;
      if (!IsSame(a.type, b.type)) changed.insert(graph_.inputs[i].entry);
      types_[graph_.inputs[i].entry] = b.type;
    }
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node &a = one_.nodes[i], &b = other_.nodes[i];
      bool changes = !IsSame(a.outputs, b.outputs) || !IsSame(a.op_types, b.op_types);
      for (const Entry& input : a.inputs) changes = changes || changed.count(input) > 0;
      int phase = changes ? -1 : 0;
      for (const Entry& input : a.inputs) {
        const auto it = phases_.find(input.node);
        if (it == phases_.end()) continue;
        phase = std::max(phase, it->second + (Changes(it->second) == changes ? 0 : 1));
      }
      phases_[a.id] = phase;
      for (uint32_t k = 0; k < a.outputs.size(); ++k) {
        types_[{a.id, k}] = b.outputs[k];
        if (!IsSame(a.outputs[k], b.outputs[k])) changed.insert({a.id, k});
      }
    }
  }

  /*!
   * \brief Whether fixed nodes read most of the constants. A graph of an open image or text has few
   * such nodes, and loses fusion and layouts between them and the others.
   */
  bool IsUseful() const {
    size_t all = 0, fixed = 0;
    for (const Node& node : graph_.nodes) {
      for (const Entry& input : node.inputs) {
        const auto it = constants_.find(input);
        if (it == constants_.end()) continue;
        const size_t bytes = BytesOf(it->second->edge.argument.type);
        all += bytes;
        if (!Changes(phases_.at(node.id))) fixed += bytes;
      }
    }
    return 2 * fixed > all;
  }

  Stage StageOf(int phase) {
    const bool changes = Changes(phase);
    Stage stage;
    stage.graph.symbol = graph_.symbol;
    stage.graph.name = graph_.name;
    stage.graph.owns_constants = graph_.owns_constants;
    stage.graph.has_other_shapes = graph_.has_other_shapes;
    std::set<Entry> known;
    for (const Node& node : graph_.nodes) {
      if (phases_.at(node.id) != phase) continue;
      for (const Entry& input : node.inputs) {
        const auto it = phases_.find(input.node);
        const bool is_inside = it != phases_.end() && it->second == phase;
        if (is_inside || !known.insert(input).second) continue;
        const auto constant = constants_.find(input);
        if (constant != constants_.end()) {
          stage.graph.constants.push_back(*constant->second);
        } else {
          AddInput(input, changes, &stage);
        }
      }
      stage.graph.nodes.push_back(node);
    }
    for (const Node& node : stage.graph.nodes) {
      for (uint32_t k = 0; k < node.outputs.size(); ++k) AddOutput(node, k, phase, &stage);
    }
    std::vector<int>* values = &stage.values;
    for (const auto* edges : {&stage.graph.inputs, &stage.graph.outputs}) {
      for (const Edge& edge : *edges) values->push_back(values_.at(edge.entry));
    }
    if (!changes) stage.fixed = std::make_shared<ReadyPlan>(MakePlan(stage.graph));
    return stage;
  }

  void AddInput(const Entry& entry, bool changes, Stage* stage) {
    for (const Edge& input : graph_.inputs) {
      if (input.entry.node != entry.node || input.entry.index != entry.index) continue;
      stage->graph.inputs.push_back(input);
      if (!changes) stage->graph.inputs.back().argument.type = types_.at(entry);
      return;
    }
    TensorType type = types_.at(entry);
    // Any size: the nodes check what they read.
    if (changes) std::fill(type.shape.begin(), type.shape.end(), kOpen);
    stage->graph.inputs.push_back({entry, {NameOf(entry), type}});
  }

  void AddOutput(const Node& node, uint32_t index, int phase, Stage* stage) {
    const Entry entry{node.id, index};
    const auto output = outputs_.find(entry);
    if (output != outputs_.end()) {
      stage->graph.outputs.push_back(*output->second);
      return;
    }
    const bool is_read =
        std::any_of(graph_.nodes.begin(), graph_.nodes.end(), [&](const Node& reader) {
          return phases_.at(reader.id) != phase &&
                 std::any_of(reader.inputs.begin(), reader.inputs.end(), [&](const Entry& input) {
                   return input.node == entry.node && input.index == entry.index;
                 });
        });
    if (!is_read) return;
    values_[entry] = num_values_++;
    stage->graph.outputs.push_back({entry, {NameOf(entry), node.outputs[index]}});
  }

  static std::string NameOf(const Entry& entry) {
    return "output " + std::to_string(entry.index) + " of node " + std::to_string(entry.node);
  }

  const Graph& graph_;
  const Graph one_, other_;
  std::map<Entry, const Constant*> constants_;
  std::map<Entry, const Edge*> outputs_;
  std::map<Entry, TensorType> types_;
  std::map<uint32_t, int> phases_;
  std::map<Entry, int> values_;
  int num_values_{0};
};

StagedGraph::StagedGraph(const Graph& graph, const std::vector<int64_t>& one,
                         const std::vector<int64_t>& other, std::vector<int64_t> changing)
    : changing_(std::move(changing)) {
  Divider divider(graph, one, other);
  stages_ = divider.Divide();
  num_values_ = divider.num_values();
}

bool StagedGraph::Fits(const std::vector<int64_t>& open_dims) const {
  return std::equal(open_dims.begin(), open_dims.end(), changing_.begin(), changing_.end(),
                    [](int64_t size, int64_t said) { return said == kOpen || size == said; });
}

std::shared_ptr<const Plan> StagedGraph::PlanFor(const Graph& graph,
                                                 const std::vector<int64_t>& open_dims) const {
  const std::vector<std::vector<int64_t>> shapes = ShapesOf(graph, open_dims);
  auto plan = std::make_shared<Plan>();
  plan->engine = dnnl::engine(dnnl::engine::kind::cpu, 0);
  std::vector<TensorType> types(num_values_);
  std::vector<size_t> offsets(num_values_, 0);
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    plan->arguments.push_back(graph.inputs[i].argument);
    plan->arguments[i].type.shape = shapes[i];
    types[i] = plan->arguments[i].type;
  }
  const size_t num_arguments = graph.inputs.size() + graph.outputs.size();
  for (const Stage& stage : stages_) {
    const size_t num_inputs = stage.graph.inputs.size();
    std::vector<std::vector<int64_t>> inputs;
    for (size_t i = 0; i < num_inputs; ++i) inputs.push_back(types[stage.values[i]].shape);
    std::shared_ptr<ReadyPlan> ready = stage.fixed;
    if (stage.same >= 0 && HaveShapes(*plan->stages[stage.same].ready->plan, inputs)) {
      ready = plan->stages[stage.same].ready;
    }
    PlanStage part{ready, {}, ready != nullptr};
    if (ready == nullptr) {
      ready = std::make_shared<ReadyPlan>(MakePlan(stage.graph, inputs, /*sizes_change=*/true));
      part.ready = ready;
    }
    for (size_t i = 0; i < stage.values.size(); ++i) {
      const TensorType& type = ready->plan->arguments[i].type;
      const size_t value = stage.values[i];
      const bool is_input = i < num_inputs, is_own = value >= num_arguments;
      if (is_input && !IsSame(types[value], type)) return nullptr;
      if (!is_input) types[value] = type;
      if (!is_input && is_own) {
        offsets[value] = plan->arena_bytes;
        plan->arena_bytes += RoundUp(BytesOf(type));
      }
      part.addresses.push_back({is_own ? -1 : static_cast<int>(value), offsets[value]});
    }
    plan->stages.push_back(std::move(part));
  }
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    plan->arguments.push_back(graph.outputs[i].argument);
    plan->arguments.back().type = types[graph.inputs.size() + i];
  }
  plan->arena_bytes_unshared = plan->arena_bytes;
  return plan;
}

std::shared_ptr<const Plan> Planner::PlanFor(const Graph& graph,
                                             const std::vector<int64_t>& open_dims) {
  std::shared_ptr<const Plan> plan;
  const std::shared_ptr<StagedGraph> staged = Find(graph, open_dims);
  if (staged != nullptr) plan = staged->PlanFor(graph, open_dims);
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
  const auto staged = staged_.Get(
      changing, [&]() { return std::make_shared<StagedGraph>(graph, last, open_dims, changing); });
  return staged->is_useful() ? staged : nullptr;
}

}  // namespace tvm::runtime::contrib::dnnl_backend
