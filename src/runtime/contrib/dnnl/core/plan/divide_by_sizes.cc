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
 * \file src/runtime/contrib/dnnl/core/plan/divide_by_sizes.cc
 * \brief Stages of a graph of which only some sizes change, such as the past of a language model.
 */
#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "../infer.h"
#include "../lowering.h"
#include "divide.h"
#include "plan_cache.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief Divides a graph by the types of its values in two calls. */
class SizesDivider : public Divider {
 public:
  SizesDivider(const Graph& graph, const std::vector<int64_t>& one,
               const std::vector<int64_t>& other)
      : Divider(graph),
        one_(Infer(graph, ShapesOf(graph, one))),
        other_(Infer(graph, ShapesOf(graph, other))) {}

  Division Divide() {
    Division division;
    if (!NameValues()) return division;
    FindPhases();
    if (!IsUseful()) return division;
    FindHandedOn();
    std::set<int> phases;
    for (const auto& [node, phase] : phases_) phases.insert(phase);
    std::vector<Stage>* stages = &division.stages;
    for (int phase : phases) {
      Stage stage = SizedStageOf(phase);
      for (size_t i = 0; i < stages->size() && stage.fixed == nullptr && stage.same < 0; ++i) {
        const auto differing = DifferingConstants((*stages)[i].graph, stage.graph);
        if (differing && differing->empty()) stage.same = static_cast<int>(i);
      }
      stages->push_back(std::move(stage));
    }
    division.num_values = num_values_;
    return division;
  }

 private:
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

  Stage SizedStageOf(int phase) {
    const bool changes = Changes(phase);
    Stage stage = StageOf(phase, [&](const Entry& entry) {
      const auto input = inputs_.find(entry);
      if (changes && input != inputs_.end()) return input->second->argument.type;
      TensorType type = types_.at(entry);
      // Any size: the nodes check what they read.
      if (changes) std::fill(type.shape.begin(), type.shape.end(), kOpen);
      return type;
    });
    if (!changes) stage.fixed = std::make_shared<ReadyPlan>(MakePlan(stage.graph));
    return stage;
  }

  const Graph one_, other_;
  std::map<Entry, TensorType> types_;
};

}  // namespace

Division DivideBySizes(const Graph& graph, const std::vector<int64_t>& one,
                       const std::vector<int64_t>& other) {
  return SizesDivider(graph, one, other).Divide();
}

}  // namespace tvm::runtime::contrib::dnnl_backend
