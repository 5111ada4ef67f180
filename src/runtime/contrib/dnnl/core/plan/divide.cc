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
 * \file src/runtime/contrib/dnnl/core/plan/divide.cc
 * \brief Divisions of a graph into stages: what those by sizes and by layers share.
 */
#include "divide.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "../ops/types.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief Whether two constants are one, or equal: few bytes, such as a factor. */
bool IsSame(const Constant& a, const Constant& b) {
  constexpr size_t kFewBytes = 64;
  if (a.data == b.data) return true;
  const size_t bytes = BytesOf(a.edge.argument.type);
  return bytes <= kFewBytes && std::memcmp(a.data.get(), b.data.get(), bytes) == 0;
}

/*! \brief Whether two lists have the same length, and elements that `is_same` says are the same. */
template <typename T, typename Same>
bool AreSame(const std::vector<T>& a, const std::vector<T>& b, const Same& is_same) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), is_same);
}

std::string NameOf(const Entry& entry) {
  return "output " + std::to_string(entry.index) + " of node " + std::to_string(entry.node);
}

}  // namespace

bool IsSame(const TensorType& a, const TensorType& b) {
  return a.shape == b.shape && a.dtype == b.dtype;
}

bool IsSame(const Types& a, const Types& b) {
  return AreSame(a, b, [](const TensorType& x, const TensorType& y) { return IsSame(x, y); });
}

bool HasSameOp(const Node& a, const Node& b) {
  return a.name == b.name && a.attrs == b.attrs && a.inputs.size() == b.inputs.size() &&
         IsSame(a.outputs, b.outputs);
}

std::optional<std::set<size_t>> DifferingConstants(const Graph& a, const Graph& b) {
  // The values of `b` that stand for those of `a`.
  std::map<Entry, Entry> known;
  const auto is_known = [&known](const Entry& x, const Entry& y) {
    const auto it = known.find(x);
    return it != known.end() && !(it->second < y) && !(y < it->second);
  };
  const auto is_edge = [&known](const Edge& x, const Edge& y) {
    known[x.entry] = y.entry;
    return IsSame(x.argument.type, y.argument.type) &&
           x.argument.reserved_axis == y.argument.reserved_axis;
  };
  std::set<size_t> differing;
  const auto is_constant = [&](const Constant& x, const Constant& y) {
    if (!IsSame(x, y)) differing.insert(&x - a.constants.data());
    return is_edge(x.edge, y.edge);
  };
  const auto is_node = [&](const Node& x, const Node& y) {
    for (uint32_t k = 0; k < x.outputs.size(); ++k) known[{x.id, k}] = {y.id, k};
    return HasSameOp(x, y) && AreSame(x.inputs, y.inputs, is_known);
  };
  const auto is_output = [&](const Edge& x, const Edge& y) {
    return is_known(x.entry, y.entry) && IsSame(x.argument.type, y.argument.type) &&
           x.argument.reserved_axis == y.argument.reserved_axis;
  };
  const bool is_same =
      AreSame(a.inputs, b.inputs, is_edge) && AreSame(a.constants, b.constants, is_constant) &&
      AreSame(a.nodes, b.nodes, is_node) && AreSame(a.outputs, b.outputs, is_output);
  return is_same ? std::make_optional(differing) : std::nullopt;
}

bool Divider::NameValues() {
  for (const Edge& input : graph_.inputs) {
    inputs_[input.entry] = &input;
    values_[input.entry] = num_values_++;
  }
  for (const Constant& constant : graph_.constants) constants_[constant.edge.entry] = &constant;
  for (const Edge& output : graph_.outputs) {
    const bool is_new = values_.emplace(output.entry, num_values_++).second;
    if (!is_new || constants_.count(output.entry) > 0) return false;
    outputs_[output.entry] = &output;
  }
  return true;
}

void Divider::FindHandedOn() {
  for (const Node& node : graph_.nodes) {
    for (const Entry& input : node.inputs) {
      const auto it = phases_.find(input.node);
      if (it != phases_.end() && it->second != phases_.at(node.id)) handed_on_.insert(input);
    }
  }
}

Stage Divider::StageOf(int phase, const std::function<TensorType(const Entry&)>& type_of) {
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
        AddInput(input, type_of(input), &stage);
      }
    }
    stage.graph.nodes.push_back(node);
  }
  for (const Node& node : stage.graph.nodes) AddOutputs(node, &stage);
  for (const auto* edges : {&stage.graph.inputs, &stage.graph.outputs}) {
    for (const Edge& edge : *edges) stage.values.push_back(values_.at(edge.entry));
  }
  return stage;
}

void Divider::AddInput(const Entry& entry, const TensorType& type, Stage* stage) const {
  Argument argument{NameOf(entry), type};
  for (const auto* edges : {&outputs_, &inputs_}) {
    const auto it = edges->find(entry);
    if (it == edges->end()) continue;
    if (edges == &inputs_) argument.name = it->second->argument.name;
    argument.reserved_axis = it->second->argument.reserved_axis;
  }
  stage->graph.inputs.push_back({entry, argument});
}

void Divider::AddOutputs(const Node& node, Stage* stage) {
  for (uint32_t i = 0; i < node.outputs.size(); ++i) {
    const Entry entry{node.id, i};
    const auto output = outputs_.find(entry);
    if (output != outputs_.end()) {
      stage->graph.outputs.push_back(*output->second);
    } else if (handed_on_.count(entry) > 0) {
      values_[entry] = num_values_++;
      stage->graph.outputs.push_back({entry, {NameOf(entry), node.outputs[i]}});
    }
  }
}

}  // namespace tvm::runtime::contrib::dnnl_backend
