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
 * \file src/relay/backend/contrib/dnnl/c_codegen.h
 * \brief Relay function -> C source that calls the kernels of dnnl_kernel.h.
 */
#ifndef TVM_RELAY_BACKEND_CONTRIB_DNNL_C_CODEGEN_H_
#define TVM_RELAY_BACKEND_CONTRIB_DNNL_C_CODEGEN_H_

#include <tvm/relay/function.h>
#include <tvm/runtime/module.h>

namespace tvm {
namespace relay {
namespace contrib {
namespace dnnl {

/*! \brief Create the C source module of a partition. It accepts whatever CompileToJSON accepts. */
runtime::Module CompileToCSource(const Function& function);

}  // namespace dnnl
}  // namespace contrib
}  // namespace relay
}  // namespace tvm

#endif  // TVM_RELAY_BACKEND_CONTRIB_DNNL_C_CODEGEN_H_
