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
 * \file src/runtime/contrib/dnnl/core/ops/dynamic_quantize.cc
 * \brief Quantizes data as the model runs.
 */
#include "dynamic_quantize.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>
#include <vector>

#include "../exec/parallel.h"
#include "../kernels/quantize.h"
#include "../op_table.h"
#include "types.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief A thread reads so many elements at least. */
constexpr int64_t kGrain = 16384;
/*! \brief The most parts that the smallest and the largest element are computed of. */
constexpr int64_t kMaxParts = 64;

/*! \brief Extend the range of zero to all elements. */
void RangeOfAll(const float* src, int64_t count, float* low, float* high) {
  const int64_t parts = std::clamp<int64_t>(count / kGrain, 1, kMaxParts);
  const int64_t size = (count + parts - 1) / parts;
  float lows[kMaxParts] = {}, highs[kMaxParts] = {};
  ParallelFor(parts, 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t begin = std::min(count, i * size), end = std::min(count, begin + size);
      ExtendRange(src + begin, end - begin, &lows[i], &highs[i]);
    }
  });
  *low = *std::min_element(lows, lows + parts);
  *high = *std::max_element(highs, highs + parts);
}

/*!
 * \brief Compute the scale and zero point of ONNX's DynamicQuantizeLinear, in its order.
 * \param epsilon The smallest scale, as in PyTorch. If 0, that of zeros is 1, as in onnxruntime.
 */
void Parameters(const float* src, int64_t count, float epsilon, float* scale, int32_t* zero_point) {
  float low = 0, high = 0;
  RangeOfAll(src, count, &low, &high);
  *scale = low == high && epsilon == 0 ? 1.f : std::max((high - low) / 255.f, epsilon);
  const float zero = std::clamp(0.f - low / *scale, 0.f, 255.f);
  // Infinite elements make it NaN.
  *zero_point = zero == zero ? static_cast<int32_t>(std::nearbyint(zero)) : 0;
}

/*! \brief Quantize as ONNX's DynamicQuantizeLinear. */
void Run(const float* src, int64_t count, float epsilon, uint8_t* dst, float* scale,
         int32_t* zero_point) {
  Parameters(src, count, epsilon, scale, zero_point);
  ParallelFor(count, kGrain, [&](int64_t begin, int64_t end) {
    QuantizeToUint8(src + begin, end - begin, *scale, *zero_point, dst + begin);
  });
}

/*! \brief Quantize and dequantize. */
void RunBoth(const float* src, int64_t count, float* dst, float* scale) {
  int32_t zero_point = 0;
  Parameters(src, count, /*epsilon=*/0, scale, &zero_point);
  ParallelFor(count, kGrain, [&](int64_t begin, int64_t end) {
    FakeQuantizeToUint8(src + begin, end - begin, *scale, zero_point, dst + begin);
  });
}

/*! \brief The elements of a layout, those of its padding included; 0 if it has gaps. */
int64_t NumDense(const dnnl::memory::desc& md) {
  int64_t count = 1;
  for (int64_t size : md.get_padded_dims()) count *= size;
  return md.get_size() == count * sizeof(float) ? count : 0;
}

/*! \brief The result of `dnnl.dynamic_fake_quantize`, and that of `dnnl.dynamic_quantize_scale`. */
std::vector<Tensor> FakeQuantized(const NodeReader& node, PlanBuilder* plan) {
  // Every range contains zero, and zero stays zero: the padding of blocks changes nothing.
  const Tensor given = plan->Input(node, 0);
  const Tensor src = NumDense(given.md) > 0 ? given : plan->Plain(node, given);
  return plan->Derived(src, "dynamic_fake_quantize", [&]() {
    const Tensor values = plan->NewTensor(src.md);
    const Tensor scale = plan->NewTensor(PlainDesc({1}, dnnl::memory::data_type::f32));
    const auto run = [count = NumDense(src.md)](void* const* addresses) {
      RunBoth(static_cast<const float*>(addresses[0]), count, static_cast<float*>(addresses[1]),
              static_cast<float*>(addresses[2]));
    };
    plan->EmitKernel(node, "dynamic_fake_quantize", run,
                     {{DNNL_ARG_SRC, src}, {DNNL_ARG_DST, values}, {DNNL_ARG_DST_1, scale}});
    return std::vector<Tensor>{values, scale};
  });
}

void CheckDynamicallyQuantized(const NodeReader& node, const Types& inputs) {
  CORE_CHECK(inputs[0].dtype == kFloat32)
      << node.Where() << ": data is " << ToText(inputs[0]) << ", expected: float32";
  CheckMinRank(node, inputs, 0, 1);
}

}  // namespace

Types InferDynamicFakeQuantize(const NodeReader& node, const Types& inputs) {
  CheckDynamicallyQuantized(node, inputs);
  return inputs;
}

Types InferDynamicQuantizeScale(const NodeReader& node, const Types& inputs) {
  CheckDynamicallyQuantized(node, inputs);
  return {{{1}, kFloat32}};
}

void LowerDynamicFakeQuantize(const NodeReader& node, PlanBuilder* plan) {
  plan->SetOutput(node, FakeQuantized(node, plan)[0]);
}

void LowerDynamicQuantizeScale(const NodeReader& node, PlanBuilder* plan) {
  plan->SetOutput(node, FakeQuantized(node, plan)[1]);
}

DynamicallyQuantized QuantizeDynamically(const NodeReader& node, PlanBuilder* plan,
                                         const Tensor& value) {
  using Type = dnnl::memory::data_type;
  const Tensor src = plan->Plain(node, value);
  const auto epsilon = static_cast<float>(node.Get<double>("epsilon", 0));
  std::ostringstream kind;
  kind << "dynamic_quantize_" << std::hexfloat << epsilon;
  const std::vector<Tensor> results = plan->Derived(src, kind.str(), [&]() {
    const Tensor values = plan->NewTensor(PlainDesc(src.dims(), Type::u8));
    const Tensor scale = plan->NewTensor(PlainDesc({1}, Type::f32));
    const Tensor zero_point = plan->NewTensor(PlainDesc({1}, Type::s32));
    const auto run = [count = NumElements(src.dims()), epsilon](void* const* addresses) {
      Run(static_cast<const float*>(addresses[0]), count, epsilon,
          static_cast<uint8_t*>(addresses[1]), static_cast<float*>(addresses[2]),
          static_cast<int32_t*>(addresses[3]));
    };
    plan->EmitKernel(node, "dynamic_quantize", run,
                     {{DNNL_ARG_SRC, src},
                      {DNNL_ARG_DST, values},
                      {DNNL_ARG_DST_1, scale},
                      {DNNL_ARG_DST_2, zero_point}});
    return std::vector<Tensor>{values, scale, zero_point};
  });
  Quantization quantization;
  quantization.scale = results[1];
  quantization.zero_point = results[2];
  return {results[0], quantization};
}

Tensor Dequantized(const NodeReader& node, PlanBuilder* plan, const DynamicallyQuantized& value) {
  const Tensor dst = plan->NewTensor(PlainDesc(value.values.dims(), dnnl::memory::data_type::f32));
  const auto run = [count = NumElements(dst.dims())](void* const* addresses) {
    const auto* src = static_cast<const uint8_t*>(addresses[0]);
    const float scale = *static_cast<const float*>(addresses[1]);
    const int32_t zero_point = *static_cast<const int32_t*>(addresses[2]);
    auto* to = static_cast<float*>(addresses[3]);
    ParallelFor(count, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) to[i] = scale * (src[i] - zero_point);
    });
  };
  plan->EmitKernel(node, "dequantize", run,
                   {{DNNL_ARG_SRC, value.values},
                    {DNNL_ARG_SRC_1, value.quantization.scale},
                    {DNNL_ARG_SRC_2, value.quantization.zero_point},
                    {DNNL_ARG_DST, dst}});
  return dst;
}

Quantization DynamicWeights(const NodeReader& node, PlanBuilder* plan, int axis) {
  const auto as_vector = [&](int input) {
    const Tensor value = plan->Plain(node, plan->Input(node, input));
    return value.Reshaped({NumElements(value.dims())});
  };
  Quantization weights;
  weights.axis = axis;
  weights.scale = as_vector(2);
  weights.zero_point = Quantization::WithoutZero(node, plan, as_vector(3));
  return weights;
}

Types InferDynamicQuantizedDense(const NodeReader& node, const Types& inputs) {
  CheckDynamicallyQuantized(node, inputs);
  CORE_CHECK(IsByte(inputs[1].dtype))
      << node.Where() << ": weight is " << ToText(inputs[1]) << ", expected: int8 or uint8";
  CheckRank(node, inputs, 1, 2);
  Dims dims = inputs[0].shape;
  const Dims& weight = inputs[1].shape;
  CORE_CHECK(dims.back() == weight[1])
      << node.Where() << ": rows of " << dims.back() << " elements do not fit a weight of shape "
      << ToText(weight);
  const int64_t scales = NumElements(inputs[2].shape);
  CORE_CHECK(inputs[2].dtype == kFloat32 && (scales == 1 || scales == weight[0]))
      << node.Where() << ": the scale of the weight is " << ToText(inputs[2])
      << ", expected: float32 of one element or " << weight[0];
  CORE_CHECK(inputs[3].dtype == kInt32 && NumElements(inputs[3].shape) == 1)
      << node.Where() << ": the zero point of the weight is " << ToText(inputs[3])
      << ", expected: int32 of one element";
  const auto epsilon = node.Get<double>("epsilon", 0);
  CORE_CHECK(epsilon >= 0 && epsilon <= std::numeric_limits<float>::max())
      << node.Where() << ": epsilon is " << epsilon << ", expected: 0 or a positive number";
  dims.back() = weight[0];
  return {{dims, kFloat32}};
}

}  // namespace tvm::runtime::contrib::dnnl_backend
