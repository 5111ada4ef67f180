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
 * \file src/relay/backend/contrib/dnnl/codegen.cc
 * \brief The entries of the DNNL codegen: relay.ext.dnnl, the target kind `dnnl`, and the choice
 * between its two codegens.
 */
#include <tvm/ir/module.h>
#include <tvm/ir/transform.h>
#include <tvm/relay/executor.h>
#include <tvm/relay/function.h>
#include <tvm/relay/transform.h>
#include <tvm/runtime/module.h>
#include <tvm/runtime/registry.h>
#include <tvm/target/target_kind.h>

#include <string>

#include "aot.h"
#include "c_codegen.h"
#include "json_codegen.h"

namespace tvm {
namespace relay {
namespace contrib {
namespace dnnl {

namespace {

/*! \brief Which codegen to use for one compilation, in place of the one of the build. */
constexpr const char* kCodegenOption = "relay.ext.dnnl.codegen";

// USE_DNNL_CODEGEN decides. The other codegen is there as well: each needs the other's lowerings.
#ifdef TVM_DNNL_CODEGEN_C_SRC
constexpr const char* kDefaultCodegen = "C_SRC";
#else
constexpr const char* kDefaultCodegen = "JSON";
#endif

/*! \brief The codegen of the compilation that is going on. */
std::string CurrentCodegen() {
  const std::string codegen = tvm::transform::PassContext::Current()
                                  ->GetConfig<String>(kCodegenOption, String(kDefaultCodegen))
                                  .value();
  CHECK(codegen == "C_SRC" || codegen == "JSON")
      << "the option " << kCodegenOption << " must be JSON or C_SRC, but is " << codegen;
  return codegen;
}

/*!
 * \brief The constants of a function that TVM's const loader is to keep.
 *
 * C source keeps its own, see c_source/constants.cc of the runtime. If TVM had them as well, they
 * would go into the library twice, and the AOT executor would treat them as inputs.
 */
Map<String, runtime::NDArray> ConstantsForLoader(const Function& function, const String&) {
  Map<String, runtime::NDArray> constants;
  if (CurrentCodegen() == "C_SRC") return constants;
  const SerializedPartition partition = SerializePartition(PartitionOf(function));
  for (size_t i = 0; i < partition.const_names.size(); ++i) {
    constants.Set(partition.const_names[i], partition.constants[i]);
  }
  return constants;
}

/*! \brief Whether a module is compiled for the AOT executor. */
bool IsForAOT(const IRModule& mod) {
  const auto executor = mod->GetAttr<Executor>(tvm::attr::kExecutor);
  return executor.defined() && executor.value()->name == "aot";
}

}  // namespace

/*! \brief Compile one function with Compiler="dnnl" to a runtime module. */
runtime::Module DNNLCompiler(const ObjectRef& ref) {
  ICHECK(ref->IsInstance<FunctionNode>())
      << "the DNNL codegen compiles one Relay function, but got " << ref->GetTypeKey();
  const auto function = Downcast<Function>(ref);
  const Function partition = PartitionOf(function);
  if (CurrentCodegen() == "C_SRC") return CompileToCSource(partition);
  return CompileToJSON(partition, SerializePartition(partition));
}

TVM_REGISTER_PASS_CONFIG_OPTION(kCodegenOption, String);

TVM_REGISTER_GLOBAL("relay.ext.dnnl").set_body_typed(DNNLCompiler);

TVM_REGISTER_GLOBAL("relay.ext.dnnl.constant_updater").set_body_typed(ConstantsForLoader);

TVM_REGISTER_TARGET_KIND("dnnl", kDLCPU)
    .set_attr<Bool>(tvm::attr::kIsExternalCodegen, Bool(true))
    .set_attr<relay::transform::FTVMRelayToTIR>(
        tvm::attr::kRelayToTIR,
        tvm::transform::CreateModulePass(
            [](IRModule mod, const tvm::transform::PassContext&) {
              // Other executors, and C source, go through relay.ext.dnnl.
              return IsForAOT(mod) && CurrentCodegen() == "JSON" ? LowerForAOT(mod) : mod;
            },
            0, "LowerDNNLForAOT", {}))
    .set_attr<relay::transform::FTVMTIRToRuntime>("TIRToRuntime", CompileFromTIR);

TVM_REGISTER_GLOBAL(kCodegenOption).set_body_typed([]() { return String(kDefaultCodegen); });

}  // namespace dnnl
}  // namespace contrib
}  // namespace relay
}  // namespace tvm
