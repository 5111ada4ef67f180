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
 * \file src/relay/backend/contrib/dnnl/composite.cc
 * \brief Reads a call of the DNNL backend, single op or composite, for both codegens.
 */
#include "composite.h"

#include <tvm/ir/op.h>
#include <tvm/relay/expr.h>
#include <tvm/relay/expr_functor.h>
#include <tvm/relay/function.h>
#include <tvm/runtime/logging.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "../../../../runtime/contrib/dnnl/core/op_table.h"

namespace tvm {
namespace relay {
namespace contrib {
namespace dnnl {

namespace {

/*! \brief Reads the body of one composite function. */
class CompositeReader {
 public:
  CompositeReader(const CallNode* call, const FunctionNode* function, const std::string& name)
      : call_(call), function_(function), name_(name) {
    ICHECK_EQ(call->args.size(), function->params.size())
        << name << ": the composite is called with the wrong number of arguments";
  }

  KernelCall Read() {
    std::vector<const CallNode*> chain = Chain();
    kernel_.name = name_;
    kernel_.root = chain.back();
    chain.pop_back();
    for (const Expr& arg : kernel_.root->args) AddInput(arg);
    for (auto it = chain.rbegin(); it != chain.rend(); ++it) {
      kernel_.post_ops.push_back(ReadPostOp(*it));
    }
    // Appended last so that the order of the other inputs does not change.
    for (QuantizedInput& quantized : kernel_.quantized_inputs) {
      quantized.scale = AddInput(quantized.call->args[1]);
      quantized.zero_point = AddInput(quantized.call->args[2]);
    }
    for (PostOp& post_op : kernel_.post_ops) {
      if (!IsQuantization(post_op.call)) continue;
      post_op.scale = AddInput(post_op.call->args[1]);
      post_op.zero_point = AddInput(post_op.call->args[2]);
    }
    CheckOps();
    return std::move(kernel_);
  }

 private:
  /*! \brief Refuse ops that the runtime does not know; it would when the library is loaded. */
  void CheckOps() const {
    std::vector<const CallNode*> calls{kernel_.root};
    for (const PostOp& post_op : kernel_.post_ops) calls.push_back(post_op.call);
    for (const CallNode* call : calls) {
      const std::string op = OpNameOf(call);
      ICHECK(runtime::contrib::dnnl_backend::FindOp(op) != nullptr)
          << name_ << ": oneDNN does not run " << op;
    }
  }

  /*! \brief The call that computes an argument inside, or nullptr. */
  static const CallNode* CallInside(const Expr& arg) {
    // For an op with several results it is the first.
    const auto* field = arg.as<TupleGetItemNode>();
    return (field != nullptr && field->index == 0 ? field->tuple : arg).as<CallNode>();
  }

  /*! \brief Whether an op has data, a scale and a zero point. */
  static bool IsQuantization(const CallNode* call) {
    const auto* op = call->op.as<OpNode>();
    return op != nullptr && (op->name == "qnn.quantize" || op->name == "qnn.dequantize");
  }

  /*! \brief The call that says how an argument of the composite is read, or nullptr. */
  static const CallNode* AsDequantized(const Expr& arg) {
    const auto* call = arg.as<CallNode>();
    const bool is_dequantize = call != nullptr && call->op.as<OpNode>() != nullptr &&
                               call->op.as<OpNode>()->name == "qnn.dequantize";
    return is_dequantize && CallInside(call->args[0]) == nullptr ? call : nullptr;
  }

  /*! \brief The argument that is a link of the chain; undefined for the root. */
  Expr NextInChain(const CallNode* call) const {
    // A requantized value is the root, not an operand of an op.
    if (IsQuantization(call)) return CallInside(call->args[0]) ? call->args[0] : Expr();
    Expr next;
    for (const Expr& arg : call->args) {
      if (CallInside(arg) == nullptr || AsDequantized(arg) != nullptr) continue;
      ICHECK(!next.defined()) << name_ << ": both operands of " << OpNameOf(call)
                              << " are computed inside the composite";
      next = arg;
    }
    return next;
  }

  /*! \brief The calls from the result to the root. */
  std::vector<const CallNode*> Chain() const {
    std::vector<const CallNode*> chain;
    Expr next = function_->body;
    while (next.defined()) {
      const CallNode* call = CallInside(next);
      ICHECK(call != nullptr) << name_ << ": the body of the composite ends in "
                              << next->GetTypeKey() << " where a call is expected";
      chain.push_back(call);
      next = NextInChain(call);
    }
    return chain;
  }

  PostOp ReadPostOp(const CallNode* call) {
    PostOp post_op{call, -1, false};
    if (IsQuantization(call)) return post_op;
    const Expr next = NextInChain(call);
    for (size_t i = 0; i < call->args.size(); ++i) {
      if (call->args[i].same_as(next)) continue;
      post_op.operand_first = i == 0;
      ICHECK_LT(post_op.operand, 0)
          << name_ << ": " << OpNameOf(call) << " has more than one operand from outside";
      post_op.operand = AddInput(call->args[i]);
    }
    return post_op;
  }

  /*! \brief Append an input of the kernel, and return its position. */
  int AddInput(const Expr& arg) {
    const int position = static_cast<int>(kernel_.inputs.size());
    const CallNode* dequantize = AsDequantized(arg);
    if (dequantize != nullptr) {
      kernel_.quantized_inputs.push_back({dequantize, position, -1, -1});
    }
    kernel_.inputs.push_back(Outside(dequantize != nullptr ? dequantize->args[0] : arg));
    return position;
  }

  /*! \brief An argument inside of the body in the caller's terms. */
  Expr Outside(const Expr& arg) const {
    if (arg.as<ConstantNode>()) return arg;
    size_t i = 0;
    while (i < function_->params.size() && !function_->params[i].same_as(arg)) ++i;
    ICHECK_LT(i, function_->params.size())
        << name_ << ": an argument of kind " << arg->GetTypeKey()
        << " in the composite is neither a parameter nor a constant";
    return call_->args[i];
  }

  const CallNode* call_;
  const FunctionNode* function_;
  std::string name_;
  KernelCall kernel_;
};

std::string CompositeName(const FunctionNode* function) {
  const auto name = function->GetAttr<String>(attr::kComposite);
  ICHECK(name.defined()) << "the DNNL codegen got a function that is not a composite";
  return name.value();
}

}  // namespace

std::string OpNameOf(const CallNode* call) {
  if (const auto* function = call->op.as<FunctionNode>()) {
    const std::string name = CompositeName(function);
    ICHECK(runtime::contrib::dnnl_backend::FindOp(name) != nullptr)
        << "the DNNL codegen got a call of a function that is not an op: " << name;
    return name;
  }
  const auto* op = call->op.as<OpNode>();
  ICHECK(op != nullptr) << "the DNNL codegen expects a call of an op, but got a call of "
                        << call->op->GetTypeKey();
  return op->name;
}

KernelCall ReadKernelCall(const CallNode* call) {
  if (const auto* function = call->op.as<FunctionNode>()) {
    const std::string name = CompositeName(function);
    const auto attrs = function->GetAttr<DictAttrs>(kKernelAttr);
    if (attrs.defined()) {
      return {name, nullptr, {}, {call->args.begin(), call->args.end()}, {}, attrs};
    }
    // A function that is no op of the runtime is an op and the ops fused to it.
    if (runtime::contrib::dnnl_backend::FindOp(name) == nullptr) {
      return CompositeReader(call, function, name).Read();
    }
  }
  KernelCall kernel{OpNameOf(call), call, {}, {}, {}, {}};
  for (const Expr& arg : call->args) kernel.inputs.push_back(arg);
  return kernel;
}

bool HasOtherComposites(const Function& partition) {
  bool has_others = false;
  PostOrderVisit(partition, [&has_others](const Expr& expr) {
    const auto* function = expr.as<FunctionNode>();
    if (function == nullptr || !function->GetAttr<String>(attr::kComposite).defined()) return;
    has_others = has_others || !function->GetAttr<ObjectRef>(kKernelAttr).defined();
  });
  return has_others;
}

}  // namespace dnnl
}  // namespace contrib
}  // namespace relay
}  // namespace tvm
