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
 * \file src/relay/backend/contrib/codegen_c/compiler_functions.h
 * \brief Shared by the RelayToTIR hooks of target kinds: the functions with one Compiler.
 */
#ifndef TVM_RELAY_BACKEND_CONTRIB_CODEGEN_C_COMPILER_FUNCTIONS_H_
#define TVM_RELAY_BACKEND_CONTRIB_CODEGEN_C_COMPILER_FUNCTIONS_H_

#include <tvm/ir/module.h>
#include <tvm/ir/transform.h>
#include <tvm/relay/function.h>
#include <tvm/runtime/container/array.h>
#include <tvm/runtime/container/map.h>
#include <tvm/runtime/container/string.h>
#include <tvm/runtime/module.h>
#include <tvm/runtime/ndarray.h>
#include <tvm/runtime/registry.h>

#include <map>
#include <string>

namespace tvm {
namespace relay {
namespace contrib {

/*! \brief Run one of TVM's passes for the functions of a compiler. */
inline IRModule RunCompilerPass(const std::string& name, const std::string& compiler,
                                const IRModule& mod) {
  const auto* make = runtime::Registry::Get("relay._transform." + name);
  ICHECK(make != nullptr) << "this TVM has no pass " << name;
  const tvm::transform::Pass pass = (*make)(String(compiler));
  return pass(mod);
}

/*! \brief Make the functions of a compiler global functions, named by their symbols. */
inline IRModule OutlineFunctions(const std::string& compiler, const IRModule& mod) {
  return RunCompilerPass("OutlineCompilerFunctionsWithExistingGlobalSymbols", compiler, mod);
}

/*! \brief The global functions of a compiler, by name: a model always gives the same library. */
inline std::map<std::string, Function> FunctionsOf(const std::string& compiler,
                                                   const IRModule& mod) {
  std::map<std::string, Function> functions;
  for (const auto& item : mod->functions) {
    const auto* function = item.second.as<FunctionNode>();
    if (function == nullptr) continue;
    const auto name = function->GetAttr<String>(attr::kCompiler);
    if (!name.defined() || name.value() != compiler) continue;
    functions[item.first->name_hint] = GetRef<Function>(function);
  }
  return functions;
}

/*! \brief Add compiled functions, and the constants that they need, to a module. */
inline IRModule WithCompiled(const IRModule& mod, const Array<runtime::Module>& compiled,
                             const Map<String, runtime::NDArray>& constants) {
  auto modules = mod->GetAttr<Array<runtime::Module>>(tvm::attr::kExternalMods)
                     .value_or(Array<runtime::Module>());
  auto values = mod->GetAttr<Map<String, runtime::NDArray>>(tvm::attr::kConstNameToConstant)
                    .value_or(Map<String, runtime::NDArray>());
  for (const runtime::Module& module : compiled) modules.push_back(module);
  for (const auto& constant : constants) values.Set(constant.first, constant.second);
  return WithAttrs(
      mod, {{tvm::attr::kExternalMods, modules}, {tvm::attr::kConstNameToConstant, values}});
}

}  // namespace contrib
}  // namespace relay
}  // namespace tvm

#endif  // TVM_RELAY_BACKEND_CONTRIB_CODEGEN_C_COMPILER_FUNCTIONS_H_
