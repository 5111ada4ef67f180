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
 * \file src/relay/backend/contrib/codegen_c/ccompiler.h
 * \brief `ccompiler`, the codegen that needs nothing but a C compiler.
 */
#ifndef TVM_RELAY_BACKEND_CONTRIB_CODEGEN_C_CCOMPILER_H_
#define TVM_RELAY_BACKEND_CONTRIB_CODEGEN_C_CCOMPILER_H_

#include <tvm/relay/function.h>
#include <tvm/runtime/module.h>
#include <tvm/runtime/ndarray.h>

#include <string>
#include <unordered_map>

#include "codegen_c.h"

namespace tvm {
namespace relay {
namespace contrib {

/*! \brief A compiled function. */
struct CSource {
  runtime::Module module;
  /*! \brief The constants that it wants to be initialised with, by name. */
  std::unordered_map<std::string, runtime::NDArray> constants;
};

/*!
 * \brief Compile a function with Compiler="ccompiler".
 * \param header Prepended to the code.
 * \param is_unpacked Whether it will be called with addresses of data instead of DLTensors.
 */
CSource CompileToC(const Function& function, const std::string& header = "",
                   bool is_unpacked = false);

class CSourceCodegen : public CSourceModuleCodegenBase {
 public:
  runtime::Module CreateCSourceModule(const ObjectRef& ref) final;
};

}  // namespace contrib
}  // namespace relay
}  // namespace tvm

#endif  // TVM_RELAY_BACKEND_CONTRIB_CODEGEN_C_CCOMPILER_H_
