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
 * \file src/runtime/contrib/dnnl/core/ops/changing_sizes.cc
 * \brief Kernels of ours for the plans of few calls and for few elements: softmax, elementwise ops
 *        and concatenation.
 */
#include "changing_sizes.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "../exec/parallel.h"
#include "../kernels/float_rows.h"
#include "../op_table.h"
#include "loops.h"
#include "nan_rows.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

constexpr auto kF32 = dnnl::memory::data_type::f32;

bool IsArithmetic(dnnl::algorithm algorithm) {
  return algorithm == dnnl::algorithm::binary_add || algorithm == dnnl::algorithm::binary_sub ||
         algorithm == dnnl::algorithm::binary_mul || algorithm == dnnl::algorithm::binary_div;
}

/*! \brief What an algorithm for which `IsArithmetic` holds does. */
Arithmetic ArithmeticOf(dnnl::algorithm algorithm) {
  switch (algorithm) {
    case dnnl::algorithm::binary_add:
      return Arithmetic::kAdd;
    case dnnl::algorithm::binary_sub:
      return Arithmetic::kSubtract;
    case dnnl::algorithm::binary_mul:
      return Arithmetic::kMultiply;
    default:
      return Arithmetic::kDivide;
  }
}

bool IsUnary(dnnl::algorithm algorithm) {
  return algorithm == dnnl::algorithm::eltwise_linear ||
         algorithm == dnnl::algorithm::eltwise_swish;
}

/*! \brief Whether there is a kernel for the op. */
bool HasElementwiseKernel(const NodeReader& op) {
  const OpSpec& spec = *FindOp(op.OpName());
  // A bias is along an axis of its own.
  return IsArithmetic(spec.algorithm) ? op.OpName() != "nn.bias_add"
                                      : IsUnary(spec.algorithm) && !spec.is_reciprocal;
}

/*! \brief Whether a kernel is to compute a result: a primitive would not be worth its call. */
bool IsForKernel(const PlanBuilder& plan, const Dims& dims) {
  // To call a primitive takes oneDNN one to two microseconds.
  constexpr int64_t kFewElements = 4096;
  return plan.sizes_change() || (plan.shares_weights() && NumElements(dims) <= kFewElements);
}

/*! \brief Whether a kernel is to compute a node of these operands, post-ops aside. */
bool IsInFloat32(const NodeReader& node, const PlanBuilder& plan) {
  bool is_float =
      IsForKernel(plan, node.OutDims()) && !node.IsQuantized() && node.OutType() == kF32;
  for (int i = 0; i < node.NumRootInputs(); ++i) {
    is_float = is_float && plan.Input(node, i).dtype() == kF32;
  }
  return is_float;
}

/*! \brief Whether a kernel is to compute a node of these operands. */
bool IsFloatAlone(const NodeReader& node, const PlanBuilder& plan) {
  return node.NumPostOps() == 0 && IsInFloat32(node, plan);
}

/*! \brief The same of an elementwise op. Throws where it is to be lowered without its post-ops. */
bool IsElementwiseAlone(const NodeReader& node, const PlanBuilder& plan) {
  if (!HasElementwiseKernel(node) || !IsInFloat32(node, plan)) return false;
  // Blocks would have to be reordered.
  for (int i = 0; i < node.NumRootInputs() && !plan.sizes_change(); ++i) {
    if (!plan.Input(node, i).md.get_inner_blks().empty()) return false;
  }
  if (node.NumPostOps() == 0) return true;
  for (int i = 0; i < node.NumPostOps(); ++i) {
    if (plan.sizes_change() || !HasElementwiseKernel(node.PostOp(i))) return false;
  }
  throw dnnl::error(dnnl_unimplemented, "kernels of few elements have no post-ops");
}

}  // namespace

bool LowerSoftmaxRows(const NodeReader& node, PlanBuilder* plan) {
  const Dims dims = node.OutDims();
  const int last = static_cast<int>(dims.size()) - 1;
  const bool is_softmax = FindOp(node.OpName())->algorithm == dnnl::algorithm::softmax_accurate &&
                          node.Axis("axis", -1, last + 1) == last;
  if (!is_softmax || !IsFloatAlone(node, *plan)) return false;
  const ZeroRows zeros = ZeroRowsOf(node.OpName());
  const Tensor src = plan->Plain(node, plan->Input(node, 0));
  const Tensor dst = plan->NewTensor(PlainDesc(dims, kF32));
  const int64_t columns = dims.back(), rows = NumElements(dims) / columns;
  // A thread is worth some 10 us.
  const int64_t grain = std::max<int64_t>(1, 8192 / columns);
  const auto run = [=](void* const* addresses) {
    const auto* from = static_cast<const float*>(addresses[0]);
    auto* to = static_cast<float*>(addresses[1]);
    ParallelFor(rows, grain, [&](int64_t first, int64_t end) {
      for (int64_t row = first; row < end; ++row) {
        SoftmaxOfRow(from + row * columns, to + row * columns, columns, zeros);
      }
    });
  };
  plan->EmitKernel(node, "softmax", run, {{DNNL_ARG_SRC, src}, {DNNL_ARG_DST, dst}});
  // The scores tell which rows are masked.
  if (zeros != ZeroRows::kMasked) plan->OfferInPlace(DNNL_ARG_SRC);
  plan->SetOutput(node, dst);
  return true;
}

bool LowerBinaryRows(const NodeReader& node, PlanBuilder* plan) {
  const dnnl::algorithm algorithm = FindOp(node.OpName())->algorithm;
  if (!IsArithmetic(algorithm) || !IsElementwiseAlone(node, *plan)) return false;
  const Dims dims = node.OutDims();
  const Tensor a = WithStrides(node, plan, plan->Input(node, 0));
  const Tensor b = WithStrides(node, plan, plan->Input(node, 1));
  const Tensor dst = plan->NewTensor(PlainDesc(dims, kF32));
  const Loops<2> loops(dims, {BroadcastStrides(a, dims), BroadcastStrides(b, dims)});
  const auto compute = [op = ArithmeticOf(algorithm)](auto... part) {
    ComputeElements(op, part...);
  };
  plan->EmitKernel(node, "binary", PairsKernel<float>(loops, compute),
                   {{DNNL_ARG_SRC_0, a}, {DNNL_ARG_SRC_1, b}, {DNNL_ARG_DST, dst}});
  plan->OfferInPlace(DNNL_ARG_SRC_0);
  plan->SetOutput(node, dst);
  return true;
}

bool LowerUnaryRows(const NodeReader& node, PlanBuilder* plan) {
  const OpSpec& spec = *FindOp(node.OpName());
  if (!IsUnary(spec.algorithm) || !IsElementwiseAlone(node, *plan)) return false;
  const auto [alpha, beta] = spec.AlphaBeta(node);
  const Dims dims = node.OutDims();
  const Tensor src = WithStrides(node, plan, plan->Input(node, 0));
  const Tensor dst = plan->NewTensor(PlainDesc(dims, kF32));
  const Loops<1> loops(dims, {BroadcastStrides(src, dims)});
  const bool is_linear = spec.algorithm == dnnl::algorithm::eltwise_linear;
  const auto run = [=, alpha = alpha, beta = beta](void* const* addresses) {
    const auto* from = static_cast<const float*>(addresses[0]);
    auto* to = static_cast<float*>(addresses[1]);
    const int64_t stride = loops.strides()[0];
    loops.Run([&](const Loops<1>::Offsets& at, int64_t begin, int64_t count) {
      if (is_linear) return Linear(from + at[0], stride, alpha, beta, to + begin, count);
      Swish(from + at[0], stride, alpha, to + begin, count);
    });
  };
  plan->EmitKernel(node, "eltwise", run, {{DNNL_ARG_SRC, src}, {DNNL_ARG_DST, dst}});
  plan->OfferInPlace(DNNL_ARG_SRC);
  plan->SetOutput(node, dst);
  return true;
}

Tensor ConcatenateRows(const NodeReader& node, PlanBuilder* plan, const std::vector<Tensor>& parts,
                       int axis) {
  Dims dims = parts[0].dims();
  for (size_t i = 1; i < parts.size(); ++i) dims[axis] += parts[i].dims()[axis];
  if (!IsForKernel(*plan, dims) || parts.size() >= Step::kMaxKernelArgs) return {};
  const Tensor dst = plan->NewTensor(PlainDesc(dims, parts[0].dtype()));
  const Dims strides = dst.md.get_strides();
  // Of each part: how to get through it and the result, and where it begins there, in elements.
  std::vector<std::pair<Loops<2>, int64_t>> copies;
  PlanBuilder::Args args;
  int64_t begin = 0;
  for (const Tensor& given : parts) {
    const Tensor part = WithStrides(node, plan, given);
    const Loops<2> loops(part.dims(), {BroadcastStrides(part, part.dims()), strides});
    copies.emplace_back(loops, begin * strides[axis]);
    args.emplace_back(DNNL_ARG_MULTIPLE_SRC + static_cast<int>(args.size()), part);
    begin += part.dims()[axis];
  }
  args.emplace_back(DNNL_ARG_DST, dst);
  const auto bytes = static_cast<int64_t>(dnnl::memory::data_type_size(dst.dtype()));
  const auto run = [copies, bytes](void* const* addresses) {
    auto* const to = static_cast<char*>(addresses[copies.size()]);
    for (size_t k = 0; k < copies.size(); ++k) {
      const auto* const from = static_cast<const char*>(addresses[k]);
      const auto& [loops, first] = copies[k];
      const auto [stride, to_stride] = loops.strides();
      const bool is_dense = stride == 1 && to_stride == 1;
      loops.Run([&, first = first, stride = stride, to_stride = to_stride](
                    const Loops<2>::Offsets& at, int64_t, int64_t count) {
        const int64_t size = is_dense ? count * bytes : bytes;
        for (int64_t i = 0; i < (is_dense ? 1 : count); ++i) {
          std::memcpy(to + (first + at[1] + i * to_stride) * bytes,
                      from + (at[0] + i * stride) * bytes, size);
        }
      });
    }
  };
  plan->EmitKernel(node, "concat", run, args);
  return dst;
}

}  // namespace tvm::runtime::contrib::dnnl_backend
