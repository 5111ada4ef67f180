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
 * \file c_source.cc
 * \brief The twin of the JSON module: the same graph as C code that calls the instructions.
 */
#include <tvm/runtime/registry.h>

#include "../../src/relay/backend/contrib/codegen_c/graph_codegen_c.h"

namespace tvm {
namespace relay {
namespace contrib {

class TutorialCSource : public GraphCodegenC {
 public:
  using GraphCodegenC::GraphCodegenC;

 protected:
  void PrintHeader() final { code_stream_ << "#include \"tutorial_device.h\"\n"; }
  void DeclareKernel(const CKernel&) final {}

  bool CallKernel(const CKernel& kernel) final {
    const std::vector<CTensor>& in = kernel.inputs;
    const CTensor& out = kernel.outputs[0];
    PrintIndents();
    if (kernel.node->GetOpName() == "add") {
      code_stream_ << "TutorialAdd(" << in[0].name << ", " << in[1].name << ", " << out.name << ", "
                   << out.NumElements() << ");\n";
    } else {
      code_stream_ << "TutorialDense(" << in[0].name << ", " << in[1].name << ", "
                   << (in.size() == 3 ? in[2].name : "NULL") << ", " << out.name << ", "
                   << out.shape[0] << ", " << out.shape[1] << ", " << in[0].shape[1] << ", "
                   << Bound(kernel, "a_min", "-INFINITY") << ", "
                   << Bound(kernel, "a_max", "INFINITY") << ");\n";
    }
    return false;  // An instruction cannot fail.
  }

 private:
  static std::string Bound(const CKernel& kernel, const char* attr, const char* none) {
    return kernel.node->HasAttr(attr) ? kernel.node->GetAttr<std::string>(attr) : none;
  }
};

TVM_REGISTER_GLOBAL("relay.ext.tutorial.c_source")
    .set_body_typed([](String symbol, String graph_json, Array<String> const_names) {
      return TutorialCSource(symbol, graph_json, const_names).CreateModule();
    });

}  // namespace contrib
}  // namespace relay
}  // namespace tvm
