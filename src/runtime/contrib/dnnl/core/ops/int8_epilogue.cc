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
 * \file src/runtime/contrib/dnnl/core/ops/int8_epilogue.cc
 * \brief What our kernels of 8-bit integers do to sums of products as they store them.
 */
#include "int8_epilogue.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "../fusion/quantization.h"

namespace tvm::runtime::contrib::dnnl_backend {

bool Int8Epilogue::Add(const NodeReader& node, const NodeReader& op, PlanBuilder* plan,
                       int64_t axis) {
  const bool is_first = low == -kInfinity && high == kInfinity;
  const bool is_sum = op.OpName() == "add" || op.OpName() == "nn.bias_add";
  if (is_sum && is_first && bias.empty() && op.Operand() >= 0) {
    const Tensor value = plan->Input(node, op.Operand());
    const Dims dims = value.dims();
    const Dims root = node.RootDims();
    const int64_t columns = root[root.size() - axis], rank = static_cast<int64_t>(dims.size());
    // The rank of the operand is that after a reshape, which keeps the last dimensions.
    const bool is_row =
        NumElements(dims) == columns && rank >= axis && dims[rank - axis] == columns;
    if (!is_row || value.dtype() != dnnl::memory::data_type::f32 || !plan->IsConstant(value))
      return false;
    bias = plan->ValuesOf<float>(node, value);
    return true;
  }
  if (op.OpName() == "nn.relu" && is_first) {
    low = 0;
    return true;
  }
  if (op.OpName() == "clip" && is_first) {
    low = op.Get<double>("a_min");
    high = op.Get<double>("a_max");
    return true;
  }
  return false;
}

std::optional<Int8Epilogue> Int8Epilogue::Read(const NodeReader& node, PlanBuilder* plan,
                                               int64_t axis) {
  Int8Epilogue result;
  for (int i = 0; i < node.NumPostOps(); ++i) {
    const NodeReader op = node.PostOp(i);
    if (op.OpName() == "qnn.quantize" && i + 1 == node.NumPostOps() && IsByte(node.OutType())) {
      const Quantization to = Quantization::Read(op, plan, op.OutDims());
      if (!to.IsConstant(*plan) || !to.IsPerTensor()) return {};
      result.quantization = to.Values(op, plan);
    } else if (!result.Add(node, op, plan, axis)) {
      return {};
    }
  }
  return result;
}

Int8Finish Int8Epilogue::Finish(const NodeReader& node, double src_scale,
                                std::vector<float>* scales) const {
  Int8Finish finish{};
  finish.factor = 1;
  finish.low = static_cast<float>(low / Step());
  finish.high = static_cast<float>(high / Step());
  for (float& scale : *scales) scale = static_cast<float>(src_scale * scale / Step());
  if (!quantization) return finish;
  const double zero_point = quantization->second;
  const auto [smallest, largest] = RangeOf(node.OutType());
  finish.is_rounded = true;
  finish.result_zero_point = static_cast<int32_t>(zero_point);
  finish.low = std::clamp<float>(finish.low, smallest - zero_point, largest - zero_point);
  finish.high = std::clamp<float>(finish.high, smallest - zero_point, largest - zero_point);
  return finish;
}

std::vector<float> Int8Epilogue::ScaledBias() const {
  std::vector<float> result = bias;
  if (result.empty()) result = {0.f};
  for (float& value : result) value = static_cast<float>(value / Step());
  return result;
}

Tensor PackedInt8(const NodeReader& node, PlanBuilder* plan, const Tensor& weights,
                  const Int8Matrix& matrix, int64_t matrices) {
  const PlanBuilder::Mark mark = plan->Here();
  const Tensor packed =
      plan->NewTensor(PlainDesc({matrices * matrix.packed_bytes()}, dnnl::memory::data_type::s8));
  const auto pack = [matrix, matrices](void* const* addresses) {
    PackInt8Matrices(matrix, matrices, addresses[0], static_cast<int8_t*>(addresses[1]));
  };
  plan->EmitKernel(node, "pack", pack, {{DNNL_ARG_SRC, weights}, {DNNL_ARG_DST, packed}});
  if (plan->IsConstant(weights)) plan->RunNow(mark);
  return packed;
}

Tensor OfColumns(PlanBuilder* plan, const Int8Matrix& matrix, std::vector<float> values) {
  if (values.size() == 1) values.resize(matrix.columns, values[0]);
  values.resize(matrix.panels() * Int8Matrix::kPanel, 0.f);
  return plan->NewConstant(values);
}

}  // namespace tvm::runtime::contrib::dnnl_backend
