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
 * \file src/runtime/contrib/dnnl/core/quantization.cc
 * \brief Tensors whose elements stand for real numbers by a scale and a zero point.
 */
#include "quantization.h"

#include <algorithm>

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief A scale or zero point as a vector. */
Tensor ReadVector(const NodeReader& op, PlanBuilder* plan, int input, const char* name,
                  dnnl::memory::data_type type, int64_t along_axis) {
  const Tensor value = plan->Plain(op, plan->Input(op, input));
  CORE_CHECK(value.dtype() == type)
      << op.Where() << ": the " << name << " must be "
      << (type == dnnl::memory::data_type::f32 ? "float32" : "int32")
      << ", but is of oneDNN's type " << static_cast<int>(value.dtype());
  const int64_t size = NumElements(value.dims());
  CORE_CHECK(size == 1 || size == along_axis)
      << op.Where() << ": the " << name << " has " << size << " elements, but one or " << along_axis
      << " are expected";
  return value.Reshaped({size});
}

}  // namespace

Quantization Quantization::Read(const NodeReader& op, PlanBuilder* plan, const Dims& dims) {
  const int rank = static_cast<int>(dims.size());
  Quantization result;
  const bool is_scalar =
      NumElements(plan->Input(op, 1).dims()) == 1 && NumElements(plan->Input(op, 2).dims()) == 1;
  // Of scalars the axis means nothing, and may be any.
  if (!is_scalar) result.axis = op.Axis("axis", -1, rank);
  const int64_t size = is_scalar ? 1 : dims[result.axis];
  result.scale = ReadVector(op, plan, 1, "scale", dnnl::memory::data_type::f32, size);
  const Tensor zero_point =
      ReadVector(op, plan, 2, "zero point", dnnl::memory::data_type::s32, size);
  if (!plan->IsConstant(zero_point)) {
    result.zero_point = zero_point;
  } else {
    const auto values = plan->ValuesOf<int32_t>(op, zero_point);
    const bool is_zero = std::all_of(values.begin(), values.end(), [](int v) { return v == 0; });
    if (!is_zero) result.zero_point = zero_point;
  }
  return result;
}

}  // namespace tvm::runtime::contrib::dnnl_backend
