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
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "../faults.h"
#include "../fusion/int8.h"
#include "../fusion/post_ops.h"
#include "../fusion/second_operand.h"
#include "../implementation.h"
#include "../op_table.h"
#include "changing_sizes.h"
#include "matmul_int8.h"
#include "matmul_operands.h"
#include "matmul_tiles.h"
#include "rows.h"
#include "types.h"
#include "weight_layout.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

using InnerProduct = dnnl::inner_product_forward;
using MatMul = dnnl::matmul;

// In µs on two cores with AVX-512, as an inner_product and as a matmul:
//   128x512 by 512x2048    805  806      131x192 by 192x768   150  103
//   16x1024 by 1024x1024   127  136      197x192 by 192x768   206  164
//   8x1024 by 1024x1000     94   98      197x768 by 768x768   844  638
//   198x192 by 192x768     158  154      577x192 by 192x768   514  469
//   256x512 by 512x512     353  361
// An inner_product shares out the rows badly where their number has no good divisor. On one core:
//   80x768 by 768x3072    3053 2921      96x576 by 576x1536   1466 1244
//   80x3072 by 3072x768   2865 2961      96x768 by 768x768     888  812
//   128x768 by 768x3072   5003 4243     128x576 by 576x1536   1830 1564
/*! \brief With more rows than this a blocked matmul of packed weights is as fast or faster. */
constexpr int64_t kFewRows = 80;

/*! \brief The descriptor for these layouts; empty where oneDNN has none. */
MatMul::primitive_desc DescribeAs(PlanBuilder* plan, const MatMulOperands& operands,
                                  const dnnl::memory::desc& src, const dnnl::memory::desc& weights,
                                  const dnnl::memory::desc& bias, const dnnl::memory::desc& dst,
                                  const dnnl::primitive_attr& attr) {
  MatMul::primitive_desc desc =
      bias ? MatMul::primitive_desc(plan->engine(), src, weights, bias, dst, attr,
                                    /*allow_empty=*/true)
           : MatMul::primitive_desc(plan->engine(), src, weights, dst, attr, true);
  ZeroPoints zero_points;
  zero_points.weights = operands.int8 && operands.int8->weights_are.HasZeroPoint();
  return desc && SkipFaulty(&desc, zero_points) ? desc : MatMul::primitive_desc();
}

/*! \brief The descriptor for the best layouts; empty where oneDNN has none. */
MatMul::primitive_desc Describe(const NodeReader& node, PlanBuilder* plan,
                                const MatMulOperands& operands, const FusedOps& fused) {
  const dnnl::memory::desc dst(operands.dst_dims, node.OutType(), dnnl::memory::format_tag::any);
  const auto create = [&](const dnnl::memory::desc& src, const dnnl::memory::desc& weights) {
    return DescribeAs(plan, operands, src, weights, fused.BiasDesc(), dst, fused.attr);
  };
  const dnnl::memory::desc packed = AnyDesc(operands.weights.md);
  // Constants are packed once. Packing the rest at every run pays off only where oneDNN's best
  // code does not read it as it is.
  const bool is_constant = plan->IsConstant(operands.weights);
  if (is_constant && operands.is_flat && !operands.int8) {
    const auto shared = SharedWeightLayout(*plan, operands.weights.md.permute_axes({1, 0}));
    const auto desc = shared ? create(operands.SrcDesc(), shared->permute_axes({1, 0}))
                             : MatMul::primitive_desc();
    if (desc && IsBlockGemm(desc)) return desc;
  }
  const auto desc = create(operands.SrcDesc(), is_constant ? packed : operands.weights.md);
  if (desc && IsBlockGemm(desc)) return desc;
  if (operands.is_interleaved) return {};
  const auto free = create(AnyDesc(operands.src.md), packed);
  return !desc || IsReference(desc) || (free && IsBlockGemm(free)) ? free : desc;
}

/*!
 * \brief Whether the op is a product of rows and one constant matrix, which is packed once, and all
 * that its post-ops read are rows, too.
 */
bool MayLowerRows(const NodeReader& node, const PlanBuilder& plan) {
  // Weights that are computed would be packed at every run; a matmul reads them as they are. For
  // packed constants and few rows it makes no difference: in µs on two cores, with the weights not
  // in the caches, as an inner_product, a matmul and a 1x1 convolution of rows,
  //   128x512 by 512x2048   911  910  910      1x1024 by 1024x1000    75   75   75
  //   128x2048 by 2048x512  913  893  916     32x1024 by 1024x1000   300  307  293
  // A matmul of weights that are not packed needs 964 to 1059 for the first two, 120 for the third.
  // Quantized, too: an inner_product has no zero points.
  const Tensor weights = plan.Input(node, 1);
  if (!plan.IsConstant(weights) || node.IsQuantized() || MatMulKind::Read(node).transpose_a ||
      AsMatrices(weights.dims())[0] != 1) {
    return false;
  }
  const Dims dims = node.OutDims();
  for (int i = 0; i < node.NumPostOps(); ++i) {
    const int index = node.PostOp(i).Operand();
    if (index < 0) continue;
    const Dims operand = plan.Input(node, index).dims();
    const int64_t size = NumElements(operand);
    const bool is_row = size == dims.back() && operand.back() == size;
    if (size != 1 && size != NumElements(dims) && !is_row) return false;
  }
  return true;
}

/*! \brief Rows by a matrix as an inner_product. */
struct AsInnerProduct {
  using Primitive = InnerProduct;
  static constexpr const char* kVariant = "inner_product, weights packed once";

  static Tensor Rows(const Tensor& matrix) { return matrix; }
  static Dims WeightsDims(const Dims& matrix) { return matrix; }
  static dnnl::memory::desc SrcDesc(const Tensor& rows) { return AnyDesc(rows.md); }
  static Tensor Matrix(const Tensor& rows) { return rows; }
  static dnnl::memory::desc Result(const Dims& dims, dnnl::memory::data_type type) {
    return {dims, type, dnnl::memory::format_tag::any};
  }
  static Primitive::primitive_desc Describe(PlanBuilder* plan, const dnnl::memory::desc& src,
                                            const dnnl::memory::desc& weights,
                                            const dnnl::memory::desc& bias,
                                            const dnnl::memory::desc& dst,
                                            const dnnl::primitive_attr& attr, bool allow_empty) {
    return {plan->engine(), dnnl::prop_kind::forward_inference, src, weights, bias, dst, attr,
            allow_empty};
  }
};

/*! \brief Rows by a matrix as a convolution of 1x1, in which each row is a spatial position. */
struct AsConvolution {
  using Primitive = dnnl::convolution_forward;
  static constexpr const char* kVariant = "convolution of rows, weights packed once";

  static Tensor Rows(const Tensor& matrix) {
    const Dims dims = matrix.dims();
    return matrix.Reshaped({1, dims[0], 1, dims[1]}).Permuted({0, 3, 1, 2});
  }
  static Dims WeightsDims(const Dims& matrix) { return {matrix[0], matrix[1], 1, 1}; }
  static dnnl::memory::desc SrcDesc(const Tensor& rows) { return rows.md; }
  static Tensor Matrix(const Tensor& rows) {
    const Dims dims = rows.dims();
    return rows.Permuted({0, 2, 3, 1}).Reshaped({dims[2], dims[1]});
  }
  static dnnl::memory::desc Result(const Dims& dims, dnnl::memory::data_type type) {
    return {{1, dims[1], dims[0], 1}, type, dnnl::memory::format_tag::nhwc};
  }
  static Primitive::primitive_desc Describe(PlanBuilder* plan, const dnnl::memory::desc& src,
                                            const dnnl::memory::desc& weights,
                                            const dnnl::memory::desc& bias,
                                            const dnnl::memory::desc& dst,
                                            const dnnl::primitive_attr& attr, bool allow_empty) {
    return {plan->engine(),
            dnnl::prop_kind::forward_inference,
            dnnl::algorithm::convolution_direct,
            src,
            weights,
            bias,
            dst,
            {1, 1},
            {0, 0},
            {0, 0},
            attr,
            allow_empty};
  }
};

/*! \brief The matrix of an op of rows: a row for each column of the result. */
Tensor ReadMatrix(const NodeReader& node, PlanBuilder* plan) {
  const Dims dims = AsMatrices(plan->Input(node, 1).dims());
  const Tensor matrix = plan->Reshaped(node, plan->Input(node, 1), {dims[1], dims[2]});
  return MatMulKind::Read(node).transpose_b ? matrix : Transposed(matrix);
}

/*! \brief Whether oneDNN has blocked code for a matmul. */
bool HasBlockedMatMul(const NodeReader& node, PlanBuilder* plan, const MatMulOperands& operands) {
  FusedOps nothing;
  nothing.attr = PlanBuilder::NewAttr();
  const auto matmul = Describe(node, plan, operands, nothing);
  return matmul && IsBlockGemm(matmul);
}

/*!
 * \brief Multiply rows by one constant matrix.
 * \return False for a slow inner_product, or where oneDNN has blocked code for a matmul only, as
 *         versions after 3.13 do.
 */
template <typename As>
bool LowerRows(const NodeReader& node, PlanBuilder* plan) {
  const auto rows = [&](const Tensor& value) {
    return As::Rows(plan->Plain(node, FlattenRows(node, plan, value)));
  };
  const Dims out_dims = node.RootDims();
  const Tensor src = rows(plan->Input(node, 0));
  const Tensor matrix = ReadMatrix(node, plan);
  const Tensor weights = plan->Reshaped(node, matrix, As::WeightsDims(matrix.dims()));
  ResultView view{static_cast<int>(out_dims.size()) - 1, rows};
  view.kept_dims = 1;
  const FusedOps fused = FusePostOps(node, plan, view);
  const auto describe = [&](const dnnl::memory::desc& src_md, const dnnl::memory::desc& weights_md,
                            const dnnl::memory::desc& dst_md, const dnnl::primitive_attr& attr,
                            bool allow_empty) {
    return Describe1x1(AsRows(out_dims)[0], src_md, dst_md, [&](const auto& from, const auto& to) {
      return As::Describe(plan, from, weights_md, fused.BiasDesc(), to, attr, allow_empty);
    });
  };
  const auto describe_as = [&](const dnnl::memory::desc& layout, bool allow_empty) {
    return describe(As::SrcDesc(src), layout, As::Result(AsRows(out_dims), node.OutType()),
                    fused.attr, allow_empty);
  };
  typename As::Primitive::primitive_desc desc;
  if (const auto shared = SharedWeightLayout(*plan, weights.md)) desc = describe_as(*shared, true);
  if (!desc || !IsBlockGemm(desc)) desc = describe_as(AnyDesc(weights.md), false);
  // Of one column the vector code of an inner_product is faster than blocks: 128x1024 by 1024x1
  // takes 9 µs on one core, a matmul 121.
  const bool is_product = std::is_same_v<As, AsInnerProduct> && out_dims.back() > 1;
  if (is_product && IsSlowProduct(desc)) return false;
  if (is_product && !IsBlockGemm(desc) && HasBlockedMatMul(node, plan, ReadOperands(node, plan))) {
    return false;
  }
  const Tensor dst = plan->NewTensor(desc.dst_desc());
  plan->Emit(node, desc, typename As::Primitive(desc),
             fused.AddTo({{DNNL_ARG_SRC, plan->InLayout(node, src, desc.src_desc())},
                          {DNNL_ARG_WEIGHTS, plan->Weights(node, weights, desc.weights_desc())},
                          {DNNL_ARG_DST, dst}},
                         node, plan, desc),
             fused.names);
  plan->SetVariant(As::kVariant, MatMulFlops(node, *plan));
  fused.OfferSum<typename As::Primitive>(plan, desc, describe);
  plan->SetOutput(node, plan->Reshaped(node, As::Matrix(dst), node.OutDims()));
  return true;
}

/*!
 * \brief Whether oneDNN has blocked code for a convolution and none for a matmul.
 *
 * So it is on a CPU with AVX2 alone. In µs on two cores, as an inner_product, a matmul and a 1x1
 * convolution of rows:
 *   16x512 by 512x2048   203  413  207      197x192 by 192x192   109    86    88
 *   37x512 by 512x512    126  196  122      197x192 by 192x768   428   350   334
 *   64x512 by 512x2048   817 1749  795      197x768 by 768x768  2153  1481  1409
 *   128x512 by 512x512   384  614  388      131x192 by 192x768   375   294   241
 */
bool PrefersConvolution(const NodeReader& node, PlanBuilder* plan, const MatMulOperands& operands) {
  if (HasBlockedMatMul(node, plan, operands)) return false;
  const Dims out = AsRows(node.RootDims());
  const Tensor matrix = ReadMatrix(node, plan);
  const Tensor weights = plan->Reshaped(node, matrix, AsConvolution::WeightsDims(matrix.dims()));
  const auto desc = AsConvolution::Describe(
      plan, AsConvolution::Result({out[0], matrix.dims()[1]}, matrix.dtype()), AnyDesc(weights.md),
      {}, AsConvolution::Result(out, node.OutType()), PlanBuilder::NewAttr(),
      /*allow_empty=*/true);
  return desc && IsBlockGemm(desc);
}

/*! \brief The treatment of the second matrix. */
std::string Variant(const PlanBuilder& plan, const MatMulOperands& operands,
                    const MatMul::primitive_desc& desc) {
  if (desc.weights_desc() == operands.weights.md) return "matmul, weights as they are";
  return plan.IsConstant(operands.weights) ? "matmul, weights packed once"
                                           : "matmul, weights packed at every run";
}

/*! \brief Emit the primitive; false where oneDNN has none. */
bool Emit(const NodeReader& node, PlanBuilder* plan, const MatMulOperands& operands) {
  ResultView view{static_cast<int>(node.RootDims().size()) - 1, [&](const Tensor& operand) {
                    return plan->Reshaped(node, operand, operands.View(operand.dims()));
                  }};
  view.kept_dims = operands.is_flat ? 1 : operands.is_batch ? 2 : 0;
  const int columns = 1 << (operands.dst_dims.size() - 1);
  FusedOps fused = FuseInt8(node, plan, view, operands.int8, columns, /*is_padded=*/false);
  if (fused.bias.defined()) {
    fused.bias = AlignRank(node, plan, fused.bias, operands.dst_dims.size());
  }
  const auto desc = Describe(node, plan, operands, fused);
  if (!desc) return false;

  const Tensor dst = plan->NewTensor(desc.dst_desc());
  plan->Emit(
      node, desc, MatMul(desc),
      fused.AddTo({{DNNL_ARG_SRC, plan->InLayout(node, operands.src, desc.src_desc())},
                   {DNNL_ARG_WEIGHTS, plan->Weights(node, operands.weights, desc.weights_desc())},
                   {DNNL_ARG_DST, dst}},
                  node, plan, desc),
      fused.names);
  plan->SetVariant(Variant(*plan, operands, desc), MatMulFlops(node, *plan));
  const auto describe = [plan, operands, bias = fused.BiasDesc()](
                            const dnnl::memory::desc& src_md, const dnnl::memory::desc& weights_md,
                            const dnnl::memory::desc& dst_md, const dnnl::primitive_attr& attr,
                            bool) {
    return DescribeAs(plan, operands, src_md, weights_md, bias, dst_md, attr);
  };
  fused.OfferSum<MatMul>(plan, desc, describe);
  if (!fused.has_residual()) {
    // Heads of attention go between each other without a reorder.
    plan->OfferLayout([describe, desc, attr = fused.attr](const dnnl::memory::desc& dst_md) {
      const auto other = describe(desc.src_desc(), desc.weights_desc(), dst_md, attr, true);
      const bool is_alike = other && std::string(other.impl_info_str()) == desc.impl_info_str();
      return is_alike ? other : MatMul::primitive_desc();
    });
  }
  plan->SetOutput(node, plan->Reshaped(node, dst, node.OutDims()));
  return true;
}

}  // namespace

Types InferMatMul(const NodeReader& node, const Types& inputs) {
  const auto [is_dense, is_batch, is_dynamic, transpose_a, transpose_b] = MatMulKind::Read(node);
  CheckReal(node, inputs);
  CheckMinRank(node, inputs, 0, is_batch || transpose_a ? 2 : 1);
  is_batch ? CheckMinRank(node, inputs, 1, 2) : CheckRank(node, inputs, 1, 2);
  Dims src = inputs[0].shape, weights = inputs[1].shape;
  if (transpose_a) std::swap(src[src.size() - 1], src[src.size() - 2]);
  if (transpose_b) std::swap(weights[weights.size() - 1], weights[weights.size() - 2]);
  CORE_CHECK(src.back() == weights[weights.size() - 2])
      << node.Where() << ": rows of " << src.back() << " elements do not fit columns of "
      << weights[weights.size() - 2];
  if (is_batch) {
    Dims dims = BroadcastDims(node, "batches", {src.begin(), src.end() - 2},
                              {weights.begin(), weights.end() - 2});
    dims.insert(dims.end(), src.end() - 2, src.end());
    src = dims;
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
  if (LowerInt8Products(node, plan) || LowerFewRows(node, plan)) return;
  const bool is_of_rows = MayLowerRows(node, *plan);
  const PlanBuilder::Mark mark = plan->Here();
  if (is_of_rows && LowerTiles(node, plan, ReadMatrix(node, plan))) return;
  const bool has_few_rows =
      MatMulKind::Read(node).is_dense && AsRows(node.RootDims())[0] <= kFewRows;
  if (is_of_rows && has_few_rows && LowerRows<AsInnerProduct>(node, plan)) return;
  plan->BackTo(mark);
  const std::optional<MatMulOperands> interleaved = ReadInterleaved(node, plan);
  if (interleaved && Emit(node, plan, *interleaved)) return;
  plan->BackTo(mark);
  const MatMulOperands operands = ReadOperands(node, plan);
  if (is_of_rows && PrefersConvolution(node, plan, operands)) {
    plan->BackTo(mark);
    LowerRows<AsConvolution>(node, plan);
    return;
  }
  if (!Emit(node, plan, operands)) {
    throw dnnl::error(dnnl_unimplemented, "no matmul accepts these shapes and types");
  }
}

void LowerDynamicQuantizedDense(const NodeReader& node, PlanBuilder* plan) {
  if (LowerInt8Products(node, plan)) return;
  const PlanBuilder::Mark mark = plan->Here();
  std::string reason = "oneDNN has only slow reference code";
  try {
    if (Emit(node, plan, ReadOperands(node, plan)) && !plan->HasReferenceSince(mark)) return;
  } catch (const dnnl::error& error) {
    reason = error.what();
  }
  plan->BackTo(mark);
  if (!Emit(node, plan, ReadOperands(node, plan, /*in_float32=*/true))) {
    throw dnnl::error(dnnl_unimplemented, "no matmul accepts these shapes and types");
  }
  plan->AddToVariant("in float32: " + reason);
}

}  // namespace tvm::runtime::contrib::dnnl_backend
