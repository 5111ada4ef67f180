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

#include <tvm/ir/op.h>
#include <tvm/ir/type.h>
#include <tvm/relay/expr.h>
#include <tvm/runtime/container/shape_tuple.h>
#include <tvm/runtime/data_type.h>
#include <tvm/runtime/ndarray.h>
#include <tvm/runtime/registry.h>
#include <tvm/tir/expr.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../../../../runtime/contrib/dnnl/core/op_table.h"
#include "../../../../runtime/contrib/json/json_reader.h"
#include "../codegen_json/codegen_json.h"
#include "options.h"

namespace tvm {
namespace relay {
namespace contrib {
namespace dnnl {

namespace {

using backend::contrib::JSONSerializer;
using backend::contrib::OpAttrExtractor;
using tvm::runtime::json::JSONGraphNode;

/*! \brief The attribute of a composite that has the attributes of its JSON node, as JSON. */
constexpr const char* kKernelAttr = "dnnl_kernel";

/*! \brief Reads a composite of a pattern that is not ours, see _dnnl/composites.py. */
constexpr const char* kDescribe = "relay.ext.dnnl.describe";

std::string CompositeName(const FunctionNode* function) {
  const auto name = function->GetAttr<String>(attr::kComposite);
  ICHECK(name.defined()) << "the DNNL codegen got a function that is not a composite";
  return name.value();
}

/*!
 * \brief The call of a kernel, whose arguments are the inputs of its node: an op, a virtual op, or
 * a composite with the description that partition_for_dnnl writes.
 *
 * A composite with the name of an op in the runtime's table is a virtual op, such as gelu, which
 * Relay does not have. The body says what it computes, for TVM.
 */
Call KernelOf(const Call& call) {
  const auto* function = call->op.as<FunctionNode>();
  if (function == nullptr || function->GetAttr<String>(kKernelAttr).defined()) return call;
  const std::string name = CompositeName(function);
  if (runtime::contrib::dnnl_backend::FindOp(name) != nullptr) return call;
  const auto* describe = runtime::Registry::Get(kDescribe);
  ICHECK(describe != nullptr)
      << name << ": composites of patterns of your own are read by the Python module "
      << "tvm.relay.op.contrib.dnnl, which registers " << kDescribe
      << ". Import it, or compile what partition_for_dnnl returns";
  return (*describe)(call);
}

std::string NameOf(const Call& kernel) {
  if (const auto* function = kernel->op.as<FunctionNode>()) return CompositeName(function);
  const auto* op = kernel->op.as<OpNode>();
  ICHECK(op != nullptr) << "the DNNL codegen expects a call of an op, but got a call of "
                        << kernel->op->GetTypeKey();
  return op->name;
}

/*! \brief Set the attributes of a kernel's node; those of a virtual op are its function's. */
void SetAttrs(const Call& kernel, const std::shared_ptr<JSONGraphNode>& node) {
  const auto* function = kernel->op.as<FunctionNode>();
  Optional<String> described;
  if (function != nullptr) described = function->GetAttr<String>(kKernelAttr);
  if (!described.defined()) {
    const Object* attrs = function == nullptr ? kernel->attrs.get() : function->attrs.get();
    OpAttrExtractor(node).Extract(const_cast<Object*>(attrs));
    return;
  }
  const std::string text = described.value();
  try {
    tvm::runtime::json::JSONReader reader(text);
    tvm::runtime::json::JSONAttr attrs;
    reader.Read(&attrs);
    reader.ExpectEnd();
    CHECK(attrs.kind() == tvm::runtime::json::JSONAttr::Kind::kObject) << "it is no object";
    for (const auto& [name, value] : attrs.members()) node->SetAttr(name, value);
  } catch (const runtime::InternalError& error) {
    LOG(FATAL) << CompositeName(function) << ": its attribute " << kKernelAttr
               << " is not the description that partition_for_dnnl writes: " << error.message();
  }
}

/*! \brief The data of a constant, which is in memory of the CPU. */
std::string_view BytesOf(const runtime::NDArray& data) {
  const char* begin = static_cast<const char*>(data->data) + data->byte_offset;
  return {begin, runtime::GetDataSize(*data.operator->())};
}

/*! \brief Equal constants have equal samples, and few others have. */
std::string SampleOf(const runtime::NDArray& data) {
  constexpr size_t kBytes = 64;
  const std::string_view bytes = BytesOf(data);
  const size_t middle = bytes.size() / 2;
  return std::to_string(bytes.size()) + ":" + std::string(bytes.substr(0, kBytes)) +
         std::string(bytes.substr(middle, kBytes));
}

bool IsEqual(const runtime::NDArray& a, const runtime::NDArray& b) {
  return runtime::TypeEqual(a->dtype, b->dtype) &&
         std::equal(a->shape, a->shape + a->ndim, b->shape, b->shape + b->ndim) &&
         BytesOf(a) == BytesOf(b);
}

/*! \brief Writes an op, or a composite, as one node. */
class DNNLJSONSerializer : public JSONSerializer {
 public:
  // TVM asks the updater about a function with Compiler="dnnl" and has it compiled without, so the
  // numbers of constants must not depend on the attribute.
  DNNLJSONSerializer(const std::string& symbol, const Function& function)
      : JSONSerializer(symbol, function, backend::contrib::ConstantNaming::kVisitOrder),
        num_threads_(NumThreadsOf(function)) {}
  using JSONSerializer::VisitExpr_;

  std::vector<JSONGraphNodeEntry> VisitExpr_(const CallNode* call) final {
    const Call kernel = KernelOf(GetRef<Call>(call));
    std::vector<JSONGraphNodeEntry> inputs;
    for (const Expr& input : kernel->args) {
      const auto entries = VisitExpr(input);
      inputs.insert(inputs.end(), entries.begin(), entries.end());
    }
    const auto node = std::make_shared<JSONGraphNode>(NameOf(kernel), "kernel", inputs);
    SetAttrs(kernel, node);
    // On the node, where C source has it too and a runtime that does not know it skips it.
    if (num_threads_ > 0) node->SetAttr("num_threads", num_threads_);
    return AddNode(node, GetRef<Expr>(call));
  }

  /*! \brief Equal constants are one node: a weight that several ops read is stored once. */
  std::vector<JSONGraphNodeEntry> VisitExpr_(const ConstantNode* constant) final {
    const runtime::NDArray& data = constant->data;
    auto& alike = constants_[SampleOf(data)];
    for (const auto& [known, entries] : alike) {
      if (IsEqual(known, data)) return entries;
    }
    return alike.emplace_back(data, JSONSerializer::VisitExpr_(constant)).second;
  }

 protected:
  int64_t FormatVersion() const final { return tvm::runtime::json::kJSONGraphTyped; }

  /*! \brief TVM wants names from an updater, which codegen.cc has, to begin with the backend's. */
  std::string ConstantName(size_t number) const final {
    return "dnnl_" + JSONSerializer::ConstantName(number);
  }

 private:
  const int num_threads_;
  /*! \brief By their samples, the constants that have nodes, with the entries of these. */
  std::unordered_map<std::string,
                     std::vector<std::pair<runtime::NDArray, std::vector<JSONGraphNodeEntry>>>>
      constants_;
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

Function PartitionOf(const Function& function) {
  return function->GetAttr<Function>(kPartitionAttr, function).value();
}

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

runtime::Module CompileToJSON(const Function& function, const SerializedPartition& partition) {
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
