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
 * \file src/runtime/contrib/dnnl/core/ops/few_rows.cc
 * \brief Matrix multiplications of few rows, such as the queries of one token, of any size.
 */
#include "../kernels/few_rows.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../exec/parallel.h"
#include "changing_sizes.h"
#include "loops.h"
#include "matmul_operands.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief With more rows oneDNN's code, once it is generated, is much faster. */
constexpr int64_t kFewRowsLimit = 16;
/*! \brief The factor that a node multiplies its product by; nothing where it does more. */
std::optional<float> ScaleOf(const NodeReader& node, PlanBuilder* plan) {
  if (node.NumPostOps() == 0) return 1.f;
  const NodeReader post_op = node.PostOp(0);
  if (node.NumPostOps() > 1 || post_op.OpName() != "multiply" || post_op.Operand() < 0) return {};
  const Tensor factor = plan->Input(node, post_op.Operand());
  const bool is_factor = plan->IsConstant(factor) && NumElements(factor.dims()) == 1 &&
                         factor.dtype() == dnnl::memory::data_type::f32;
  if (!is_factor) return {};
  return plan->ValuesOf<float>(node, factor)[0];
}

bool IsFloat(const Tensor& value) { return value.dtype() == dnnl::memory::data_type::f32; }

}  // namespace

bool LowerFewRows(const NodeReader& node, PlanBuilder* plan) {
  const MatMulKind kind = MatMulKind::Read(node);
  if (!plan->sizes_change() || !kind.is_batch || node.IsQuantized()) return false;
  const Dims dims = node.RootDims();
  const int rank = static_cast<int>(dims.size());
  Tensor a = plan->Input(node, 0), b = plan->Input(node, 1);
  if (dims[rank - 2] > kFewRowsLimit || !IsFloat(a) || !IsFloat(b)) return false;
  if (node.OutType() != dnnl::memory::data_type::f32) return false;
  const std::optional<float> scale = ScaleOf(node, plan);
  if (!scale) {
    throw dnnl::error(dnnl_unimplemented, "a kernel of changing sizes has a factor alone fused");
  }
  a = WithStrides(node, plan, kind.transpose_a ? Transposed(a) : a);
  if (a.md.get_strides().back() != 1) a = plan->Plain(node, a);
  b = WithStrides(node, plan, kind.transpose_b ? Transposed(b) : b);
  const auto stride = [](const Tensor& value, int from_end) {
    return value.md.get_strides()[value.dims().size() - from_end];
  };
  const bool is_transposed = stride(b, 2) == 1 && b.dims().back() > 1;
  if (!is_transposed && stride(b, 1) != 1) b = plan->Plain(node, b);
  const Tensor c = plan->NewTensor(PlainDesc(dims, node.OutType()));
  const FewRows sizes{dims[rank - 2], dims[rank - 1], a.dims().back(),
                      stride(a, 2),   dims[rank - 1], is_transposed ? stride(b, 1) : stride(b, 2),
                      *scale};
  // The strides of the batches.
  Dims batches = dims;
  batches[rank - 2] = batches[rank - 1] = 1;
  const int64_t matrices = NumElements(batches);
  const Dims a_batch = BroadcastStrides(a, dims), b_batch = BroadcastStrides(b, dims);
  std::vector<std::pair<int64_t, int64_t>> begins;
  for (int64_t i = 0; i < matrices; ++i) {
    int64_t a_begin = 0, b_begin = 0, rest = i;
    for (int axis = rank - 3; axis >= 0; --axis) {
      a_begin += rest % dims[axis] * a_batch[axis];
      b_begin += rest % dims[axis] * b_batch[axis];
      rest /= dims[axis];
    }
    begins.emplace_back(a_begin, b_begin);
  }
  const int64_t parts = (sizes.columns + kFewRowsColumns - 1) / kFewRowsColumns;
  // A thread is worth so many multiplications.
  const int64_t work = sizes.rows * sizes.sum * std::min(kFewRowsColumns, sizes.columns);
  const int64_t grain = std::max<int64_t>(1, 100000 / std::max<int64_t>(1, work));
  const auto run = [=, begins = std::move(begins)](void* const* addresses) {
    const auto* src = static_cast<const float*>(addresses[0]);
    const auto* weights = static_cast<const float*>(addresses[1]);
    auto* dst = static_cast<float*>(addresses[2]);
    ParallelFor(matrices * parts, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t matrix = i / parts, first = i % parts * kFewRowsColumns;
        MultiplyFewRows(src + begins[matrix].first, weights + begins[matrix].second,
                        dst + matrix * sizes.rows * sizes.columns, sizes, is_transposed, first,
                        std::min(first + kFewRowsColumns, sizes.columns));
      }
    });
  };
  plan->EmitKernel(node, "matmul", run,
                   {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}});
  plan->SetVariant("few rows, of any size",
                   2. * static_cast<double>(matrices * sizes.rows * sizes.columns * sizes.sum));
  plan->SetOutput(node, plan->Reshaped(node, c, node.OutDims()));
  return true;
}

}  // namespace tvm::runtime::contrib::dnnl_backend
