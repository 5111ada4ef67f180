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
 * \file src/runtime/contrib/dnnl/core/ops/matmul_operands.cc
 * \brief The operands of a matrix multiplication as oneDNN sees them.
 */
#include "matmul_operands.h"

#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "../exec/threads.h"
#include "../faults.h"
#include "../fusion/second_operand.h"
#include "../op_table.h"
#include "dynamic_quantize.h"
#include "rows.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief With leading dimensions of 1, so that there are four. */
Dims AsBatches(Dims dims) {
  dims.insert(dims.begin(), 4 - dims.size(), 1);
  return dims;
}

/*!
 * \brief Matrices of a batch whose rows lie between each other, (A, B, M, K), in one of the orders
 * that oneDNN reads as they are; undefined where they lie otherwise.
 */
Tensor Interleaved(const Tensor& value, const std::vector<dnnl::memory::format_tag>& orders) {
  const bool is_strided = value.md.get_format_kind() == dnnl::memory::format_kind::blocked &&
                          value.md.get_inner_blks().empty();
  if (!is_strided || value.dims().size() > 4) return {};
  const Dims dims = AsBatches(value.dims());
  Dims strides = value.md.get_strides();
  strides.insert(strides.begin(), dims.size() - strides.size(), 0);
  for (const auto order : orders) {
    const dnnl::memory::desc md(dims, value.dtype(), order);
    const Dims wanted = md.get_strides();
    bool is_same = true;
    for (size_t i = 0; i < dims.size(); ++i) {
      is_same = is_same && (dims[i] == 1 || strides[i] == wanted[i]);
    }
    if (is_same) return {value.buffer, md};
  }
  return {};
}

/*! \brief Whether an operand has as many matrices as the result, or one for all of them. */
bool HasAllOrOne(const Tensor& operand, const Dims& out_dims) {
  const int64_t matrices = AsMatrices(operand.dims())[0];
  return matrices == 1 || matrices == AsMatrices(out_dims)[0];
}

/*!
 * \brief Quantize the first operand as the model runs.
 * \param in_float32 Whether both are read as the float32 numbers that their integers stand for.
 */
void QuantizeOperands(const NodeReader& node, PlanBuilder* plan, const Int8Weights& kernel,
                      bool in_float32, MatMulOperands* operands) {
  const DynamicallyQuantized src = QuantizeDynamically(node, plan, operands->src);
  const Quantization weights = DynamicWeights(node, plan, kernel.axis);
  if (in_float32) {
    operands->src = Dequantized(node, plan, src);
    const bool is_constant = plan->IsConstant(operands->weights) && weights.IsConstant(*plan);
    const PlanBuilder::Mark mark = plan->Here();
    operands->weights = Requantized(node, plan, operands->weights, dnnl::memory::data_type::f32,
                                    &weights, /*to=*/nullptr);
    if (is_constant) plan->RunNow(mark);
    return;
  }
  operands->src = src.values;
  operands->int8 =
      CheckInt8(node, plan, src.values, {src.quantization, operands->weights, weights, kernel});
  operands->weights = operands->int8->weights;
}

/*! \brief The inputs as they are given, the second one as int8 kernels want it. */
MatMulOperands ReadInputs(const NodeReader& node, PlanBuilder* plan, const MatMulKind& kind,
                          bool in_float32) {
  MatMulOperands operands;
  operands.src = plan->Input(node, 0);
  operands.weights = plan->Input(node, 1);
  // Batches that broadcast along some dimensions only are left to oneDNN, which does so.
  operands.is_batch = kind.is_batch && HasAllOrOne(operands.src, node.RootDims()) &&
                      HasAllOrOne(operands.weights, node.RootDims());
  const int last = static_cast<int>(operands.weights.dims().size()) - 1;
  const Int8Weights kernel = {kind.transpose_b ? last - 1 : last, node.RootDims().back(),
                              /*is_convolution=*/false};
  if (kind.is_dynamic) {
    QuantizeOperands(node, plan, kernel, in_float32, &operands);
  } else {
    operands.int8 = ReadInt8(node, plan, kernel);
    if (operands.int8) operands.weights = operands.int8->weights;
  }
  return operands;
}

}  // namespace

MatMulKind MatMulKind::Read(const NodeReader& node) {
  // By name, not by a field of the rows: all that tells the three ops apart is read here.
  const bool is_dense = node.OpName() == "nn.dense";
  const bool is_dynamic = node.OpName() == "dnnl.dynamic_quantized_dense";
  const bool is_batch = node.OpName() == "nn.batch_matmul";
  return {is_dense, is_batch, is_dynamic,
          !is_dense && !is_dynamic && node.Get<bool>("transpose_a", false),
          is_dense || is_dynamic || node.Get<bool>("transpose_b", is_batch)};
}

Dims MatMulOperands::View(const Dims& dims) const {
  return is_interleaved ? AsBatches(dims)
         : is_flat      ? AsRows(dims)
         : is_batch     ? AsMatrices(dims)
                        : dims;
}

dnnl::memory::desc MatMulOperands::SrcDesc() const {
  // If there are more threads than matrices, oneDNN 3.2.0 splits long sums of a transposed source
  // among threads on AVX-512, and mixes up the partial sums of the matrices. 3.2.1 does not.
  constexpr int64_t kLongSum = 2048;
  const Dims dims = src.md.get_dims(), strides = src.md.get_strides();
  const int64_t matrices = NumElements(dst_dims) / (*(dst_dims.end() - 2) * dst_dims.back());
  const bool is_transposed = strides.back() != 1 && *(strides.end() - 2) == 1;
  const bool is_wrong = LibraryVersionNumber() == 30200 && is_transposed && matrices > 1 &&
                        dims.back() >= kLongSum && CurrentNumThreads() > matrices;
  return is_wrong ? PlainDesc(dims, src.md.get_data_type()) : src.md;
}

Tensor Transposed(const Tensor& value) {
  std::vector<int> axes(value.dims().size());
  std::iota(axes.begin(), axes.end(), 0);
  std::swap(axes[axes.size() - 1], axes[axes.size() - 2]);
  return value.Permuted(axes);
}

Dims AsMatrices(Dims dims) {
  if (dims.size() < 3) dims.insert(dims.begin(), 3 - dims.size(), 1);
  const int64_t matrix = dims[dims.size() - 1] * dims[dims.size() - 2];
  return {NumElements(dims) / matrix, dims[dims.size() - 2], dims.back()};
}

MatMulOperands ReadOperands(const NodeReader& node, PlanBuilder* plan, bool in_float32) {
  const MatMulKind kind = MatMulKind::Read(node);
  const Dims out_dims = node.RootDims();
  MatMulOperands operands = ReadInputs(node, plan, kind, in_float32);
  // Rows of any number of dimensions are rows of one matrix, unless they are its columns.
  operands.is_flat = !kind.is_batch && !(kind.transpose_a && out_dims.size() > 2);
  operands.dst_dims = operands.View(out_dims);
  if (operands.is_flat) operands.src = FlattenRows(node, plan, operands.src);
  for (Tensor* operand : {&operands.src, &operands.weights}) {
    if (operands.is_batch) *operand = plan->Reshaped(node, *operand, AsMatrices(operand->dims()));
    *operand = AlignRank(node, plan, *operand, operands.dst_dims.size());
  }
  if (kind.transpose_a) operands.src = Transposed(operands.src);
  if (kind.transpose_b) operands.weights = Transposed(operands.weights);
  return operands;
}

std::optional<MatMulOperands> ReadInterleaved(const NodeReader& node, PlanBuilder* plan) {
  using Order = dnnl::memory::format_tag;
  const MatMulKind kind = MatMulKind::Read(node);
  const Tensor weights = plan->Input(node, 1);
  const bool is_copied = !IsPlain(plan->Input(node, 0).md) || !IsPlain(weights.md);
  const Dims out_dims = node.RootDims();
  if (!kind.is_batch || !is_copied || plan->IsConstant(weights) || out_dims.size() > 4) return {};
  // A reshape between the post-ops may divide the batch in another way than the matrices have it.
  for (int i = 0; i < node.NumPostOps(); ++i) {
    if (FindOp(node.PostOp(i).OpName())->family.as_post_op == PostOp::kView) return {};
  }
  MatMulOperands operands = ReadInputs(node, plan, kind, /*in_float32=*/false);
  operands.is_interleaved = true;
  operands.dst_dims = operands.View(out_dims);
  // oneDNN reads the second operand by columns, too, and the first if it is float32.
  const std::vector<Order> rows = {Order::abcd, Order::acbd};
  const std::vector<Order> all = {Order::abcd, Order::acbd, Order::abdc, Order::adbc};
  operands.src = Interleaved(kind.transpose_a ? Transposed(operands.src) : operands.src,
                             operands.int8 ? rows : all);
  operands.weights =
      Interleaved(kind.transpose_b ? Transposed(operands.weights) : operands.weights, all);
  if (!operands.src.defined() || !operands.weights.defined()) return {};
  return operands;
}

bool IsSlowProduct(const dnnl::primitive_desc_base& desc) {
  const Dims rows = desc.query_md(dnnl::query::src_md).get_dims();
  return rows[0] >= 8 && rows[1] > 2048 && std::string(desc.impl_info_str()) == "brgemm:avx2";
}

}  // namespace tvm::runtime::contrib::dnnl_backend
