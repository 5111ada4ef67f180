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
 * \file src/runtime/contrib/dnnl/core/plan/plan.h
 * \brief A subgraph ready to run: primitives in order and the memory that they use.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_PLAN_PLAN_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_PLAN_PLAN_H_

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../exec/fork.h"
#include "../graph.h"
#include "../implementation.h"
#include "../onednn.h"
#include "allocator.h"
#include "tensor.h"

namespace tvm::runtime::contrib::dnnl_backend {

class Recorder;
struct ReadyPlan;

/*! \brief Describes a step, for reports and profiles. */
struct StepInfo {
  std::string node;                  /*!< name and id of the graph's node */
  std::string op;                    /*!< Relay op, or "reorder" */
  std::string kind;                  /*!< primitive kind, such as "convolution" */
  std::string impl;                  /*!< oneDNN's implementation name */
  std::string variant;               /*!< which was chosen, of an op that has several, or "" */
  std::vector<std::string> post_ops; /*!< what is fused, in order */
  std::string types;                 /*!< of source, weights and result, such as "u8s8f32" */
  std::string src_layout;
  std::string dst_layout;
  /*! \brief Multiplications and additions of a convolution or a matmul, else 0. */
  double flops{0};
  /*! \brief The primitive is made for so many threads, and so must run on as many. */
  int num_threads{1};
};

/*! \brief Whether oneDNN has only plain loops for a step, or for what is fused to it. */
inline bool IsReference(const StepInfo& step) {
  return Judge(step.impl, step.kind, step.post_ops) == Implementation::kReference;
}

/*!
 * \brief Code of ours, for what no primitive of oneDNN does.
 *
 * Called with the addresses of the step's tensors, in the order of its arguments; must not throw.
 */
using HostKernel = std::function<void(void* const* addresses)>;

/*! \brief A primitive, a kernel of ours, or both, one after the other, with their arguments. */
struct Step {
  /*! \brief The most arguments of a step that has a kernel of ours. */
  static constexpr size_t kMaxKernelArgs = 12;

  /*! \brief Empty where there is a kernel alone. */
  dnnl::primitive primitive;
  /*! \brief Runs after the primitive; empty for most. */
  HostKernel kernel;
  /*! \brief DNNL_ARG_* and the index of the tensor in Plan::tensors. */
  std::vector<std::pair<int, int>> args;
  StepInfo info;

  /*! \brief The position of an argument among `args`; the end if there is none such. */
  std::vector<std::pair<int, int>>::iterator FindArg(int arg);
};

/*!
 * \brief Run a step on a stream.
 * \param args The arguments as a primitive takes them.
 * \param handles The addresses of the plan's tensors, of which a kernel takes its own.
 */
void RunStep(const Step& step, const std::vector<dnnl_exec_arg_t>& args,
             const std::vector<void*>& handles, dnnl::stream* stream);

/*! \brief The nodes of a stage, by those that the plan that it shares with another one names. */
using NodeNames = std::map<std::string, std::string>;

/*! \brief The node of a step; `names` is null for a plan that is not shared. */
inline const std::string& NodeOf(const StepInfo& step, const NodeNames* names) {
  if (names == nullptr) return step.node;
  const auto it = names->find(step.node);
  return it == names->end() ? step.node : it->second;
}

/*! \brief A part of a plan that is a plan of its own, and where its arguments are. */
struct PlanStage {
  struct Address {
    /*! \brief The argument of the whole plan; -1 for a value in its arena. */
    int argument;
    /*! \brief Where in the arena the value begins. */
    size_t offset;
  };

  std::shared_ptr<ReadyPlan> ready;
  /*! \brief Of each argument of the stage. */
  std::vector<Address> addresses;
  /*! \brief Of each constant that is passed to the stage. */
  std::vector<std::shared_ptr<void>> constants;
  /*! \brief Whether another plan or an earlier stage has the same `ready`. */
  bool is_shared;
  /*! \brief Null where the plan was made for this stage. */
  std::shared_ptr<const NodeNames> names;
};

/*! \brief A constant that runs pass as an argument. */
struct PassedConstant {
  /*! \brief Which of the graph. */
  int constant;
  /*! \brief How it is packed; nothing where it is passed as it is. */
  std::optional<PackingRecipe> packing;
  /*! \brief How it is read. */
  dnnl::memory::desc md;
  size_t bytes;
  /*! \brief That of the graph from which the plan was built, packed. */
  std::shared_ptr<void> data;
};

/*!
 * \brief Everything that stays the same from run to run. Built once, then never changed, so that
 * any number of threads may run it, each with a Context of its own.
 */
struct Plan {
  dnnl::engine engine;
  std::vector<Buffer> buffers;
  std::vector<Tensor> tensors;
  std::vector<Step> steps;
  /*! \brief The parts of a plan that has no steps of its own; empty for most. */
  std::vector<PlanStage> stages;
  /*! \brief Inputs in the order of the call, then outputs. */
  std::vector<Argument> arguments;
  /*! \brief Further arguments. */
  std::vector<PassedConstant> passed;
  /*! \brief Whether no value of a constant that is passed has decided anything. */
  bool serves_other_constants{true};
  /*! \brief The most threads that a step was made for. */
  int num_threads{1};
  size_t arena_bytes{0};
  /*! \brief The size of the arena if no two intermediates shared memory. */
  size_t arena_bytes_unshared{0};
  size_t scratchpad_bytes{0};
  size_t constant_bytes{0};
  /*! \brief How much of that other constants of this process had before. */
  size_t constant_bytes_shared{0};

  /*! \brief The buffer that a buffer is a part of in the end, and where in it. */
  std::pair<int, size_t> Locate(int buffer) const;
};

/*! \brief All that one run of a plan writes: arena, workspace, stream and the bound arguments. */
class Context {
 public:
  explicit Context(std::shared_ptr<const Plan> plan);

  /*!
   * \brief Run all steps in the order of the plan.
   * \param arguments Where the tensors of the call are.
   * \param recorder Takes down how long each step takes; nullptr for none.
   * \param names See `NodeOf`.
   */
  void Run(const std::vector<void*>& arguments, Recorder* recorder,
           const NodeNames* names = nullptr);

  /*!
   * \brief Run one step with the arguments of the latest binding, and wait for it.
   * \return How many microseconds it took.
   */
  double RunStep(size_t index);

  /*! \brief Point the plan's arguments at these addresses. */
  void Bind(const std::vector<void*>& arguments);

  /*! \brief The addresses of a call, kept here so that a run allocates nothing. */
  std::vector<void*>* addresses() { return &addresses_; }

 private:
  void RunStages(const std::vector<void*>& arguments, Recorder* recorder);
  void Execute(size_t index);
  /*! \brief Execute a step and wait for it; the microseconds that it took. */
  double TimeStep(size_t index);

  std::shared_ptr<const Plan> plan_;
  dnnl::stream stream_;
  std::shared_ptr<void> arena_;
  std::shared_ptr<void> scratchpad_;
  std::vector<dnnl::memory> memories_;
  /*! \brief The addresses of the plan's tensors. */
  std::vector<void*> handles_;
  /*! \brief A tensor that lives in an argument. */
  struct Bound {
    int tensor;
    int argument;
    size_t offset;
    /*! \brief Whether oneDNN has to be told the address. */
    bool is_of_primitive;
  };
  std::vector<Bound> bound_;
  /*! \brief The arguments of each step as oneDNN's C API takes them. */
  std::vector<std::vector<dnnl_exec_arg_t>> exec_args_;
  std::vector<void*> addresses_;
};

/*! \brief The contexts of a plan that are free; the pool grows to the number of concurrent runs. */
class ContextPool {
 public:
  explicit ContextPool(std::shared_ptr<const Plan> plan) : plan_(std::move(plan)) {}

  std::unique_ptr<Context> Take();
  void Return(std::unique_ptr<Context> context);
  /*! \brief How many are free: all of them, while nothing runs. */
  size_t size() const;
  /*! \brief How many there are. */
  size_t num_made() const { return num_made_; }

 private:
  std::shared_ptr<const Plan> plan_;
  mutable ForkSafeMutex mutex_;
  std::vector<std::unique_ptr<Context>> free_;
  std::atomic<size_t> num_made_{0};
};

/*! \brief A plan with the contexts of its runs. */
struct ReadyPlan {
  explicit ReadyPlan(std::shared_ptr<const Plan> built) : plan(std::move(built)), contexts(plan) {}

  const std::shared_ptr<const Plan> plan;
  ContextPool contexts;
};

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_PLAN_PLAN_H_
