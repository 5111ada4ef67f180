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
 * \file src/runtime/contrib/dnnl/core/plan/divide_by_layers.cc
 * \brief Stages of a graph that repeats the same ops, such as the layers of a transformer.
 */
#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "../node_reader.h"
#include "divide.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief So many nodes at least need not be lowered again, or the graph stays whole. */
constexpr size_t kFewestRepeated = 64;
/*! \brief A shorter sequence is no layer of a transformer. */
constexpr size_t kShortestLayer = 6;

/*! \brief Layers that follow each other, by positions in the list of nodes. */
struct Layers {
  size_t begin{0};
  size_t length{0};
  size_t count{0};

  size_t repeated() const { return count == 0 ? 0 : (count - 1) * length; }
};

class LayersDivider : public Divider {
 public:
  explicit LayersDivider(const Graph& graph) : Divider(graph) {}

  Division Divide() {
    Division division;
    FindKinds();
    const Layers layers = FindLayers();
    if (layers.repeated() < kFewestRepeated || !NameValues() || HasKernels(layers)) return {};
    SetPhases(layers);
    FindHandedOn();
    std::map<Entry, const TensorType*> types;
    for (const Node& node : graph_.nodes) {
      for (uint32_t i = 0; i < node.outputs.size(); ++i) types[{node.id, i}] = &node.outputs[i];
    }
    for (int phase = 0; phase <= static_cast<int>(layers.count) + 1; ++phase) {
      Stage stage = StageOf(phase, [&](const Entry& entry) {
        const auto input = inputs_.find(entry);
        return input == inputs_.end() ? *types.at(entry) : input->second->argument.type;
      });
      if (!stage.graph.nodes.empty()) division.stages.push_back(std::move(stage));
    }
    division.num_values = num_values_;
    return Join(&division.stages) >= kFewestRepeated ? division : Division();
  }

 private:
  /*! \brief The longest repetition of ops, whatever they read. */
  Layers FindLayers() const {
    Layers longest;
    for (size_t length = kShortestLayer; length <= kinds_.size() / 2; ++length) {
      size_t run = 0;
      for (size_t i = 0; i + length < kinds_.size(); ++i) {
        run = kinds_[i] == kinds_[i + length] ? run + 1 : 0;
        if (run / length * length <= longest.repeated()) continue;
        longest = {i + 1 - run, length, run / length + 1};
      }
    }
    if (longest.count > 0) ChooseBegin(&longest);
    return longest;
  }

  /*!
   * \brief Put nodes in an order in which layers are alike, and number them by what they do.
   *
   * The first layer has nodes that later ones share, such as those of a mask. They come first.
   */
  void FindKinds() {
    constexpr int kFewNodes = 2;
    std::vector<const Node*> known;
    std::vector<int> kinds, counts;
    for (const Node& node : graph_.nodes) {
      const auto it = std::find_if(known.begin(), known.end(),
                                   [&](const Node* other) { return HasSameOp(*other, node); });
      kinds.push_back(static_cast<int>(it - known.begin()));
      if (it == known.end()) {
        known.push_back(&node);
        counts.push_back(0);
      }
      ++counts[kinds.back()];
    }
    std::set<uint32_t> of_layers;
    std::vector<size_t> order(kinds.size());
    for (size_t i = 0; i < kinds.size(); ++i) {
      const Node& node = graph_.nodes[i];
      const bool is_of_layer =
          counts[kinds[i]] > kFewNodes ||
          std::any_of(node.inputs.begin(), node.inputs.end(),
                      [&](const Entry& input) { return of_layers.count(input.node) > 0; });
      if (is_of_layer) of_layers.insert(node.id);
      order[i] = i;
    }
    std::stable_partition(order.begin(), order.end(),
                          [&](size_t i) { return of_layers.count(graph_.nodes[i].id) == 0; });
    for (size_t i : order) {
      nodes_.push_back(&graph_.nodes[i]);
      kinds_.push_back(kinds[i]);
    }
  }

  /*! \brief Of the nodes that layers may begin with, choose the one before which least is alive. */
  void ChooseBegin(Layers* layers) const {
    std::map<uint32_t, size_t> positions;
    std::map<Entry, size_t> last_readers;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      positions[nodes_[i]->id] = i;
      for (const Entry& input : nodes_[i]->inputs) last_readers[input] = i;
    }
    const size_t first = layers->begin;
    // What is computed outside of the layers is read by all of them.
    const auto count_alive = [&](size_t end) {
      return std::count_if(last_readers.begin(), last_readers.end(), [&](const auto& value) {
        const auto it = positions.find(value.first.node);
        return it != positions.end() && it->second >= first && it->second < end &&
               value.second >= end;
      });
    };
    auto least = count_alive(first + layers->length);
    for (size_t begin = first + 1;; ++begin) {
      const size_t last = begin + layers->repeated() - 1;
      const size_t next = last + layers->length;
      if (next >= kinds_.size() || kinds_[last] != kinds_[next]) break;
      const auto count = count_alive(begin + layers->length);
      if (count >= least) continue;
      layers->begin = begin;
      least = count;
    }
  }

  /*!
   * \brief Whether the weights are kernels of convolutions, the layouts of whose results do not
   * end where a layer does, or of recurrent layers, which are packed by their values.
   */
  bool HasKernels(const Layers& layers) const {
    for (size_t i = layers.begin; i < layers.begin + layers.length; ++i) {
      for (const Entry& input : nodes_[i]->inputs) {
        const auto it = constants_.find(input);
        if (it != constants_.end() && it->second->edge.argument.type.shape.size() > 2) return true;
      }
    }
    return false;
  }

  /*! \brief Phase 0 is before the first layer, which is phase 1. */
  void SetPhases(const Layers& layers) {
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const size_t layer = i < layers.begin ? 0 : (i - layers.begin) / layers.length + 1;
      phases_[nodes_[i]->id] = static_cast<int>(std::min(layer, layers.count + 1));
    }
  }

  /*!
   * \brief Have layers use the plan of an earlier one where only constants differ, which are
   * passed.
   * \return How many nodes need not be lowered.
   */
  static size_t Join(std::vector<Stage>* stages) {
    size_t repeated = 0;
    for (size_t i = 0; i < stages->size(); ++i) {
      Stage& stage = (*stages)[i];
      for (size_t k = 0; k < i && stage.same < 0; ++k) {
        Stage& other = (*stages)[k];
        if (other.same >= 0) continue;
        const auto differing = DifferingConstants(other.graph, stage.graph);
        if (!differing) continue;
        stage.same = static_cast<int>(k);
        stage.names = NamesOf(other.graph, stage.graph);
        repeated += stage.graph.nodes.size();
        for (size_t constant : *differing) other.graph.constants[constant].is_passed = true;
      }
    }
    return repeated;
  }

  /*! \brief The nodes of a graph by those of another one with the same ops. */
  static std::shared_ptr<const NodeNames> NamesOf(const Graph& other, const Graph& graph) {
    NodeNames names;
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      names[NodeReader(other.nodes[i], other.symbol).Where()] =
          NodeReader(graph.nodes[i], graph.symbol).Where();
    }
    return std::make_shared<const NodeNames>(std::move(names));
  }

  /*! \brief The nodes, in topological order. */
  std::vector<const Node*> nodes_;
  /*! \brief A number for each of them, the same for nodes with the same op. */
  std::vector<int> kinds_;
};

}  // namespace

Division DivideByLayers(const Graph& graph) { return LayersDivider(graph).Divide(); }

}  // namespace tvm::runtime::contrib::dnnl_backend
