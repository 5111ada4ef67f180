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
 * \file src/runtime/contrib/dnnl/ops/conv.cc
 * \brief Convolutions and transposed convolutions over one to three spatial dimensions.
 */
#include <tvm/runtime/logging.h>

#include <string>
#include <vector>

#include "../dnnl_op_table.h"
#include "../dnnl_post_ops.h"
#include "window.h"

namespace tvm {
namespace runtime {
namespace contrib {
namespace dnnl_backend {

namespace {

/*! \brief The operands of a convolution in oneDNN's order of dimensions. */
struct ConvTensors {
  Tensor src;
  /*! \brief (O, I, ...), or (G, O/G, I/G, ...) with groups. */
  Tensor weights;
  Dims dst_dims;
  /*! \brief From the result in Relay's order to oneDNN's. */
  std::vector<int> dst_axes;
  Window window;
  /*! \brief Whether a signal is treated as an image of one row. */
  bool is_row{false};
};

/*!
 * \brief The weights of a convolution with groups as (G, O/G, I/G, ...).
 *
 * Relay has two forms of depthwise weights: (O, 1, ...), and (C, O/C, ...) with the multiplier in
 * the place of I, which TFLite's models use.
 */
Tensor GroupWeights(const NodeReader& node, PlanBuilder* plan, const Tensor& weights,
                    int64_t groups, int64_t out_channels) {
  const Dims dims = weights.dims();
  const bool is_multiplier_form = dims[0] == groups && dims[0] * dims[1] == out_channels;
  ICHECK((dims[0] == out_channels || is_multiplier_form) && out_channels % groups == 0)
      << node.Where() << ": weights of shape " << ToText(dims) << " do not fit " << groups
      << " groups and " << out_channels << " output channels";
  Dims grouped = {groups, out_channels / groups, is_multiplier_form ? 1 : dims[1]};
  grouped.insert(grouped.end(), dims.begin() + 2, dims.end());
  return plan->Reshaped(node, weights, grouped);
}

/*! \brief The weights of a transposed convolution, (O/G, I, ...), as (G, O/G, I/G, ...). */
Tensor GroupTransposedWeights(const NodeReader& node, PlanBuilder* plan, const Tensor& weights,
                              int64_t groups, int64_t out_channels) {
  const Dims dims = weights.dims();
  ICHECK(dims[0] * groups == out_channels && dims[1] % groups == 0)
      << node.Where() << ": weights of shape " << ToText(dims) << " do not fit " << groups
      << " groups and " << out_channels << " output channels";
  Dims split = {dims[0], groups, dims[1] / groups};
  split.insert(split.end(), dims.begin() + 2, dims.end());
  std::vector<int> axes = {1, 0, 2};
  for (size_t i = 3; i < split.size(); ++i) axes.push_back(static_cast<int>(i));
  return plan->Reshaped(node, weights, split).Permuted(axes);
}

/*! \brief Treat a signal as an image of one row. */
void MakeRow(const NodeReader& node, PlanBuilder* plan, ConvTensors* conv) {
  conv->is_row = true;
  conv->src = plan->Reshaped(node, conv->src, AsRow(conv->src.dims()));
  conv->weights = plan->Reshaped(node, conv->weights, AsRow(conv->weights.dims()));
  conv->dst_dims = AsRow(conv->dst_dims);
  conv->window.MakeRow();
}

ConvTensors ReadTensors(const NodeReader& node, PlanBuilder* plan, bool is_transposed) {
  ConvTensors conv;
  const size_t spatial = node.OutDims().size() - 2;
  const std::string order = ChannelsFirst("NC", spatial);
  const std::string weight_order = ChannelsFirst("OI", spatial);
  const auto layout = node.Get<std::string>("data_layout", order);
  const auto weight_layout = node.Get<std::string>(
      "kernel_layout", is_transposed ? ChannelsFirst("IO", spatial) : weight_order);
  conv.src = plan->Input(node, 0).Permuted(LayoutAxes(node, layout, order));
  conv.dst_axes = LayoutAxes(node, node.Get<std::string>("out_layout", layout), order);
  conv.dst_dims = PermutedDims(node.OutDims(), conv.dst_axes);
  conv.weights = plan->Input(node, 1).Permuted(LayoutAxes(node, weight_layout, weight_order));
  const auto groups = node.Get<int64_t>("groups", 1);
  if (groups > 1) {
    const auto group = is_transposed ? GroupTransposedWeights : GroupWeights;
    conv.weights = group(node, plan, conv.weights, groups, conv.dst_dims[1]);
  }
  conv.window = Window::Read(node, spatial);
  if (is_transposed) {
    // That much less is cut off at the end; it may be less than nothing.
    const auto extra = node.Get<std::vector<int64_t>>("output_padding", Dims(spatial, 0));
    for (size_t i = 0; i < spatial; ++i) conv.window.pad_end[i] -= extra[i];
  }
  if (spatial == 1 && groups > 1) MakeRow(node, plan, &conv);
  return conv;
}

/*! \brief Emit the primitive with what is fused to it. */
template <typename Primitive>
void EmitConv(const NodeReader& node, PlanBuilder* plan, const ConvTensors& conv,
              dnnl::algorithm algorithm) {
  const dnnl::memory::desc dst_any(conv.dst_dims, node.OutType(), dnnl::memory::format_tag::any);
  const auto to_primitive = [&](const Tensor& operand) {
    const Tensor permuted = operand.Permuted(conv.dst_axes);
    return conv.is_row ? plan->Reshaped(node, permuted, AsRow(permuted.dims())) : permuted;
  };
  const FusedOps fused = FusePostOps(node, plan, {conv.dst_axes[1], to_primitive});

  using Desc = typename Primitive::primitive_desc;
  const auto describe = [&](const dnnl::memory::desc& src, const dnnl::memory::desc& weights,
                            const dnnl::memory::desc& dst, const dnnl::primitive_attr& attr,
                            bool allow_empty) {
    return Desc(plan->engine(), dnnl::prop_kind::forward_inference, algorithm, src, weights,
                fused.BiasDesc(), dst, conv.window.strides, conv.window.dilation,
                conv.window.pad_begin, conv.window.pad_end, attr, allow_empty);
  };
  const Desc desc =
      describe(AnyDesc(conv.src.md), AnyDesc(conv.weights.md), dst_any, fused.attr, false);

  Tensor dst = plan->NewTensor(desc.dst_desc());
  plan->Emit(
      node, desc, Primitive(desc),
      fused.AddTo({{DNNL_ARG_SRC, plan->InLayout(node, conv.src, desc.src_desc())},
                   {DNNL_ARG_WEIGHTS, plan->InLayout(node, conv.weights, desc.weights_desc())},
                   {DNNL_ARG_DST, dst}},
                  node, plan, desc),
      fused.names);
  fused.OfferSum<Primitive>(plan, desc, describe);
  if (conv.is_row) dst = plan->Reshaped(node, dst, PermutedDims(node.OutDims(), conv.dst_axes));
  plan->SetOutput(node, dst.Permuted(InversePermutation(conv.dst_axes)));
}

}  // namespace

void LowerConv(const NodeReader& node, PlanBuilder* plan) {
  EmitConv<dnnl::convolution_forward>(node, plan, ReadTensors(node, plan, /*is_transposed=*/false),
                                      dnnl::algorithm::convolution_direct);
}

void LowerConvTranspose(const NodeReader& node, PlanBuilder* plan) {
  EmitConv<dnnl::deconvolution_forward>(node, plan, ReadTensors(node, plan, /*is_transposed=*/true),
                                        dnnl::algorithm::deconvolution_direct);
}

}  // namespace dnnl_backend
}  // namespace contrib
}  // namespace runtime
}  // namespace tvm
