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
 * \file codegen.cc
 * \brief relay.ext.tutorial: from a Relay function to a module that TVM can export and run.
 */
#include <tvm/ir/transform.h>
#include <tvm/runtime/registry.h>

#include "../../src/relay/backend/contrib/codegen_c/codegen_c.h"
#include "../../src/relay/backend/contrib/codegen_json/codegen_json.h"

namespace tvm {
namespace relay {
namespace contrib {

constexpr const char* kCodegenOption = "relay.ext.tutorial.codegen";
TVM_REGISTER_PASS_CONFIG_OPTION(kCodegenOption, String);

/*! \brief Writes ops as they are, and the composite as one node with the bounds of its clip. */
class TutorialSerializer : public backend::contrib::JSONSerializer {
 public:
  using JSONSerializer::JSONSerializer;
  using JSONSerializer::VisitExpr_;

  Entries VisitExpr_(const CallNode* call) final {
    const auto* composite = call->op.as<FunctionNode>();
    if (composite == nullptr) return JSONSerializer::VisitExpr_(call);
    // The body reads its parameters, so those are the entries of the arguments.
    for (size_t i = 0; i < call->args.size(); ++i) {
      memo_[composite->params[i]] = VisitExpr(call->args[i]);
    }
    const auto* clip = composite->body.as<CallNode>();
    const auto* bias_add = clip->args[0].as<CallNode>();
    const auto* dense = bias_add->args[0].as<CallNode>();
    Entries inputs;
    for (const Expr& input : {dense->args[0], dense->args[1], bias_add->args[1]}) {
      inputs.push_back(VisitExpr(input)[0]);
    }
    auto node = std::make_shared<JSONGraphNode>("tutorial.dense_clip", "kernel", inputs);
    SetCallNodeAttribute(node, clip);
    return AddNode(node, GetRef<Expr>(call));
  }
};

TVM_REGISTER_GLOBAL("relay.ext.tutorial").set_body_typed([](Function function) {
  const std::string symbol = GetSymbolOf(function);
  TutorialSerializer serializer(symbol, function);
  serializer.serialize();
  const auto option = transform::PassContext::Current()->GetConfig<String>(kCodegenOption, "JSON");
  const bool is_c = option.value() == "C_SRC";
  const char* create = is_c ? "relay.ext.tutorial.c_source" : "runtime.tutorial_create";
  return runtime::Module(
      (*runtime::Registry::Get(create))(symbol, serializer.GetJSON(), serializer.const_names()));
});

}  // namespace contrib
}  // namespace relay
}  // namespace tvm
