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
 * \file src/runtime/contrib/dnnl/core/onednn.h
 * \brief oneDNN's headers without its experimental parts.
 *
 * Whether a build of oneDNN has these was decided when it was configured. Without them, what is
 * compiled with the headers of one build runs on the library of another.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_ONEDNN_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_ONEDNN_H_

#include "dnnl_config.h"
#undef DNNL_EXPERIMENTAL
#undef DNNL_EXPERIMENTAL_GROUPED_MEMORY
#undef DNNL_EXPERIMENTAL_LOGGING
#undef DNNL_EXPERIMENTAL_PROFILING
#undef DNNL_EXPERIMENTAL_SPARSE
#undef DNNL_EXPERIMENTAL_UKERNEL

#include "dnnl.hpp"
#include "dnnl_debug.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief Whether this CPU has the instructions, and ONEDNN_MAX_CPU_ISA allows them. */
inline bool HasISA(dnnl::cpu_isa wanted) {
  // Each bit of the numbers that stand for instruction sets is a feature.
  const auto bits = static_cast<unsigned>(wanted);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & bits) == bits;
}

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_ONEDNN_H_
