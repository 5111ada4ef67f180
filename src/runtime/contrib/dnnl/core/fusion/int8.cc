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
 * \file src/runtime/contrib/dnnl/core/fusion/int8.cc
 * \brief Multiplications of 8-bit numbers: what oneDNN's kernels accept, and where they are right.
 */
#include "int8.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

using Type = dnnl::memory::data_type;

[[noreturn]] void Refuse(const char* reason) { throw dnnl::error(dnnl_unimplemented, reason); }

/*! \brief The elements of a constant in 8 bits. */
std::vector<int> Elements(const NodeReader& node, PlanBuilder* plan, const Tensor& value) {
  if (value.dtype() == Type::u8) {
    const auto values = plan->ValuesOf<uint8_t>(node, value);
    return {values.begin(), values.end()};
  }
  const auto values = plan->ValuesOf<int8_t>(node, value);
  return {values.begin(), values.end()};
}

/*! \brief How far the numbers of a zero point are from zero at most. */
double LargestZeroPoint(const NodeReader& node, PlanBuilder* plan, const Tensor& zero_point) {
  if (!zero_point.defined()) return 0;
  // The result is one of the elements.
  if (!plan->IsConstant(zero_point)) return 255;
  double largest = 0;
  for (int32_t value : plan->ValuesOf<int32_t>(node, zero_point)) {
    largest = std::max(largest, std::abs(static_cast<double>(value)));
  }
  return largest;
}

/*! \brief Refuse sums of so many products that 32 bits may not hold them: they would wrap around.
 */
void CheckSums(const NodeReader& node, PlanBuilder* plan, const Tensor& src,
               const Int8Operands& operands) {
  constexpr double kLimit = 0x1p31;
  const Dims dims = operands.weights.dims();
  const Dims matrix(operands.kernel.is_convolution ? dims.begin() : dims.end() - 2, dims.end());
  const double products = static_cast<double>(NumElements(matrix)) / operands.kernel.channels;
  // oneDNN adds what an unsigned source and no zero points would give, and takes off the rest then.
  const double of_src = 255 + std::max(src.dtype() == Type::s8 ? 128. : 0.,
                                       LargestZeroPoint(node, plan, operands.src.zero_point));
  const double zero_point = LargestZeroPoint(node, plan, operands.weights_are.zero_point);
  const auto exceeds = [&](double weight) {
    return products * of_src * (weight + zero_point) >= kLimit;
  };
  if (!exceeds(128)) return;
  const char* const reason = "sums of products may exceed 32 bits";
  if (!plan->IsConstant(operands.weights)) Refuse(reason);
  double largest = 0;
  for (int element : Elements(node, plan, operands.weights)) {
    largest = std::max(largest, std::abs(static_cast<double>(element)));
  }
  if (exceeds(largest)) Refuse(reason);
}

/*! \brief The elements less a number, as signed ones. */
Tensor Recentred(const NodeReader& node, PlanBuilder* plan, const Tensor& value, int by) {
  const PlanBuilder::Mark mark = plan->Here();
  Quantization from;
  from.zero_point = plan->NewConstant(by);
  const Tensor result = Requantized(node, plan, value, Type::s8, &from, nullptr);
  if (plan->IsConstant(value)) plan->RunNow(mark);
  return result;
}

/*! \brief Make the second operand signed and, where that is possible, its zero point zero. */
void MakeSigned(const NodeReader& node, PlanBuilder* plan, Int8Operands* operands) {
  constexpr int kHalf = 128;
  const bool is_unsigned = operands->weights.dtype() == Type::u8;
  const Tensor zero_point = operands->weights_are.zero_point;
  if (!zero_point.defined() && !is_unsigned) return;
  if (zero_point.defined() &&
      (!plan->IsConstant(zero_point) || Quantization::IsAlongAxis(zero_point))) {
    if (is_unsigned) Refuse("the zero point of unsigned weights is not a single constant");
    return;
  }
  const int zero = zero_point.defined() ? plan->ValuesOf<int32_t>(node, zero_point)[0] : 0;
  int by = is_unsigned ? kHalf : 0;
  if (plan->IsConstant(operands->weights)) {
    const std::vector<int> elements = Elements(node, plan, operands->weights);
    const auto [low, high] = std::minmax_element(elements.begin(), elements.end());
    const auto [smallest, largest] = RangeOf(Type::s8);
    if (*low - zero >= smallest && *high - zero <= largest) by = zero;
  }
  if (by != 0) operands->weights = Recentred(node, plan, operands->weights, by);
  operands->weights_are.zero_point = zero == by ? Tensor{} : plan->NewConstant(zero - by);
}

/*!
 * \brief The sum of the weights of each output channel; empty where the weights are not known now,
 * or of several matrices.
 */
std::vector<double> SumsOfChannels(const NodeReader& node, PlanBuilder* plan,
                                   const Int8Operands& operands) {
  const Tensor& weights = operands.weights;
  const Int8Weights& kernel = operands.kernel;
  const Dims dims = weights.dims();
  const bool is_one = kernel.is_convolution || std::all_of(dims.begin(), dims.end() - 2,
                                                           [](int64_t size) { return size == 1; });
  if (!is_one || dims[kernel.axis] != kernel.channels || !plan->IsConstant(weights)) return {};
  const int64_t inner = NumElements(Dims(dims.begin() + kernel.axis + 1, dims.end()));
  const std::vector<int> elements = Elements(node, plan, weights);
  std::vector<double> sums(kernel.channels);
  for (size_t i = 0; i < elements.size(); ++i) sums[i / inner % kernel.channels] += elements[i];
  return sums;
}

/*! \brief In float32, without becoming infinite. */
float ToFloat(double value) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  return static_cast<float>(std::min(std::max(value, -kLargest), kLargest));
}

/*! \brief Give the primitive the scales and zero points of its operands, see `FuseInt8`. */
void FuseScales(const NodeReader& node, PlanBuilder* plan, const Int8Operands& operands, int mask,
                bool is_padded, FusedOps* fused) {
  const Int8Weights& kernel = operands.kernel;
  if (!fused->head) {
    fused->Quantize(operands.src, DNNL_ARG_SRC, 0);
    fused->Quantize(operands.weights_are, DNNL_ARG_WEIGHTS, mask);
    return;
  }
  const auto [src_scale, src_zero] = operands.src.Values(node, plan);
  const auto [scale, shift] = *fused->head;
  Quantization src, weights = operands.weights_are;
  src.zero_point = operands.src.zero_point;
  std::vector<float> scales = plan->ValuesOf<float>(node, weights.scale);
  std::vector<float> bias(kernel.channels);
  if (fused->bias.defined()) bias = plan->ValuesOf<float>(node, fused->bias);
  std::vector<double> sums;
  const auto scale_of = [&](int64_t channel) {
    return src_scale * scales[scales.size() == 1 ? 0 : channel];
  };
  if (src.HasZeroPoint() && !is_padded && !weights.HasZeroPoint()) {
    sums = SumsOfChannels(node, plan, operands);
    double largest = 0;
    for (size_t i = 0; i < sums.size(); ++i) {
      largest = std::max(largest, std::abs(scale_of(i) * src_zero * sums[i]));
    }
    // The finest step is then 2^10 times what float32 rounds the bias by.
    if (!sums.empty() && largest <= 0x1p14 * fused->finest_step) {
      src.zero_point = {};
    } else {
      sums.clear();
    }
  }
  sums.resize(kernel.channels);
  bool has_bias = false;
  for (int64_t i = 0; i < kernel.channels; ++i) {
    const double added = bias[i] - scale_of(i) * src_zero * sums[i];
    bias[i] = ToFloat(added * scale + shift);
    has_bias = has_bias || bias[i] != 0;
  }
  for (float& each : scales) each = ToFloat(src_scale * each * scale);
  fused->bias = has_bias ? plan->NewConstant(bias) : Tensor{};
  weights.scale = plan->NewConstant(scales);
  fused->Quantize(src, DNNL_ARG_SRC, 0);
  fused->Quantize(weights, DNNL_ARG_WEIGHTS, mask);
}

}  // namespace

bool SumsIn16Bits() {
  const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto has = [isa](dnnl::cpu_isa wanted, dnnl::cpu_isa without) {
    const unsigned bits = static_cast<unsigned>(wanted) & ~static_cast<unsigned>(without);
    return (isa & bits) == bits;
  };
  const bool is_x86 = (isa & static_cast<unsigned>(dnnl::cpu_isa::sse41)) != 0;
  return is_x86 && !has(dnnl::cpu_isa::avx2_vnni, dnnl::cpu_isa::avx2) &&
         !has(dnnl::cpu_isa::avx512_core_vnni, dnnl::cpu_isa::avx512_core);
}

const char* WhyInexact(const NodeReader& node, PlanBuilder* plan, const Tensor& src,
                       const Tensor& weights, bool is_convolution) {
  if (!SumsIn16Bits()) return nullptr;
  // For source elements below zero oneDNN's convolutions halve the weights, and lose a bit.
  if (is_convolution && src.dtype() == Type::s8) {
    return "this CPU's int8 kernels would halve the weights";
  }
  constexpr int kLargest = 64;  // 2 * 255 * 64 < 2^15
  const char* const reason = "this CPU's int8 kernels would saturate";
  if (!plan->IsConstant(weights)) return reason;
  const std::vector<int> elements = Elements(node, plan, weights);
  const auto [low, high] = std::minmax_element(elements.begin(), elements.end());
  return *low < -kLargest || *high > kLargest ? reason : nullptr;
}

FusedOps FuseInt8(const NodeReader& node, PlanBuilder* plan, ResultView view,
                  const std::optional<Int8Operands>& operands, int mask, bool is_padded) {
  view.has_destination_scale = true;
  view.absorbs_linear =
      operands && operands->src.IsConstant(*plan) && plan->IsConstant(operands->weights_are.scale);
  FusedOps fused = FusePostOps(node, plan, view);
  if (operands) FuseScales(node, plan, *operands, mask, is_padded, &fused);
  return fused;
}

std::optional<Int8Operands> ReadInt8(const NodeReader& node, PlanBuilder* plan,
                                     const Int8Weights& kernel) {
  if (!node.IsQuantized()) return {};
  const bool is_src = node.IsDequantized(0), is_weights = node.IsDequantized(1);
  if (!is_src && !is_weights && node.OutType() == Type::f32) return {};
  if (!is_src || !is_weights) Refuse("only one operand is quantized, or only the result");
  const Tensor src = plan->Input(node, 0), weights = plan->Input(node, 1);
  Int8Operands operands;
  operands.kernel = kernel;
  operands.src = Quantization::Read(node.Dequantization(0), plan, src.dims());
  operands.weights = weights;
  operands.weights_are = Quantization::Read(node.Dequantization(1), plan, weights.dims());
  return CheckInt8(node, plan, src, std::move(operands));
}

Int8Operands CheckInt8(const NodeReader& node, PlanBuilder* plan, const Tensor& src,
                       Int8Operands operands) {
  const Int8Weights& kernel = operands.kernel;
  if (!IsByte(src.dtype()) || !IsByte(operands.weights.dtype())) {
    Refuse("an operand has more than 8 bits");
  }
  if (!operands.src.IsPerTensor()) Refuse("the source does not have a single scale");
  MakeSigned(node, plan, &operands);
  if (Quantization::IsAlongAxis(operands.weights_are.scale) &&
      (operands.weights_are.axis != kernel.axis ||
       NumElements(operands.weights_are.scale.dims()) != kernel.channels)) {
    Refuse("the scales of the weights are not along the axis of the output channels");
  }
  if (Quantization::IsAlongAxis(operands.weights_are.zero_point) ||
      (kernel.is_convolution && operands.weights_are.HasZeroPoint())) {
    Refuse("the weights have zero points");
  }
  if (!kernel.is_exact) {
    const char* const reason = WhyInexact(node, plan, src, operands.weights, kernel.is_convolution);
    if (reason != nullptr) Refuse(reason);
  }
  CheckSums(node, plan, src, operands);
  return operands;
}

}  // namespace tvm::runtime::contrib::dnnl_backend
