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
 * \file src/runtime/contrib/dnnl/core/ops/matmul_tiles.cc
 * \brief Multiplications of rows in bfloat16 by constants, by our kernel for AMX.
 */
#include "matmul_tiles.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../kernels/tile_matmul.h"
#include "../op_table.h"
#include "matmul_operands.h"
#include "rows.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

using Type = dnnl::memory::data_type;

/*! \brief The post-ops of a kernel, with their operands, of which one may share the result's
 * memory. */
struct Epilogue {
  std::vector<TilePostOp> post_ops;
  std::vector<std::string> names;
  PlanBuilder::Args operands;
  /*! \brief The operand of the result's shape and type, or 0. */
  int residual{0};
};

/*! \brief The kind of a post-op; nothing where the kernel lacks it. */
std::optional<TilePostOp::Kind> TileKindOf(const NodeReader& op) {
  const OpSpec& spec = *FindOp(op.OpName());
  switch (spec.algorithm) {
    case dnnl::algorithm::binary_add:
      return TilePostOp::kAdd;
    case dnnl::algorithm::binary_mul:
      return TilePostOp::kMultiply;
    case dnnl::algorithm::eltwise_relu:
      if (spec.AlphaBeta(op).first != 0) return {};
      return TilePostOp::kRelu;
    case dnnl::algorithm::eltwise_gelu_erf:
      return TilePostOp::kGeluErf;
    case dnnl::algorithm::eltwise_gelu_tanh:
      return TilePostOp::kGeluTanh;
    case dnnl::algorithm::eltwise_swish:
      if (spec.AlphaBeta(op).first != 1) return {};
      return TilePostOp::kSwish;
    default:
      return {};
  }
}

/*! \brief Whether a post-op is a reshape that keeps the columns. */
bool IsView(const NodeReader& op, int64_t columns) {
  return FindOp(op.OpName())->family.as_post_op == PostOp::kView && op.OutDims().back() == columns;
}

/*! \brief Add the second operand of a post-op; false where the kernel does not read it. */
bool AddOperand(const NodeReader& node, const NodeReader& op, PlanBuilder* plan, TilePostOp* own,
                Epilogue* epilogue) {
  const Dims root = node.RootDims();
  Tensor value = plan->Input(node, op.Operand());
  const bool is_float = value.dtype() == Type::f32 || value.dtype() == Type::bf16;
  own->is_row = NumElements(value.dims()) == root.back();
  const bool is_whole = NumElements(value.dims()) == NumElements(root);
  if (!is_float || own->is_row == is_whole || value.dims().back() != root.back()) return false;
  value = own->is_row ? PlainFloats(node, plan, value)
                      : plan->Plain(node, FlattenRows(node, plan, value));
  own->is_bfloat16 = value.dtype() == Type::bf16;
  // After source, weights and result.
  const auto number = static_cast<int>(epilogue->operands.size());
  own->operand = 3 + number;
  const int arg = DNNL_ARG_ATTR_MULTIPLE_POST_OP(number) | DNNL_ARG_SRC_1;
  epilogue->operands.emplace_back(arg, value);
  if (is_whole && value.dtype() == node.OutType()) epilogue->residual = arg;
  return true;
}

std::optional<Epilogue> ReadEpilogue(const NodeReader& node, PlanBuilder* plan) {
  constexpr size_t kMostOperands = 4;
  Epilogue result;
  for (int i = 0; i < node.NumPostOps(); ++i) {
    const NodeReader op = node.PostOp(i);
    if (IsView(op, node.RootDims().back())) continue;
    const std::optional<TilePostOp::Kind> kind = TileKindOf(op);
    if (!kind) return {};
    TilePostOp own{*kind};
    const bool is_binary = own.kind == TilePostOp::kAdd || own.kind == TilePostOp::kMultiply;
    if (is_binary != (op.Operand() >= 0)) return {};
    if (is_binary && !AddOperand(node, op, plan, &own, &result)) return {};
    result.names.push_back(
        op.Get<bool>("is_bias", false) ? "bias" : AlgorithmName(FindOp(op.OpName())->algorithm));
    result.post_ops.push_back(own);
  }
  if (result.operands.size() > kMostOperands) return {};
  return result;
}

/*!
 * \brief Whether the kernel is faster than oneDNN's.
 *
 * With weights that are in no cache of the core, in µs on two cores, by oneDNN and by the kernel:
 *   128x512 by 512x2048   208  143      256x768 by 768x768   185  145
 *   128x2048 by 2048x512  220  150      512x512 by 512x2048  715  574
 *   128x512 by 512x512     50   36      512x768 by 768x3072 1460 1380
 * Of weights in the caches, and of thousands of rows, oneDNN's code is up to a tenth faster.
 */
bool IsFaster(int64_t rows, int64_t inner, int64_t columns) {
  constexpr int64_t kMostRows = 512, kFewestWeights = 1 << 16;
  return rows >= TileMatMul::kBlock && rows <= kMostRows && inner % TileMatMul::kPanel == 0 &&
         columns % TileMatMul::kPanel == 0 && inner * columns >= kFewestWeights;
}

}  // namespace

bool LowerTiles(const NodeReader& node, PlanBuilder* plan, const Tensor& weights) {
  // With open dimensions, plans for all numbers of rows share a layout of weights.
  if (!HasTileMatMul() || plan->shares_weights()) return false;
  const Tensor data = plan->Input(node, 0);
  const Dims rows = AsRows(data.dims());
  const int64_t columns = weights.dims()[0];
  const Type type = node.OutType();
  const bool is_bfloat16 = data.dtype() == Type::bf16 && weights.dtype() == Type::bf16 &&
                           (type == Type::bf16 || type == Type::f32);
  if (!is_bfloat16 || !IsFaster(rows[0], rows[1], columns)) return false;
  const PlanBuilder::Mark mark = plan->Here();
  const std::optional<Epilogue> epilogue = ReadEpilogue(node, plan);
  if (!epilogue) {
    plan->BackTo(mark);
    return false;
  }
  const Tensor src = plan->Plain(node, FlattenRows(node, plan, data));
  const dnnl::memory::desc panels({rows[1], columns}, Type::bf16,
                                  dnnl::memory::format_tag::BA16a32b2a);
  const Tensor packed = plan->Weights(node, Transposed(weights), panels);
  const Tensor dst = plan->NewTensor(PlainDesc({rows[0], columns}, type));
  PlanBuilder::Args args = {{DNNL_ARG_SRC, src}, {DNNL_ARG_WEIGHTS, packed}, {DNNL_ARG_DST, dst}};
  args.insert(args.end(), epilogue->operands.begin(), epilogue->operands.end());
  const auto kernel = [=, post_ops = epilogue->post_ops](bool writes_bfloat16) -> HostKernel {
    const TileMatMul product = {rows[0], rows[1], columns, writes_bfloat16, post_ops};
    return [product](void* const* addresses) {
      MultiplyByPanels(product, static_cast<const uint16_t*>(addresses[0]),
                       static_cast<const uint16_t*>(addresses[1]), addresses, addresses[2]);
    };
  };
  plan->EmitKernel(node, "matmul", kernel(type == Type::bf16), args, epilogue->names);
  plan->SetVariant("AMX, weights packed once", MatMulFlops(node, *plan));
  if (epilogue->residual != 0) plan->OfferInPlace(epilogue->residual);
  if (type == Type::f32) {
    plan->OfferKernel([kernel, md = dst.md](const dnnl::memory::desc& other) -> HostKernel {
      return other == WithType(md, Type::bf16) ? kernel(true) : nullptr;
    });
  }
  plan->SetOutput(node, plan->Reshaped(node, dst, node.OutDims()));
  return true;
}

}  // namespace tvm::runtime::contrib::dnnl_backend
