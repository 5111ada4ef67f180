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
 * \file src/runtime/contrib/dnnl/core/fusion/post_op_chain.cc
 * \brief Writes what is done to a primitive's result in as few post-ops as may be.
 */
#include "post_op_chain.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

namespace tvm::runtime::contrib::dnnl_backend {

PostOpChain::Step PostOpChain::Linear(double scale, double shift) {
  return {Step::kLinear, dnnl::algorithm::eltwise_linear, scale, shift};
}

void PostOpChain::AppendLinear(double scale, double shift) {
  if (scale == 1 && shift == 0) return;
  auto at = steps_.end();
  if (at != steps_.begin() && std::prev(at)->kind == Step::kSum) {
    --at;
    at->alpha *= scale;
  }
  if (at == steps_.begin() || std::prev(at)->kind != Step::kLinear) {
    steps_.insert(at, Linear(scale, shift));
    return;
  }
  Step& before = *--at;
  const double shifted = before.beta * scale;
  before.alpha *= scale;
  before.beta = shifted + shift;
  // The result of a dequantize after a quantize, except for rounding.
  constexpr double kRounding = 1e-14;
  if (std::abs(before.alpha - 1) < kRounding &&
      std::abs(before.beta) <= kRounding * std::abs(shifted)) {
    steps_.erase(at);
  }
}

void PostOpChain::AppendEltwise(dnnl::algorithm algorithm, double alpha, double beta) {
  const bool is_relu = algorithm == dnnl::algorithm::eltwise_relu && alpha == 0;
  if (is_relu && Narrow(0, std::numeric_limits<double>::infinity())) return;
  if (algorithm == dnnl::algorithm::eltwise_clip && Narrow(alpha, beta)) return;
  steps_.push_back({Step::kEltwise, algorithm, alpha, beta});
}

void PostOpChain::AppendBinary(dnnl::algorithm algorithm, const Tensor& operand, bool is_residual) {
  const bool is_sum = in_place_ && is_residual;
  steps_.push_back({is_sum ? Step::kSum : Step::kBinary, algorithm, 1, 0, operand, is_residual});
}

void PostOpChain::AppendPReLU(const Tensor& slopes) {
  steps_.push_back({Step::kPReLU, dnnl::algorithm::undef, 1, 0, slopes});
}

LinearFunction PostOpChain::TakeHead() {
  if (steps_.empty() || steps_.front().kind != Step::kLinear) return {};
  const LinearFunction head{steps_.front().alpha, steps_.front().beta};
  steps_.erase(steps_.begin());
  return head;
}

void PostOpChain::Prepend(double scale, double shift) {
  if (scale != 1 || shift != 0) steps_.insert(steps_.begin(), Linear(scale, shift));
}

dnnl::post_ops PostOpChain::Finish(int64_t result_size, PlanBuilder::Args* operands,
                                   int* residual) const {
  dnnl::post_ops ops;
  for (const Step& step : steps_) {
    const auto alpha = static_cast<float>(step.alpha), beta = static_cast<float>(step.beta);
    if (step.kind == Step::kSum) {
      ops.append_sum(alpha, 0, step.operand.dtype());
    } else if (step.kind == Step::kBinary) {
      const int arg = DNNL_ARG_ATTR_MULTIPLE_POST_OP(ops.len()) | DNNL_ARG_SRC_1;
      // An operand of the result's shape has the result's layout, which oneDNN has yet to choose.
      const bool is_small = NumElements(step.operand.dims()) < result_size;
      ops.append_binary(step.algorithm, is_small ? step.operand.md : AnyDesc(step.operand.md));
      operands->emplace_back(arg, step.operand);
      if (step.is_residual) *residual = arg;
    } else if (step.kind == Step::kPReLU) {
      const Dims dims = step.operand.dims();
      int mask = 0;
      for (size_t i = 0; i < dims.size(); ++i) mask |= dims[i] == 1 ? 0 : 1 << i;
      operands->emplace_back(DNNL_ARG_ATTR_MULTIPLE_POST_OP(ops.len()) | DNNL_ARG_WEIGHTS,
                             step.operand);
      ops.append_prelu(mask);
    } else {
      ops.append_eltwise(step.algorithm, alpha, beta);
    }
  }
  return ops;
}

bool PostOpChain::Narrow(double low, double high) {
  auto clip = steps_.rbegin();
  Step linear = Linear(1, 0);
  if (clip != steps_.rend() && clip->kind == Step::kLinear) linear = *clip++;
  if (clip == steps_.rend() || clip->algorithm != dnnl::algorithm::eltwise_clip ||
      linear.alpha <= 0) {
    return false;
  }
  const auto inside = [&](double bound) {
    const double value = linear.alpha * bound + linear.beta;
    const double wanted = std::min(std::max(value, low), high);
    // A bound that stays is not rounded.
    return wanted == value ? bound : (wanted - linear.beta) / linear.alpha;
  };
  clip->alpha = inside(clip->alpha);
  clip->beta = inside(clip->beta);
  return true;
}

}  // namespace tvm::runtime::contrib::dnnl_backend
