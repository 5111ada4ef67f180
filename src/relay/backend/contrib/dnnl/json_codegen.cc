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
 * \file src/relay/backend/contrib/dnnl/json_codegen.cc
 * \brief Relay function -> module of the DNNL JSON runtime.
 */
#include "json_codegen.h"

#include <tvm/ir/type.h>
#include <tvm/runtime/container/shape_tuple.h>
#include <tvm/runtime/registry.h>
#include <tvm/tir/expr.h>

#include <string>
#include <vector>

#include "../codegen_json/codegen_json.h"
#include "composite.h"
#include "kernel_node.h"
#include "options.h"

namespace tvm {
namespace relay {
namespace contrib {
namespace dnnl {

namespace {

using backend::contrib::JSONSerializer;

/*! \brief Writes a composite as its root op's node with a list of post-ops. */
class DNNLJSONSerializer : public JSONSerializer {
 public:
  // TVM asks the updater about a function with Compiler="dnnl" and has it compiled without, so the
  // numbers of constants must not depend on the attribute.
  DNNLJSONSerializer(const std::string& symbol, const Function& function)
      : JSONSerializer(symbol, function, backend::contrib::ConstantNaming::kVisitOrder),
        num_threads_(NumThreadsOf(function)) {}
  using JSONSerializer::VisitExpr_;

  std::vector<JSONGraphNodeEntry> VisitExpr_(const CallNode* call) final {
    const KernelCall kernel = ReadKernelCall(call);
    std::vector<JSONGraphNodeEntry> inputs;
    for (const Expr& input : kernel.inputs) {
      const auto entries = VisitExpr(input);
      inputs.insert(inputs.end(), entries.begin(), entries.end());
    }
    const auto node = MakeKernelNode(kernel, inputs);
    // On the node, where C source has it too and a runtime that does not know it skips it.
    if (num_threads_ > 0) node->SetAttr("num_threads", std::to_string(num_threads_));
    return AddNode(node, GetRef<Expr>(call));
  }

 protected:
  /*! \brief TVM wants names from an updater, which codegen.cc has, to begin with the backend's. */
  std::string ConstantName(size_t number) const final {
    return "dnnl_" + JSONSerializer::ConstantName(number);
  }

 private:
  const int num_threads_;
};

/*!
 * \brief Refuse what the runtime would refuse when the library is loaded, of an op's types.
 *
 * With open dimensions it cannot tell before it is called.
 */
void CheckTypes(const Function& function, runtime::Module* module) {
  Array<runtime::ShapeTuple> shapes;
  for (const Var& param : function->params) {
    const Type& type = param->checked_type();
    const auto* tuple = type.as<TupleTypeNode>();
    for (const Type& each : tuple != nullptr ? tuple->fields : Array<Type>{type}) {
      std::vector<int64_t> shape;
      for (const PrimExpr& dim : Downcast<TensorType>(each)->shape) {
        const auto* size = dim.as<IntImmNode>();
        if (size == nullptr) return;
        shape.push_back(size->value);
      }
      shapes.push_back(runtime::ShapeTuple(shape));
    }
  }
  module->GetFunction("infer_types")(shapes);
}

}  // namespace

SerializedPartition SerializePartition(const Function& function) {
  const auto symbol = function->GetAttr<String>(tvm::attr::kGlobalSymbol);
  ICHECK(symbol.defined()) << "the DNNL codegen got a function without a global_symbol";
  DNNLJSONSerializer serializer(symbol.value(), function);
  serializer.serialize();
  const auto values = serializer.const_name_to_constant();
  Array<runtime::NDArray> constants;
  for (const String& name : serializer.const_names()) constants.push_back(values.at(name));
  return {symbol.value(), serializer.GetJSON(), serializer.const_names(), constants};
}

runtime::Module CompileToJSON(const Function& function) {
  const SerializedPartition partition = SerializePartition(function);
  const auto* create = runtime::Registry::Get("runtime.DNNLJSONRuntimeCreate");
  ICHECK(create != nullptr) << "this TVM was built without the DNNL JSON runtime; build it with "
                               "USE_DNNL_CODEGEN set to JSON";
  runtime::Module module =
      (*create)(String(partition.symbol), String(partition.graph_json), partition.const_names);
  CheckTypes(function, &module);
  return module;
}

}  // namespace dnnl
}  // namespace contrib
}  // namespace relay
}  // namespace tvm
