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
 * \file src/runtime/contrib/dnnl/c_source/prepared_ops.h
 * \brief The ops of generated C source that are ready to run now, for those who want to look.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_C_SOURCE_PREPARED_OPS_H_
#define TVM_RUNTIME_CONTRIB_DNNL_C_SOURCE_PREPARED_OPS_H_

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "op_kernel.h"

namespace tvm {
namespace runtime {
namespace contrib {
namespace dnnl_backend {

/*! \brief Knows each op from when it is prepared until it is released. */
class PreparedOps {
 public:
  void Add(const TVMDNNLOp* op, std::shared_ptr<OpKernel> kernel);
  void Remove(const TVMDNNLOp* op);

  /*!
   * \brief The plans of the ops of one library, as a JSON list in the form of DescribePlan.
   * \param library The path by which the library was loaded.
   */
  std::string Describe(const std::string& library) const;

  /*! \brief Those of the process. It is never destroyed, so that it may be used at exit. */
  static PreparedOps* Global();

 private:
  mutable std::mutex mutex_;
  /*! \brief By address: the ops of a function are one array, so they come in their order. */
  std::map<const TVMDNNLOp*, std::shared_ptr<OpKernel>> kernels_;
};

}  // namespace dnnl_backend
}  // namespace contrib
}  // namespace runtime
}  // namespace tvm

#endif  // TVM_RUNTIME_CONTRIB_DNNL_C_SOURCE_PREPARED_OPS_H_
