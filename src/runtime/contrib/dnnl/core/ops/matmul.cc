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
 * \file src/runtime/contrib/dnnl/core/ops/matmul.cc
 * \brief Matrix multiplications, alone and in batches.
 */
#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../implementation.h"
#include "../int8.h"
#include "../op_table.h"
#include "../post_ops.h"
#include "rows.h"
#include "types.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

using MatMul = dnnl::matmul;

/*! \brief A view with the last two dimensions swapped. */
Tensor Transposed(const Tensor& value) {
  std::vector<int> axes(value.dims().size());
  std::iota(axes.begin(), axes.end(), 0);
  std::swap(axes[axes.size() - 1], axes[axes.size() - 2]);
  return value.Permuted(axes);
}

/*! \brief All dimensions but the last two as one. */
Dims AsMatrices(Dims dims) {
  if (dims.size() < 3) dims.insert(dims.begin(), 3 - dims.size(), 1);
  const int64_t matrix = dims[dims.size() - 1] * dims[dims.size() - 2];
  return {NumElements(dims) / matrix, dims[dims.size() - 2], dims.back()};
}

/*! \brief What to multiply: (..., M, K) by (..., K, N). */
struct Operands {
  Tensor src;
  Tensor weights;
  Dims dst_dims;
  /*! \brief Whether the result is seen as a matrix of rows. */
  bool is_flat;
  bool is_batch;
  /*! \brief Of a matmul in 8 bits. */
  std::optional<Int8Operands> int8;

  /*! \brief Dims of the result, or of an operand of its rank, as the matmul sees them. */
  Dims View(const Dims& dims) const {
    return is_flat ? AsRows(dims) : is_batch ? AsMatrices(dims) : dims;
  }
};

/*! \brief What an op says of its operands. */
struct MatMulKind {
  bool is_dense, is_batch, transpose_a, transpose_b;

  static MatMulKind Read(const NodeReader& node) {
    const bool is_dense = node.OpName() == "nn.dense";
    const bool is_batch = node.OpName() == "nn.batch_matmul";
    return {is_dense, is_batch, !is_dense && node.Get<bool>("transpose_a", false),
            is_dense || node.Get<bool>("transpose_b", is_batch)};
  }
};

Operands ReadOperands(const NodeReader& node, PlanBuilder* plan) {
  const auto [is_dense, is_batch, transpose_a, transpose_b] = MatMulKind::Read(node);
  const Dims out_dims = node.RootDims();

  Operands operands{plan->Input(node, 0), plan->Input(node, 1), out_dims, false, is_batch, {}};
  const int last = static_cast<int>(operands.weights.dims().size()) - 1;
  operands.int8 = ReadInt8(node, plan, {transpose_b ? last - 1 : last, out_dims.back(), false});
  if (operands.int8) operands.weights = operands.int8->weights;
  // Rows of any number of dimensions are rows of one matrix, unless they are its columns.
  operands.is_flat = !is_batch && !(transpose_a && out_dims.size() > 2);
  operands.dst_dims = operands.View(out_dims);
  if (operands.is_flat) operands.src = FlattenRows(node, plan, operands.src);
  if (is_batch && out_dims.size() > 3) {
    operands.src = plan->Reshaped(node, operands.src, AsMatrices(operands.src.dims()));
    operands.weights = plan->Reshaped(node, operands.weights, AsMatrices(operands.weights.dims()));
  }
  operands.weights = AlignRank(node, plan, operands.weights, operands.dst_dims.size());
  if (transpose_a) operands.src = Transposed(operands.src);
  if (transpose_b) operands.weights = Transposed(operands.weights);
  return operands;
}

/*! \brief The descriptor for these layouts; empty where oneDNN has none. */
MatMul::primitive_desc DescribeAs(PlanBuilder* plan, const dnnl::memory::desc& src,
                                  const dnnl::memory::desc& weights, const dnnl::memory::desc& bias,
                                  const dnnl::memory::desc& dst, const dnnl::primitive_attr& attr) {
  return bias ? MatMul::primitive_desc(plan->engine(), src, weights, bias, dst, attr,
                                       /*allow_empty=*/true)
              : MatMul::primitive_desc(plan->engine(), src, weights, dst, attr, true);
}

/*! \brief The descriptor for the best layouts; empty where oneDNN has none. */
MatMul::primitive_desc Describe(const NodeReader& node, PlanBuilder* plan, const Operands& operands,
                                const FusedOps& fused) {
  const dnnl::memory::desc dst(operands.dst_dims, node.OutType(), dnnl::memory::format_tag::any);
  const auto create = [&](const dnnl::memory::desc& src, const dnnl::memory::desc& weights) {
    return DescribeAs(plan, src, weights, fused.BiasDesc(), dst, fused.attr);
  };
  const dnnl::memory::desc packed = AnyDesc(operands.weights.md);
  // Constants are packed once. Packing the rest at every run pays off only where oneDNN's best
  // code does not read it as it is.
  const bool is_constant = plan->IsConstant(operands.weights);
  const auto desc = create(operands.src.md, is_constant ? packed : operands.weights.md);
  if (desc && IsBlockGemm(desc)) return desc;
  const auto free = create(AnyDesc(operands.src.md), packed);
  return !desc || IsReference(desc) || (free && IsBlockGemm(free)) ? free : desc;
}

/*! \brief What becomes of the second matrix. */
std::string Variant(const PlanBuilder& plan, const Operands& operands,
                    const MatMul::primitive_desc& desc) {
  if (desc.weights_desc() == operands.weights.md) return "matmul, weights as they are";
  return plan.IsConstant(operands.weights) ? "matmul, weights packed once"
                                           : "matmul, weights packed at every run";
}

}  // namespace

Types InferMatMul(const NodeReader& node, const Types& inputs) {
  const auto [is_dense, is_batch, transpose_a, transpose_b] = MatMulKind::Read(node);
  CheckReal(node, inputs);
  CheckMinRank(node, inputs, 0, is_batch ? 3 : transpose_a ? 2 : 1);
  CheckRank(node, inputs, 1, is_batch ? inputs[0].shape.size() : 2);
  Dims src = inputs[0].shape, weights = inputs[1].shape;
  if (transpose_a) std::swap(src[src.size() - 1], src[src.size() - 2]);
  if (transpose_b) std::swap(weights[weights.size() - 1], weights[weights.size() - 2]);
  CORE_CHECK(src.back() == weights[weights.size() - 2])
      << node.Where() << ": rows of " << src.back() << " elements do not fit columns of "
      << weights[weights.size() - 2];
  if (is_batch) {
    const Dims batch(src.begin(), src.end() - 2);
    const Dims other(weights.begin(), weights.end() - 2);
    // Batches of several dimensions are seen as one, so that all of them are broadcast or none.
    const bool is_one = NumElements(batch) == 1;
    CORE_CHECK(batch == other || is_one || NumElements(other) == 1)
        << node.Where() << ": a batch of " << ToText(batch) << " does not fit one of "
        << ToText(other);
    if (is_one) std::copy(other.begin(), other.end(), src.begin());
  } else {
    CheckSays(node, "units", weights.back());
  }
  src.back() = weights.back();
  return {{src, ReadRealType(node, "out_dtype", inputs[0].dtype)}};
}

double MatMulFlops(const NodeReader& node, const PlanBuilder& plan) {
  const Dims src = plan.Input(node, 0).dims();
  const bool is_transposed = MatMulKind::Read(node).transpose_a;
  return 2. * NumElements(node.OutDims()) * src[src.size() - (is_transposed ? 2 : 1)];
}

void LowerMatMul(const NodeReader& node, PlanBuilder* plan) {
  const Operands operands = ReadOperands(node, plan);
  const Dims out_dims = node.RootDims();
  ResultView view{static_cast<int>(out_dims.size()) - 1, [&](const Tensor& operand) {
                    return plan->Reshaped(node, operand, operands.View(operand.dims()));
                  }};
  view.kept_dims = operands.is_flat ? 1 : operands.is_batch ? 2 : 0;
  view.has_destination_scale = true;
  FusedOps fused = FusePostOps(node, plan, view);
  if (operands.int8) {
    fused.Quantize(operands.int8->src, DNNL_ARG_SRC, 0);
    const int columns = 1 << (operands.dst_dims.size() - 1);
    fused.Quantize(operands.int8->weights_are, DNNL_ARG_WEIGHTS, columns);
  }
  if (fused.bias.defined()) {
    fused.bias = AlignRank(node, plan, fused.bias, operands.dst_dims.size());
  }
  const auto desc = Describe(node, plan, operands, fused);
  if (!desc) throw dnnl::error(dnnl_unimplemented, "no matmul accepts these shapes and types");

  const Tensor dst = plan->NewTensor(desc.dst_desc());
  plan->Emit(
      node, desc, MatMul(desc),
      fused.AddTo({{DNNL_ARG_SRC, plan->InLayout(node, operands.src, desc.src_desc())},
                   {DNNL_ARG_WEIGHTS, plan->InLayout(node, operands.weights, desc.weights_desc())},
                   {DNNL_ARG_DST, dst}},
                  node, plan, desc),
      fused.names);
  plan->SetVariant(Variant(*plan, operands, desc), MatMulFlops(node, *plan));
  fused.OfferSum<MatMul>(
      plan, desc,
      [&](const dnnl::memory::desc& src_md, const dnnl::memory::desc& weights_md,
          const dnnl::memory::desc& dst_md, const dnnl::primitive_attr& attr,
          bool) { return DescribeAs(plan, src_md, weights_md, fused.BiasDesc(), dst_md, attr); });
  plan->SetOutput(node, plan->Reshaped(node, dst, node.OutDims()));
}

}  // namespace tvm::runtime::contrib::dnnl_backend
