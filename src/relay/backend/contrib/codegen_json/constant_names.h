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
 * \file src/relay/backend/contrib/codegen_json/constant_names.h
 * \brief The names that TVM gives the constants of a compiled function.
 */
#ifndef TVM_RELAY_BACKEND_CONTRIB_CODEGEN_JSON_CONSTANT_NAMES_H_
#define TVM_RELAY_BACKEND_CONTRIB_CODEGEN_JSON_CONSTANT_NAMES_H_

#include <tvm/ir/function.h>
#include <tvm/relay/expr.h>
#include <tvm/relay/expr_functor.h>
#include <tvm/relay/function.h>
#include <tvm/runtime/registry.h>

#include <string>
#include <unordered_map>

namespace tvm {
namespace relay {
namespace backend {
namespace contrib {

/*! \brief The meaning of the number in the name `<symbol>_const_<number>`. */
enum class ConstantNaming {
  /*! \brief kVisitOrder in an updater of a backend's own, else kUpdaterOrder. */
  kAuto,
  /*! \brief All constants of the function, in the order of a plain visitor. Right wherever TVM's
   *         default updater collects the constants, as it counts those inside a composite, too,
   *         even where the serializer skips them. */
  kUpdaterOrder,
  /*! \brief The constants that the serializer has visited. For backends that collect or number the
   *         constants themselves by that order. */
  kVisitOrder,
};

/*! \brief Numbers the constants of an expression in the order in which a plain visitor meets them,
 *         which is what TVM's default updater does. */
class ConstantNumbering : private ExprVisitor {
 public:
  explicit ConstantNumbering(const Expr& expr) { VisitExpr(expr); }

  /*! \brief The number of a constant of the expression. */
  size_t operator[](const ConstantNode* constant) const {
    auto it = numbers_.find(constant);
    ICHECK(it != numbers_.end()) << "A constant is not part of the function that is compiled";
    return it->second;
  }

 private:
  using ExprVisitor::VisitExpr_;
  void VisitExpr_(const ConstantNode* constant) final {
    numbers_.emplace(constant, numbers_.size());
  }

  std::unordered_map<const ConstantNode*, size_t> numbers_;
};

/*! \brief Replace kAuto by what it stands for. */
inline ConstantNaming ResolveConstantNaming(ConstantNaming naming, const Expr& expr) {
  if (naming != ConstantNaming::kAuto) return naming;
  const auto* func = expr.as<FunctionNode>();
  Optional<String> compiler =
      func ? func->GetAttr<String>(attr::kCompiler) : Optional<String>(nullptr);
  if (!compiler) return ConstantNaming::kUpdaterOrder;
  // A backend with an updater of its own numbers the constants as its serializer visits them.
  const std::string updater = "relay.ext." + std::string(compiler.value()) + ".constant_updater";
  return runtime::Registry::Get(updater) ? ConstantNaming::kVisitOrder
                                         : ConstantNaming::kUpdaterOrder;
}

}  // namespace contrib
}  // namespace backend
}  // namespace relay
}  // namespace tvm

#endif  // TVM_RELAY_BACKEND_CONTRIB_CODEGEN_JSON_CONSTANT_NAMES_H_
