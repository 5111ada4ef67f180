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
 * \file src/runtime/contrib/dnnl/core/ops/binary.cc
 * \brief Binary elementwise ops, with numpy's broadcasting.
 */
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "../fusion/post_ops.h"
#include "../fusion/second_operand.h"
#include "../implementation.h"
#include "../op_table.h"
#include "changing_sizes.h"
#include "loops.h"
#include "types.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

using Binary = dnnl::binary;

/*! \brief The operands with the rank of the result. */
std::pair<Tensor, Tensor> AlignedOperands(const NodeReader& node, PlanBuilder* plan) {
  const size_t rank = node.RootDims().size();
  return {AlignRank(node, plan, plan->Input(node, 0), rank),
          SecondOperand(node, node, plan, plan->Input(node, 1), rank)};
}

/*!
 * \brief Two row-major operands with neighbouring dimensions made one where both are the same
 * there, or where the second is one.
 *
 * oneDNN has fast code for the second operand being one along some axes only. That of a result
 * (4, 64, 28, 28) may be (4, 1, 1, 28), but not (4, 64, 28, 1), which is (7168, 1) of (7168, 28).
 */
void CollapseDims(const NodeReader& node, PlanBuilder* plan, Tensor* lhs, Tensor* rhs) {
  Dims lhs_dims, rhs_dims;
  bool was_broadcast = false;
  for (size_t i = 0; i < lhs->dims().size(); ++i) {
    const int64_t size = lhs->dims()[i];
    if (size == 1) continue;
    const bool is_broadcast = rhs->dims()[i] == 1;
    if (lhs_dims.empty() || is_broadcast != was_broadcast) {
      lhs_dims.push_back(1);
      rhs_dims.push_back(1);
    }
    lhs_dims.back() *= size;
    rhs_dims.back() *= rhs->dims()[i];
    was_broadcast = is_broadcast;
  }
  if (lhs_dims.empty()) lhs_dims = rhs_dims = {1};
  *lhs = plan->Plain(node, *lhs).Reshaped(lhs_dims);
  *rhs = plan->Plain(node, *rhs).Reshaped(rhs_dims);
}

/*! \brief How the operands are quantized; a missing scale is 1. */
struct Scales {
  Quantization lhs, rhs;
  /*! \brief The contribution of the zero points to the result. */
  double shift{0};
  /*! \brief The first operand's zero point, where it is to be taken off before the op. */
  double zero_point{0};
  /*! \brief The scales' product, by which the difference is to be multiplied then. */
  double factor{1};
};

/*!
 * \brief The operands' scales are arguments. There are no zero points: of a sum they are a shift,
 * and that of another op's first operand is taken off before.
 */
Scales ReadScales(const NodeReader& node, PlanBuilder* plan, dnnl::algorithm algorithm) {
  const auto unimplemented = [](const char* reason) {
    throw dnnl::error(dnnl_unimplemented, reason);
  };
  Scales scales;
  if (!node.IsQuantized()) return scales;
  double largest_shift = 0, smallest_scale = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 2; ++i) {
    if (!node.IsDequantized(i)) continue;
    const NodeReader dequantize = node.Dequantization(i);
    const Tensor value = plan->Input(node, i);
    if (value.dtype() == dnnl::memory::data_type::s32) unimplemented("no binary has int32");
    Quantization& quantization = i == 0 ? scales.lhs : scales.rhs;
    quantization = Quantization::Read(dequantize, plan, value.dims());
    const auto [scale, zero_point] = quantization.Values(dequantize, plan);
    largest_shift = std::max(largest_shift, std::abs(scale * zero_point));
    smallest_scale = std::min(smallest_scale, scale);
    scales.factor *= scale;
    if (algorithm == dnnl::algorithm::binary_add || algorithm == dnnl::algorithm::binary_sub) {
      const bool is_subtracted = i == 1 && algorithm == dnnl::algorithm::binary_sub;
      scales.shift -= (is_subtracted ? -1 : 1) * scale * zero_point;
      quantization.zero_point = {};
    } else if (i == 0) {
      scales.zero_point = zero_point;
    } else if (zero_point != 0) {
      unimplemented("only sums have a second operand with a zero point");
    }
  }
  if (node.NumPostOps() > 0) {
    const NodeReader last = node.PostOp(node.NumPostOps() - 1);
    if (last.OpName() == "qnn.quantize") {
      const auto destination = Quantization::Read(last, plan, node.OutDims());
      smallest_scale = std::min(smallest_scale, destination.Values(last, plan).first);
    }
  }
  const bool is_product = algorithm == dnnl::algorithm::binary_mul;
  if (scales.zero_point != 0 && node.IsDequantized(1) && !is_product) {
    unimplemented("the second operand is quantized");
  }
  // The finest step is then 2^10 times what float32 rounds the shift by.
  if (largest_shift > 0x1p14 * smallest_scale) unimplemented("the scales are too far apart");
  return scales;
}

/*! \brief Whether oneDNN, which stores 8 elements of 2 bytes at once, would exceed each block. */
bool HasShortBlocks(const dnnl::memory::desc& md) {
  return md.get_inner_blks() == Dims{4} && dnnl::memory::data_type_size(md.get_data_type()) == 2;
}

/*! \brief Emit a binary op with what is fused to it, and return its result. */
Tensor EmitBinary(const NodeReader& node, PlanBuilder* plan, dnnl::algorithm algorithm, Tensor lhs,
                  Tensor rhs, const FusedOps& fused) {
  if (HasShortBlocks(lhs.md)) lhs = plan->Plain(node, lhs);
  const auto describe = [&]() {
    const auto dst = lhs.dtype() == node.OutType() ? lhs.md : WithType(lhs.md, node.OutType());
    return Binary::primitive_desc(plan->engine(), algorithm, lhs.md, AnyDesc(rhs.md), dst,
                                  fused.attr);
  };
  Binary::primitive_desc desc = describe();
  // With post-ops, whose operands have the dims of the result, the ops are lowered one by one.
  if (IsReference(desc) && node.NumPostOps() == 0) {
    CollapseDims(node, plan, &lhs, &rhs);
    desc = describe();
    if (IsReference(desc) && rhs.dims() != lhs.dims()) {
      rhs = Broadcast(node, plan, rhs, lhs.dims());
      desc = describe();
    }
  }
  const Tensor dst = plan->NewTensor(desc.dst_desc());
  plan->Emit(node, desc, Binary(desc),
             fused.AddTo({{DNNL_ARG_SRC_0, lhs},
                          {DNNL_ARG_SRC_1, plan->InLayout(node, rhs, desc.src1_desc())},
                          {DNNL_ARG_DST, dst}},
                         node, plan, desc),
             fused.names);
  plan->OfferInPlace(DNNL_ARG_SRC_0);
  return dst;
}

}  // namespace

Types InferBinary(const NodeReader& node, const Types& inputs) {
  const dnnl::algorithm algorithm = FindOp(node.OpName())->algorithm;
  CheckReal(node, inputs,
            algorithm == dnnl::algorithm::binary_max || algorithm == dnnl::algorithm::binary_min);
  CheckFlags(node, {"is_bias"});
  const Dims& lhs = inputs[0].shape;
  if (node.OpName() == "nn.bias_add") {
    const int axis = node.Axis("axis", 1, static_cast<int>(lhs.size()));
    CheckVector(node, inputs, 1, lhs[axis]);
    return {inputs[0]};
  }
  return {{BroadcastDims(node, "shapes", lhs, inputs[1].shape), inputs[0].dtype}};
}

void LowerBinary(const NodeReader& node, PlanBuilder* plan) {
  if (LowerBinaryRows(node, plan)) return;
  const Dims dims = node.RootDims();
  dnnl::algorithm algorithm = FindOp(node.OpName())->algorithm;
  const bool is_matrix = node.NumPostOps() > 0 && HasOneElementPerChannel(dims);
  const auto view = [&](const Tensor& value) {
    return is_matrix ? AsMatrix(node, plan, value) : value;
  };
  auto [lhs, rhs] = AlignedOperands(node, plan);
  // oneDNN broadcasts its second source only. A - b is then -(b - A), to the last bit.
  const bool swaps = IsCommutative(algorithm) || algorithm == dnnl::algorithm::binary_sub;
  if (lhs.dims() != dims && (!swaps || rhs.dims() != dims)) {
    if (node.IsQuantized()) throw dnnl::error(dnnl_unimplemented, "the operands are broadcast");
    lhs = Broadcast(node, plan, lhs, dims);
  }
  const bool is_swapped = lhs.dims() != dims;
  Scales scales = ReadScales(node, plan, algorithm);
  if (is_swapped) {
    std::swap(lhs, rhs);
    std::swap(scales.lhs, scales.rhs);
  }
  const bool is_negated = is_swapped && algorithm == dnnl::algorithm::binary_sub;
  lhs = view(lhs);
  rhs = view(rhs);
  // Of two operands of the result's shape the one in a blocked layout decides: what follows likes
  // it better.
  if (rhs.dims() == lhs.dims() && IsPlain(lhs.md) && !IsPlain(rhs.md)) {
    lhs = plan->InLayout(node, lhs,
                         lhs.dtype() == rhs.dtype() ? rhs.md : WithType(rhs.md, lhs.dtype()));
  }
  ResultView result{-1, view, is_negated, false, 1, scales.shift};
  if (scales.zero_point != 0) {
    if (is_swapped) throw dnnl::error(dnnl_unimplemented, "what has a zero point is broadcast");
    result.scale = scales.factor;
    result.root = {algorithm, rhs};
    algorithm = dnnl::algorithm::binary_sub;
    rhs = plan->NewNumber(scales.zero_point, lhs.dims().size());
    scales.lhs = scales.rhs = {};
  }
  FusedOps fused = FusePostOps(node, plan, result);
  fused.Quantize(scales.lhs, DNNL_ARG_SRC_0, 0);
  fused.Quantize(scales.rhs, DNNL_ARG_SRC_1, 0);
  const Tensor dst = EmitBinary(node, plan, algorithm, lhs, rhs, fused);
  plan->SetOutput(node, plan->Reshaped(node, dst, dims));
}

}  // namespace tvm::runtime::contrib::dnnl_backend
