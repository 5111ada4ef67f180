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
 * \file src/runtime/contrib/dnnl/c_source/op_kernel.h
 * \brief A single op of the C-source path as a plan of one node.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_C_SOURCE_OP_KERNEL_H_
#define TVM_RUNTIME_CONTRIB_DNNL_C_SOURCE_OP_KERNEL_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../core/plan/plan.h"
#include "../dnnl_kernel.h"

namespace tvm {
namespace runtime {
namespace contrib {
namespace dnnl_backend {

/*!
 * \brief An op ready to run, with its constants packed. Any number of threads may run it.
 *
 * The lowerings of the JSON runtime build it: there is no second list of ops.
 */
class OpKernel {
 public:
  /*!
   * \brief Build the plan.
   * \param op The description.
   * \param constants For each input the address of its values if they are the same in every run,
   *        else nullptr. They must stay there as long as the kernel.
   */
  OpKernel(const TVMDNNLOp& op, const std::vector<void*>& constants);

  /*! \brief Run with the addresses of all inputs and outputs. */
  void Run(const TVMDNNLOp& op, void* const* data);

  const Plan& plan() const { return *plan_; }

 private:
  std::shared_ptr<const Plan> plan_;
  ContextPool contexts_;
  /*! \brief For each argument of the plan its index among the inputs and outputs. */
  std::vector<int> arguments_;
  /*! \brief The indices of the constants, and their addresses when they were packed. */
  std::vector<std::pair<int, void*>> constants_;
};

/*! \brief How errors call an op: "tvmgen_default_dnnl_main_0, node 3 dnnl.conv2d_relu". */
std::string WhereIs(const TVMDNNLOp& op);

}  // namespace dnnl_backend
}  // namespace contrib
}  // namespace runtime
}  // namespace tvm

#endif  // TVM_RUNTIME_CONTRIB_DNNL_C_SOURCE_OP_KERNEL_H_
