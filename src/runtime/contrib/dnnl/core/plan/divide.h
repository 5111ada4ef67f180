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
 * \file src/runtime/contrib/dnnl/core/plan/divide.h
 * \brief Divisions of a graph into stages, each of which gets a plan of its own.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_PLAN_DIVIDE_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_PLAN_DIVIDE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "../graph.h"
#include "plan.h"

namespace tvm::runtime::contrib::dnnl_backend {

bool IsSame(const TensorType& a, const TensorType& b);
bool IsSame(const Types& a, const Types& b);
/*! \brief Whether two nodes differ in what they read, and in their numbers, alone. */
bool HasSameOp(const Node& a, const Node& b);

/*! \brief A part of a graph that is planned by itself. */
struct Stage {
  Graph graph;
  /*! \brief Which values the inputs and the outputs are: see `Division::num_values`. */
  std::vector<int> values;
  /*! \brief The plan for all calls; null where a call's sizes decide. */
  std::shared_ptr<ReadyPlan> fixed;
  /*! \brief The first stage with the same ops, such as that of an earlier layer; -1 for none. */
  int same{-1};
  /*! \brief The nodes, by those of that stage. */
  std::shared_ptr<const NodeNames> names;
};

/*! \brief A graph as stages, in the order of their runs. */
struct Division {
  /*! \brief Empty where it is not useful to divide the graph. */
  std::vector<Stage> stages;
  /*! \brief Those of the graph's inputs, then its outputs, then what stages hand to each other. */
  size_t num_values{0};
};

/*!
 * \brief Divide a graph by whether a node depends on the sizes that differ between two calls.
 *
 * Nodes that do not are planned once, for all calls. In a decoder they have the weights; what is
 * planned for each length of the past are the copy of the cache and the attention.
 *
 * \param one, other The open dimensions of two calls.
 */
Division DivideBySizes(const Graph& graph, const std::vector<int64_t>& one,
                       const std::vector<int64_t>& other);

/*!
 * \brief Divide a graph into its layers, such as those of a transformer, and what is around them.
 *
 * Layers have the same ops, attributes and types, but weights of their own. A call of a new size
 * plans one layer, see Constant::is_passed.
 */
Division DivideByLayers(const Graph& graph);

/*! \brief The constants in which a graph differs from another with the same ops; none if they
 * differ in more than those and the numbers and names of nodes. */
std::optional<std::set<size_t>> DifferingConstants(const Graph& a, const Graph& b);

/*! \brief Builds stages of nodes to which it has been told the phases. */
class Divider {
 public:
  explicit Divider(const Graph& graph) : graph_(graph) {}

 protected:
  /*! \brief Number the graph's own values; false where an output is not one of a node alone. */
  bool NameValues();

  /*!
   * \brief The nodes of a phase; `FindHandedOn` comes first.
   * \param type_of The type of an input.
   */
  Stage StageOf(int phase, const std::function<TensorType(const Entry&)>& type_of);

  /*! \brief Find what is read in another phase than it is computed in. */
  void FindHandedOn();

  const Graph& graph_;
  std::map<Entry, const Constant*> constants_;
  std::map<Entry, const Edge*> inputs_, outputs_;
  /*! \brief By the number of a node. */
  std::map<uint32_t, int> phases_;
  std::map<Entry, int> values_;
  int num_values_{0};

 private:
  void AddInput(const Entry& entry, const TensorType& type, Stage* stage) const;
  void AddOutputs(const Node& node, Stage* stage);

  std::set<Entry> handed_on_;
};

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_PLAN_DIVIDE_H_
