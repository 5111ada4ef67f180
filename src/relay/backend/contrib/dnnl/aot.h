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
 * \file src/relay/backend/contrib/dnnl/aot.h
 * \brief Partitions of the JSON codegen for TVM's AOT executor.
 */
#ifndef TVM_RELAY_BACKEND_CONTRIB_DNNL_AOT_H_
#define TVM_RELAY_BACKEND_CONTRIB_DNNL_AOT_H_

#include <tvm/ir/module.h>
#include <tvm/runtime/module.h>
#include <tvm/target/target.h>

namespace tvm {
namespace relay {
namespace contrib {
namespace dnnl {

/*!
 * \brief Lower the partitions of a module for the AOT executor.
 *
 * The executor calls a function `f` by its address, which a module of the JSON runtime does not
 * have. `f` becomes a TIR function, which TVM compiles together with the model. It calls `f_json`,
 * which stays a partition and has the target `dnnl`: CompileFromTIR compiles it to a module that
 * the model's imports.
 */
IRModule LowerForAOT(IRModule mod);

/*! \brief Compile the functions with the target `dnnl`: a const loader with their modules. */
runtime::Module CompileFromTIR(const IRModule& mod, const Target& target);

}  // namespace dnnl
}  // namespace contrib
}  // namespace relay
}  // namespace tvm

#endif  // TVM_RELAY_BACKEND_CONTRIB_DNNL_AOT_H_
