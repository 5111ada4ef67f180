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
 * \file src/runtime/contrib/dnnl/core/ops/conv_int8.cc
 * \brief Convolutions of 8-bit integers by our kernels.
 */
#include <numeric>
#include <optional>
#include <vector>

#include "../kernels/int8_conv.h"
#include "conv.h"
#include "int8_epilogue.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

using Type = dnnl::memory::data_type;

Int8ConvShape ShapeOf(const ConvTensors& conv) {
  const Dims src = conv.src.dims(), weights = conv.weights.dims();
  Int8ConvShape shape{src[0], src[1], conv.dst_dims[1], {}};
  const size_t spatial = src.size() - 2;
  for (size_t i = 0; i < spatial; ++i) {
    const Window& window = conv.window;
    shape.axes[3 - spatial + i] = {src[i + 2],        conv.dst_dims[i + 2],   weights[i + 2],
                                   window.strides[i], window.dilation[i] + 1, window.pad_begin[i]};
  }
  return shape;
}

/*! \brief The weights as the kernel packs them: (D, H, W, I, O), row-major. */
Tensor InRuns(const NodeReader& node, PlanBuilder* plan, const Tensor& weights) {
  std::vector<int> axes(weights.dims().size() - 2);
  std::iota(axes.begin(), axes.end(), 2);
  axes.insert(axes.end(), {1, 0});
  return plan->Plain(node, weights.Permuted(axes));
}

}  // namespace

bool HasInt8Convs() { return HasInt8Matrices() && SumsIn16Bits(); }

bool EmitInt8Conv(const NodeReader& node, PlanBuilder* plan, const ConvTensors& conv,
                  double flops) {
  if (!conv.int8 || conv.weights.dims().size() != conv.dst_dims.size()) return false;
  const Int8Operands& int8 = *conv.int8;
  const bool is_constant = int8.src.IsConstant(*plan) && int8.weights_are.IsConstant(*plan) &&
                           plan->IsConstant(int8.weights);
  if (!is_constant) return false;
  if (WhyInexact(node, plan, conv.src, int8.weights, /*is_convolution=*/true) == nullptr) {
    return false;
  }
  const auto [src_scale, src_zero] = int8.src.Values(node, plan);
  const auto [smallest, largest] = RangeOf(conv.src.dtype());
  if (src_zero < smallest || src_zero > largest) return false;
  const int64_t axis = static_cast<int64_t>(node.RootDims().size()) - conv.dst_axes[1];
  const std::optional<Int8Epilogue> epilogue = Int8Epilogue::Read(node, plan, axis);
  if (!epilogue) return false;

  Int8ConvShape shape = ShapeOf(conv);
  std::vector<float> scales = plan->ValuesOf<float>(node, int8.weights_are.scale);
  const Int8Finish finish = epilogue->Finish(node, src_scale, &scales);
  shape.is_channels_first = IsPlain(conv.src.md);
  const Tensor src = shape.is_channels_first
                         ? conv.src
                         : plan->InLayout(node, conv.src, ChannelsLast(conv.src.md));
  const Tensor dst = plan->NewTensor(
      ChannelsLast(PlainDesc(conv.dst_dims, finish.is_rounded ? node.OutType() : Type::f32)));
  const Int8Source from = {nullptr, src.dtype() == Type::s8, 0, static_cast<int32_t>(src_zero)};
  const Tensor packed =
      PackedInt8(node, plan, InRuns(node, plan, conv.weights), shape.matrix(), shape.runs());
  const auto run = [from, shape, finish](void* const* addresses) {
    Int8Source src = from;
    Int8Finish own = finish;
    src.values = addresses[0];
    own.scales = static_cast<const float*>(addresses[3]);
    own.bias = static_cast<const float*>(addresses[4]);
    ConvInt8(src, shape, static_cast<const int8_t*>(addresses[1]), own,
             static_cast<int16_t*>(addresses[5]), addresses[2]);
  };
  plan->EmitKernel(
      node, "convolution", run,
      {{DNNL_ARG_SRC, src},
       {DNNL_ARG_WEIGHTS, packed},
       {DNNL_ARG_DST, dst},
       {DNNL_ARG_SRC_2, OfColumns(plan, shape.matrix(), scales)},
       {DNNL_ARG_BIAS, OfColumns(plan, shape.matrix(), epilogue->ScaledBias())},
       {DNNL_ARG_SCRATCHPAD, plan->NewTensor(PlainDesc({2 * shape.workspace()}, Type::s8))}});
  plan->SetVariant("products in 16 bits", flops);
  plan->SetOutput(node, dst.Permuted(InversePermutation(conv.dst_axes)));
  return true;
}

}  // namespace tvm::runtime::contrib::dnnl_backend
