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
 * \file src/relay/backend/contrib/dnnl/aot.cc
 * \brief Partitions of the JSON codegen for TVM's AOT executor.
 */
#include "aot.h"

#include <tvm/ir/expr.h>
#include <tvm/ir/function.h>
#include <tvm/ir/op.h>
#include <tvm/ir/type.h>
#include <tvm/relay/attrs/call.h>
#include <tvm/relay/expr.h>
#include <tvm/relay/expr_functor.h>
#include <tvm/relay/function.h>
#include <tvm/relay/runtime.h>
#include <tvm/runtime/container/array.h>
#include <tvm/runtime/container/map.h>
#include <tvm/runtime/container/string.h>
#include <tvm/runtime/logging.h>
#include <tvm/runtime/ndarray.h>
#include <tvm/runtime/registry.h>
#include <tvm/tir/buffer.h>
#include <tvm/tir/builtin.h>
#include <tvm/tir/expr.h>
#include <tvm/tir/function.h>
#include <tvm/tir/op.h>
#include <tvm/tir/stmt.h>

#include <map>
#include <string>

#include "../codegen_c/compiler_functions.h"
#include "json_codegen.h"

namespace tvm {
namespace relay {
namespace contrib {
namespace dnnl {

namespace {

/*! \brief The attribute "Compiler" of partitions; also the target kind of codegen.cc. */
constexpr const char* kCompiler = "dnnl";

/*! \brief The target of what is not a partition. */
Target TargetOf(const IRModule& mod) {
  const Target target = mod->Lookup("main")->virtual_device()->target;
  return target.defined() ? target : Target::Current(/*allow_not_defined=*/false);
}

/*! \brief Append the tensor of a type, or those of a tuple. */
void Append(const Type& type, Array<TensorType>* tensors) {
  if (const auto* tuple = type.as<TupleTypeNode>()) {
    for (const Type& field : tuple->fields) Append(field, tensors);
  } else {
    tensors->push_back(Downcast<TensorType>(type));
  }
}

/*! \brief A DLTensor on the stack with the data of a row-major buffer. */
PrimExpr TensorOf(const tir::Buffer& buffer) {
  const DataType handle = DataType::Handle();
  const tir::Call shape(handle, tir::builtin::tvm_stack_make_shape(), buffer->shape);
  // Only the type of the one before the last matters.
  return tir::Call(handle, tir::builtin::tvm_stack_make_array(),
                   {buffer->data, shape, /*strides=*/tir::make_zero(handle),
                    IntImm(DataType::UInt(32), buffer->shape.size()),
                    tir::Cast(buffer->dtype, IntImm(DataType::Int(32), 0)), buffer->elem_offset});
}

/*!
 * \brief The TIR function for a Relay function that is a packed function of an imported module.
 *
 * It has the symbol of the Relay function. Its parameters are the tensors of the Relay function's
 * parameters, then those of its result, as the packed function expects them. TVM has refused open
 * dimensions before.
 */
tir::PrimFunc PackedCaller(const Function& function, const std::string& callee,
                           const Target& target) {
  Array<TensorType> types;
  for (const Var& param : function->params) Append(param->checked_type(), &types);
  Append(function->ret_type, &types);

  Array<tir::Var> params;
  Map<tir::Var, tir::Buffer> buffers;
  Array<PrimExpr> args{tir::StringImm(callee)};
  for (const TensorType& type : types) {
    const std::string name = "tensor" + std::to_string(params.size());
    const tir::Buffer buffer = tir::decl_buffer(type->shape, type->dtype, name);
    params.push_back(tir::Var(name + "_handle", DataType::Handle()));
    buffers.Set(params.back(), buffer);
    args.push_back(TensorOf(buffer));
  }
  const tir::Evaluate call(tir::Call(DataType::Int(32), tir::builtin::tvm_call_packed(), args));
  const auto symbol = function->GetAttr<String>(tvm::attr::kGlobalSymbol);
  ICHECK(symbol.defined()) << "the DNNL codegen got a function without a global_symbol";
  return WithAttrs(tir::PrimFunc(params, call, VoidType(), buffers),
                   {{tvm::attr::kGlobalSymbol, symbol.value()}, {tvm::attr::kTarget, target}});
}

/*!
 * \brief Rewrites calls of partitions to calls of the TIR functions that replaced them.
 *
 * RemoveUnusedFunctions keeps what calls name as their shape function, too. TVM does not read it
 * with static shapes.
 */
class CallLowerer : public ExprRewriter {
 public:
  explicit CallLowerer(const Map<String, GlobalVar>& callees) : callees_(callees) {}

  Expr Rewrite_(const CallNode*, const Expr& post) final {
    const auto call = Downcast<Call>(post);
    const auto* var = call->op.as<GlobalVarNode>();
    const auto callee = var == nullptr ? NullOpt : callees_.Get(var->name_hint);
    if (!callee.defined()) return post;
    const auto attrs = make_object<CallLoweredAttrs>();
    attrs->metadata.Set("prim_shape_fn_var", callee.value());
    return Call(Op::Get("call_lowered"), {call->op, Tuple(call->args)}, Attrs(attrs), {},
                call->span);
  }

 private:
  const Map<String, GlobalVar> callees_;
};

}  // namespace

IRModule LowerForAOT(IRModule mod) {
  const auto runtime = mod->GetAttr<Runtime>(tvm::attr::kRuntime);
  CHECK(!runtime.defined() || runtime.value()->name == "cpp")
      << "dnnl requires the C++ runtime, but relay.build got runtime=Runtime(\""
      << runtime.value()->name << "\"). Pass Runtime(\"cpp\")";
  const Target target = TargetOf(mod);
  mod = OutlineFunctions(kCompiler, mod);
  Map<String, GlobalVar> callees;
  for (const auto& [symbol, function] : FunctionsOf(kCompiler, mod)) {
    const String callee = symbol + "_json";
    const GlobalVar var = mod->GetGlobalVar(symbol), callee_var(callee);
    // TIR has no type that calls in Relay could be checked with.
    var->checked_type_ = function->checked_type();
    mod->Update(var, PackedCaller(function, callee, target));
    const Function partition = WithAttr(PartitionOf(function), tvm::attr::kGlobalSymbol, callee);
    callees.Set(symbol, callee_var);
    mod->Add(callee_var, WithAttrs(tir::PrimFunc({}, tir::Evaluate(0)),
                                   {{tvm::attr::kGlobalSymbol, callee},
                                    {tvm::attr::kTarget, Target(kCompiler)},
                                    {kPartitionAttr, partition}}));
  }
  const auto main = Downcast<Function>(mod->Lookup("main"));
  CallLowerer lowerer(callees);
  mod->Update(mod->GetGlobalVar("main"),
              WithFields(main, main->params, PostOrderRewrite(main->body, &lowerer)));
  return mod;
}

runtime::Module CompileFromTIR(const IRModule& mod, const Target&) {
  std::map<std::string, Function> partitions;
  for (const auto& [var, function] : mod->functions) {
    const auto partition = function->GetAttr<Function>(kPartitionAttr);
    CHECK(partition.defined()) << var->name_hint << ": only partitions have the target "
                               << kCompiler;
    partitions[var->name_hint] = partition.value();
  }
  if (partitions.empty()) return runtime::Module(nullptr);
  Array<runtime::Module> modules;
  Array<Array<runtime::NDArray>> constants;
  for (const auto& item : partitions) {
    const SerializedPartition partition = SerializePartition(item.second);
    modules.push_back(CompileToJSON(item.second, partition));
    constants.push_back(partition.constants);
  }
  const auto* create = runtime::Registry::Get("runtime.DNNLConstLoaderCreate");
  ICHECK(create != nullptr) << "this TVM was built without the DNNL runtime";
  return (*create)(modules, constants);
}

}  // namespace dnnl
}  // namespace contrib
}  // namespace relay
}  // namespace tvm
