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
 * \file src/runtime/contrib/dnnl/core/ops/matmul_int8.cc
 * \brief Matrix multiplications of 8-bit integers by our kernels.
 */
#include "matmul_int8.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "../fusion/int8.h"
#include "../fusion/post_ops.h"
#include "../op_table.h"
#include "dynamic_quantize.h"
#include "int8_epilogue.h"
#include "matmul_operands.h"
#include "reduce.h"
#include "rows.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

using Type = dnnl::memory::data_type;

/*! \brief The operands of a multiplication, as matrices. */
struct Operands {
  /*! \brief Row-major; all rows of all matrices. */
  Tensor src, weights;
  Int8Matrix matrix;
  int64_t rows, matrices;
  Quantization src_is, weights_are;
};

/*! \brief Whether the zero point is a constant in the range of the elements: sums count on that. */
bool HasSmallZeroPoint(const NodeReader& node, PlanBuilder* plan, const Quantization& own,
                       Type type) {
  if (!own.zero_point.defined()) return true;
  if (!own.IsConstant(*plan) || Quantization::IsAlongAxis(own.zero_point)) return false;
  const int32_t value = plan->ValuesOf<int32_t>(node, own.zero_point)[0];
  const auto [smallest, largest] = RangeOf(type);
  return value >= smallest && value <= largest;
}

/*! \brief The operands; nothing where they are not for the kernel. */
std::optional<Operands> ReadMatrices(const NodeReader& node, PlanBuilder* plan) {
  const MatMulKind kind = MatMulKind::Read(node);
  const Tensor data = plan->Input(node, 0), weights = plan->Input(node, 1);
  const Dims out = node.RootDims(), all = AsMatrices(weights.dims());
  const int64_t matrices = all[0], inner = all[kind.transpose_b ? 2 : 1];
  // Of more products, none of which exceeds 255 * 255, sums may not fit into 32 bits.
  constexpr int64_t kLongest = 33000;
  // Rows of any number of matrices are rows of one for one matrix of weights.
  const bool is_fit =
      matrices == 1 ||
      (kind.is_batch && NumElements(data.dims()) / inner == NumElements(out) / out.back() &&
       matrices == AsMatrices(out)[0]);
  if (!IsByte(weights.dtype()) || kind.transpose_a || !is_fit || inner > kLongest) return {};
  Operands result;
  if (kind.is_dynamic) {
    result.weights_are = DynamicWeights(node, plan, kind.transpose_b ? 0 : 1);
  } else {
    if (!node.IsDequantized(0) || !node.IsDequantized(1) || !IsByte(data.dtype())) return {};
    result.src_is = Quantization::Read(node.Dequantization(0), plan, data.dims());
    result.weights_are = Quantization::Read(node.Dequantization(1), plan, weights.dims());
    const Quantization& of_src = result.src_is;
    if (!of_src.IsConstant(*plan) || !of_src.IsPerTensor()) return {};
    if (!HasSmallZeroPoint(node, plan, of_src, data.dtype())) return {};
  }
  const Quantization& own = result.weights_are;
  const int last = static_cast<int>(weights.dims().size()) - 1;
  const bool is_along_columns =
      !Quantization::IsAlongAxis(own.scale) || own.axis == (kind.transpose_b ? last - 1 : last);
  const bool is_constant =
      own.IsConstant(*plan) && HasSmallZeroPoint(node, plan, own, weights.dtype());
  if (!is_constant || !is_along_columns) return {};
  const int64_t columns = out.back();
  result.matrix = {inner, columns, kind.transpose_b ? 1 : columns, kind.transpose_b ? inner : 1,
                   weights.dtype() == Type::s8};
  result.rows = NumElements(data.dims()) / inner;
  result.matrices = matrices;
  result.weights = plan->Plain(node, weights);
  result.src = plan->Plain(node, data);
  if (kind.is_dynamic) {
    const DynamicallyQuantized quantized = QuantizeDynamically(node, plan, data);
    result.src = quantized.values;
    result.src_is = quantized.quantization;
  }
  return result;
}

/*! \brief Whether oneDNN's kernels multiply the operands exactly, too, as their weights are small.
 */
bool IsExactOnOneDNN(const NodeReader& node, PlanBuilder* plan, const Operands& operands) {
  const PlanBuilder::Mark mark = plan->Here();
  const Tensor weights = plan->Input(node, 1);
  const int last = static_cast<int>(weights.dims().size()) - 1;
  const Int8Weights kernel = {MatMulKind::Read(node).transpose_b ? last - 1 : last,
                              operands.matrix.columns, /*is_convolution=*/false};
  bool is_exact = true;
  try {
    CheckInt8(node, plan, operands.src, {operands.src_is, weights, operands.weights_are, kernel});
  } catch (const dnnl::error&) {
    is_exact = false;
  }
  plan->BackTo(mark);
  return is_exact;
}

/*! \brief Emit the kernel; its result is in float32, unless it is quantized. */
Tensor EmitKernel(const NodeReader& node, PlanBuilder* plan, const Operands& operands,
                  const Int8Epilogue& epilogue) {
  const Int8Matrix& matrix = operands.matrix;
  const bool is_dynamic = !operands.src_is.IsConstant(*plan);
  const auto [src_scale, src_zero] =
      is_dynamic ? std::pair<double, double>(1, 0) : operands.src_is.Values(node, plan);
  std::vector<float> scales = plan->ValuesOf<float>(node, operands.weights_are.scale);
  const Tensor weights_zero = operands.weights_are.zero_point;
  Int8Finish finish = epilogue.Finish(node, src_scale, &scales);
  finish.zero_point = weights_zero.defined() ? plan->ValuesOf<int32_t>(node, weights_zero)[0] : 0;
  const Int8Source src = {nullptr, operands.src.dtype() == Type::s8, operands.rows,
                          static_cast<int32_t>(src_zero)};
  const Tensor packed = PackedInt8(node, plan, operands.weights, matrix, operands.matrices);
  const Tensor workspace =
      plan->NewTensor(PlainDesc({2 * Int8Workspace(matrix, operands.rows)}, Type::s8));
  const Tensor dst =
      plan->NewTensor(PlainDesc(node.RootDims(), finish.is_rounded ? node.OutType() : Type::f32));
  PlanBuilder::Args args = {{DNNL_ARG_SRC, operands.src},
                            {DNNL_ARG_WEIGHTS, packed},
                            {DNNL_ARG_DST, dst},
                            {DNNL_ARG_SRC_2, OfColumns(plan, matrix, scales)},
                            {DNNL_ARG_BIAS, OfColumns(plan, matrix, epilogue.ScaledBias())},
                            {DNNL_ARG_SCRATCHPAD, workspace}};
  if (is_dynamic) {
    args.push_back({DNNL_ARG_ATTR_SCALES | DNNL_ARG_SRC, operands.src_is.scale});
    args.push_back({DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_SRC, operands.src_is.zero_point});
  }
  const auto run = [src, matrix, matrices = operands.matrices, finish,
                    is_dynamic](void* const* addresses) {
    Int8Source from = src;
    Int8Finish own = finish;
    from.values = addresses[0];
    own.scales = static_cast<const float*>(addresses[3]);
    own.bias = static_cast<const float*>(addresses[4]);
    if (is_dynamic) {
      own.factor = *static_cast<const float*>(addresses[6]);
      from.zero_point = *static_cast<const int32_t*>(addresses[7]);
    }
    MultiplyInt8(from, matrix, matrices, static_cast<const int8_t*>(addresses[1]), own,
                 static_cast<int16_t*>(addresses[5]), addresses[2]);
  };
  plan->EmitKernel(node, "matmul", run, args);
  plan->SetVariant("products in 16 bits", MatMulFlops(node, *plan));
  return dst;
}

/*! \brief Emit the post-ops of a result in float32, by rows. */
Tensor EmitPostOps(const NodeReader& node, PlanBuilder* plan, const Tensor& result) {
  const auto rows = [&](const Tensor& value) { return FlattenRows(node, plan, value); };
  ResultView view{-1, rows};
  view.kept_dims = 1;
  return WithPostOps(node, plan, rows(result), view);
}

}  // namespace

bool LowerInt8Products(const NodeReader& node, PlanBuilder* plan) {
  if (!HasInt8Matrices() || !SumsIn16Bits()) return false;
  const PlanBuilder::Mark mark = plan->Here();
  const std::optional<Operands> operands = ReadMatrices(node, plan);
  // On two cores, ms by this kernel and by oneDNN's, which is exact for weights up to 64:
  //   1x512 by 512x2048     0.055  0.242
  //   16x64 by 64x64        0.006  0.010
  //   788x192 by 192x192    0.93   0.52
  constexpr int64_t kFewRows = 16;
  if (!operands ||
      (operands->rows / operands->matrices > kFewRows && IsExactOnOneDNN(node, plan, *operands))) {
    plan->BackTo(mark);
    return false;
  }
  const std::optional<Int8Epilogue> epilogue = Int8Epilogue::Read(node, plan);
  Tensor result = EmitKernel(node, plan, *operands, epilogue.value_or(Int8Epilogue()));
  if (!epilogue) result = EmitPostOps(node, plan, result);
  plan->SetOutput(node, plan->Reshaped(node, result, node.OutDims()));
  return true;
}

}  // namespace tvm::runtime::contrib::dnnl_backend
