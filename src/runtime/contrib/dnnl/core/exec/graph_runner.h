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
 * \file src/runtime/contrib/dnnl/core/exec/graph_runner.h
 * \brief Runs a subgraph on the tensors of a call: what a runtime module does, whichever TVM's.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_EXEC_GRAPH_RUNNER_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_EXEC_GRAPH_RUNNER_H_

#include <dlpack/dlpack.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "../graph.h"
#include "../plan/plan_cache.h"
#include "../plan/stages.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*!
 * \brief Check that a tensor is dense, on the CPU, and of the shape and type that are expected, in
 * which open dimensions stand for any size.
 * \param symbol The function that it is passed to, for the error.
 */
void CheckTensor(const DLTensor* tensor, const Argument& expected, const std::string& symbol);

/*! \brief Where the elements of a tensor begin. */
inline void* AddressOf(const DLTensor& tensor) {
  return static_cast<char*>(tensor.data) + tensor.byte_offset;
}

/*!
 * \brief A subgraph that is called: one plan, or with open dimensions a plan for each shape.
 *
 * `Init` comes first and once; the rest is safe on any number of threads at once after that.
 */
class GraphRunner {
 public:
  /*!
   * \param symbol The function, which errors name.
   * \param limits Which plans are kept, such as DefaultPlanCacheLimits().
   */
  GraphRunner(std::string symbol, PlanCacheLimits limits);

  /*! \brief Make the plan, or check what can be told without the shapes. */
  void Init(Graph graph);

  /*!
   * \brief Run the graph; each run has a context of its own.
   * \param num_tensors How many tensors the call has: inputs, then outputs.
   * \param tensor_at Gives each.
   */
  void Run(size_t num_tensors, const std::function<const DLTensor*(size_t)>& tensor_at);

  /*! \brief The plans as JSON. */
  std::string Describe() const;
  /*!
   * \brief The time of each primitive of the plan, or of that of the shape that was called last.
   * \param name How errors call the function.
   */
  std::string Measure(const char* name, int repeat, bool is_alone) const;
  void SetPlanCacheSize(int size);

 private:
  void RunCall(size_t num_tensors, const std::function<const DLTensor*(size_t)>& tensor_at);
  void CheckInitialised(const char* name) const;
  /*! \brief Whether the results of a call are empty, as an input is: oneDNN has no such tensors. */
  bool HasNothingToCompute(const std::function<const DLTensor*(size_t)>& tensor_at) const;
  std::shared_ptr<ReadyPlan> PlanOf(const std::function<const DLTensor*(size_t)>& tensor_at);

  const std::string symbol_;
  std::atomic<bool> initialised_{false};
  size_t num_arguments_{0};
  /*! \brief The plan of a graph without open dimensions, else null. */
  std::shared_ptr<ReadyPlan> only_plan_;
  /*! \brief The graph where it has open dimensions, with its constants. */
  Graph graph_;
  PlanCache plans_;
  Planner planner_;
};

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_EXEC_GRAPH_RUNNER_H_
