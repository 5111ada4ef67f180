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
 * \file src/runtime/contrib/dnnl/core/ops/cast.cc
 * \brief Conversions between data types.
 */
#include "../fusion/quantization.h"
#include "../op_table.h"
#include "types.h"

namespace tvm::runtime::contrib::dnnl_backend {

Types InferCast(const NodeReader& node, const Types& inputs) {
  // The C source code generator leaves out what the result tells.
  const DLDataType dtype = ReadType(node, "dtype", node.Output().dtype);
  // To integers oneDNN rounds and saturates, where Relay does as C does.
  CORE_CHECK(IsReal(dtype) || dtype == inputs[0].dtype)
      << node.Where() << ": dtype is " << ToText(dtype) << ", expected: a floating-point type, or "
      << ToText(inputs[0].dtype);
  return {{inputs[0].shape, dtype}};
}

void LowerCast(const NodeReader& node, PlanBuilder* plan) {
  const Tensor src = plan->Input(node, 0);
  if (src.dtype() == node.OutType()) return plan->SetOutput(node, src);
  plan->SetOutput(node, Cast(node, plan, src, node.OutType()));
}

}  // namespace tvm::runtime::contrib::dnnl_backend
