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
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "../exec/parallel.h"
#include "../op_table.h"
#include "exp.h"
#include "functions.h"
#include "loops.h"
#include "nan_rows.h"
// The last one.
#include "cpu_clones.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

constexpr auto kF32 = dnnl::memory::data_type::f32;

DNNL_FOR_CPUS float LargestOf(const float* row, int64_t count) {
  constexpr int kLanes = 16;
  float lanes[kLanes];
  std::fill(lanes, lanes + kLanes, -std::numeric_limits<float>::infinity());
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int k = 0; k < kLanes; ++k) lanes[k] = row[i + k] > lanes[k] ? row[i + k] : lanes[k];
  }
  float largest = *std::max_element(lanes, lanes + kLanes);
  for (; i < count; ++i) largest = row[i] > largest ? row[i] : largest;
  return largest;
}

DNNL_FOR_CPUS void Shift(const float* src, float shift, float* dst, int64_t count) {
  for (int64_t i = 0; i < count; ++i) dst[i] = src[i] - shift;
}

DNNL_FOR_CPUS float SumOf(const float* row, int64_t count) {
  constexpr int kLanes = 16;
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int k = 0; k < kLanes; ++k) lanes[k] += row[i + k];
  }
  float sum = 0;
  for (float lane : lanes) sum += lane;
  for (; i < count; ++i) sum += row[i];
  return sum;
}

DNNL_FOR_CPUS void Scale(float factor, float* row, int64_t count) {
  for (int64_t i = 0; i < count; ++i) row[i] *= factor;
}

/*! \brief The softmax of a row; `zeros` says which rows that have none are zero. */
void SoftmaxOfRow(const float* src, float* dst, int64_t count, ZeroRows zeros) {
  const float largest = LargestOf(src, count);
  // Comparisons with NaN are false: a row of NaN alone looks like one of -inf alone.
  const bool is_masked =
      largest == -std::numeric_limits<float>::infinity() && std::isinf(SumOf(src, count));
  Shift(src, largest, dst, count);
  Exp(dst, dst, count);
  const float sum = SumOf(dst, count);
  if (!std::isnan(sum)) return Scale(1.f / sum, dst, count);
  const bool is_zero = zeros == ZeroRows::kAll || (zeros == ZeroRows::kMasked && is_masked);
  std::fill(dst, dst + count, is_zero ? 0.f : std::numeric_limits<float>::quiet_NaN());
}

/*! \brief Compute `op` of elements that are a stride of 0, 1 or more apart. */
template <typename Op>
DNNL_INLINE void Compute(const float* a, int64_t a_stride, const float* b, int64_t b_stride,
                         float* dst, int64_t count, const Op& op) {
  if (a_stride == 1 && b_stride == 1) {
    for (int64_t i = 0; i < count; ++i) dst[i] = op(a[i], b[i]);
  } else if (a_stride == 1 && b_stride == 0) {
    for (int64_t i = 0; i < count; ++i) dst[i] = op(a[i], *b);
  } else {
    for (int64_t i = 0; i < count; ++i) dst[i] = op(a[i * a_stride], b[i * b_stride]);
  }
}

DNNL_FOR_CPUS void ComputeRow(dnnl::algorithm algorithm, const float* a, int64_t a_stride,
                              const float* b, int64_t b_stride, float* dst, int64_t count) {
  switch (algorithm) {
    case dnnl::algorithm::binary_add:
      return Compute(a, a_stride, b, b_stride, dst, count, [](float x, float y) { return x + y; });
    case dnnl::algorithm::binary_sub:
      return Compute(a, a_stride, b, b_stride, dst, count, [](float x, float y) { return x - y; });
    case dnnl::algorithm::binary_mul:
      return Compute(a, a_stride, b, b_stride, dst, count, [](float x, float y) { return x * y; });
    default:
      return Compute(a, a_stride, b, b_stride, dst, count, [](float x, float y) { return x / y; });
  }
}

bool IsArithmetic(dnnl::algorithm algorithm) {
  return algorithm == dnnl::algorithm::binary_add || algorithm == dnnl::algorithm::binary_sub ||
         algorithm == dnnl::algorithm::binary_mul || algorithm == dnnl::algorithm::binary_div;
}

/*! \brief Compute `op` of elements that are a stride apart. */
template <typename Op>
DNNL_INLINE void Compute(const float* src, int64_t stride, float* dst, int64_t count,
                         const Op& op) {
  if (stride == 1) {
    for (int64_t i = 0; i < count; ++i) dst[i] = op(src[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) dst[i] = op(src[i * stride]);
  }
}

DNNL_FOR_CPUS void Linear(const float* src, int64_t stride, float alpha, float beta, float* dst,
                          int64_t count) {
  Compute(src, stride, dst, count, [=](float x) { return alpha * x + beta; });
}

/*! \brief Not a lambda, which might not become a part of a function for several CPUs. */
struct SwishOf {
  float alpha;
  DNNL_INLINE float operator()(float x) const { return x / (1.f + ExpOf(-alpha * x)); }
};

DNNL_FOR_CPUS void Swish(const float* src, int64_t stride, float alpha, float* dst, int64_t count) {
  Compute(src, stride, dst, count, SwishOf{alpha});
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
  const auto run = [=](void* const* addresses) {
    const auto* lhs = static_cast<const float*>(addresses[0]);
    const auto* rhs = static_cast<const float*>(addresses[1]);
    auto* result = static_cast<float*>(addresses[2]);
    loops.Run([&](const Loops<2>::Offsets& at, int64_t begin, int64_t count) {
      ComputeRow(algorithm, lhs + at[0], loops.strides()[0], rhs + at[1], loops.strides()[1],
                 result + begin, count);
    });
  };
  plan->EmitKernel(node, "binary", run,
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
