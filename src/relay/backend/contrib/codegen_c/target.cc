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
 * \file src/relay/backend/contrib/codegen_c/target.cc
 * \brief The target kind `ccompiler`, whose attribute `header` is prepended to the C code.
 */
#include <tvm/ir/module.h>
#include <tvm/ir/transform.h>
#include <tvm/relay/executor.h>
#include <tvm/relay/function.h>
#include <tvm/relay/transform.h>
#include <tvm/target/target.h>
#include <tvm/target/target_kind.h>

#include <string>

#include "ccompiler.h"
#include "compiler_functions.h"

namespace tvm {
namespace relay {
namespace contrib {

namespace {

constexpr const char* kKind = "ccompiler";

using tvm::transform::Pass;
using tvm::transform::PassContext;

/*! \brief The header of the target that the user gave beside the host's, if any. */
std::string HeaderOfTarget() {
  const Target target = Target::Current(/*allow_not_defined=*/true);
  if (!target.defined() || target->kind->name != kKind) return "";
  return target->GetAttr<String>("header").value_or("");
}

/*! \brief Whether the executor calls functions with addresses of data, as microTVM may. */
bool HasUnpackedAPI(const IRModule& mod) {
  const auto executor = mod->GetAttr<Executor>(tvm::attr::kExecutor);
  return executor.defined() &&
         executor.value()->GetAttr<Bool>("unpacked-api").value_or(Bool(false))->value;
}

/*!
 * \brief The pass that TVM runs for functions of our compiler, in place of relay.ext.ccompiler.
 *
 * TVM knows targets, and so their attributes, only on this way.
 */
Pass CompileForCCompiler() {
  const auto compile = [](IRModule mod, const PassContext&) {
    mod = OutlineFunctions(kKind, mod);
    Array<runtime::Module> modules;
    Map<String, runtime::NDArray> constants;
    for (const auto& item : FunctionsOf(kKind, mod)) {
      const CSource source = CompileToC(item.second, HeaderOfTarget(), HasUnpackedAPI(mod));
      modules.push_back(source.module);
      for (const auto& constant : source.constants) constants.Set(constant.first, constant.second);
    }
    mod = WithCompiled(mod, modules, constants);
    return RunCompilerPass("MarkCompilerFunctionsAsExtern", kKind, mod);
  };
  return tvm::transform::CreateModulePass(compile, 0, "CCompiler", {});
}

/*! \brief A prebuilt libtvm has a kind of this name with a codegen of its own; ours comes first. */
bool RegisterKind() {
  if (!TargetKind::Get(kKind).defined()) {
    TVM_REGISTER_TARGET_KIND("ccompiler", kDLCPU)
        .set_attr<Bool>(tvm::attr::kIsExternalCodegen, Bool(true))
        .add_attr_option<String>("header", String(""));
  }
  constexpr int kAboveDefault = 11;
  TargetKindRegEntry::RegisterOrGet(kKind).set_attr<relay::transform::FTVMRelayToTIR>(
      tvm::attr::kRelayToTIR, CompileForCCompiler(), kAboveDefault);
  return true;
}

const bool kIsRegistered = RegisterKind();

}  // namespace

}  // namespace contrib
}  // namespace relay
}  // namespace tvm
