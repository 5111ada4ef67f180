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
 * \file src/runtime/contrib/dnnl/core/ops/conv.cc
 * \brief Convolutions and transposed convolutions over one to three spatial dimensions.
 */
#include "conv.h"

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "../faults.h"
#include "../fusion/post_ops.h"
#include "../implementation.h"
#include "../op_table.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief From Relay's order of the dimensions to oneDNN's. */
struct ConvAxes {
  std::vector<int> src;
  std::vector<int> weights;
  std::vector<int> dst;

  static ConvAxes Read(const NodeReader& node, bool is_transposed) {
    const size_t spatial = SpatialOf(node);
    const std::string order = ChannelsFirst("NC", spatial);
    const auto layout = node.Get<std::string>("data_layout", order);
    const auto weight_layout =
        node.Get<std::string>("kernel_layout", ChannelsFirst(is_transposed ? "IO" : "OI", spatial));
    return {LayoutAxes(node, layout, order),
            LayoutAxes(node, weight_layout, ChannelsFirst("OI", spatial)),
            LayoutAxes(node, node.Get<std::string>("out_layout", layout), order)};
  }

  /*! \brief Exchange height and width of an image. */
  void Transpose() {
    for (std::vector<int>* axes : {&src, &weights, &dst}) std::swap((*axes)[2], (*axes)[3]);
  }
};

/*!
 * \brief Whether an image is one column, over which the window moves only down.
 *
 * oneDNN computes many values of a row at once, and one of a column. In µs on two cores, float32,
 * one column and one row of the same values:
 *
 *                                              AVX-512       AVX2
 *   512 values, 256 to 512 channels, 5 taps   6820 1922   6556 3260
 *    16 values, 512 to 512 channels, 3 taps    245   72    238  122
 *   800 values,   3 to  64 channels, 7 taps     14    5     31    6
 *   200 values, 128 channels, depthwise         10    3     11    3
 *
 * With AMX in bfloat16 it makes no difference but for depthwise ones and those of few channels.
 */
bool IsColumn(const Dims& src, const Dims& weights, const Window& window) {
  constexpr size_t kWidth = 3;
  return src.size() == 4 && src[kWidth] == 1 && weights[kWidth] == 1 && src[kWidth - 1] > 1 &&
         window.pad_begin[1] == 0 && window.pad_end[1] == 0;
}

/*! \brief How many output channels the weights make of the input channels. */
int64_t OutChannels(const NodeReader& node, const Dims& src, const Dims& weights,
                    bool is_transposed) {
  const int64_t groups = ReadSize(node, "groups", 1, 1);
  const int64_t out = weights[0], in = weights[1];
  // Depthwise weights may be (C, O/C, ...), with the multiplier instead of I.
  const bool has_multiplier = groups > 1 && src[1] == groups && out == groups && !is_transposed;
  const int64_t channels = is_transposed ? out * groups : has_multiplier ? out * in : out;
  const int64_t expected = is_transposed ? src[1] : has_multiplier ? in : src[1] / groups;
  CORE_CHECK(src[1] % groups == 0 && channels % groups == 0 && in == expected)
      << node.Where() << ": weights with O = " << out << " and I = " << in << " do not fit "
      << src[1] << " input channels in " << groups << " groups";
  CheckSays(node, "channels", channels);
  return channels;
}

Types InferConvolution(const NodeReader& node, const Types& inputs, bool is_transposed) {
  const size_t spatial = SpatialOf(node);
  CheckReal(node, inputs);
  for (int i = 0; i < 2; ++i) CheckRank(node, inputs, i, spatial + 2);
  const ConvAxes axes = ConvAxes::Read(node, is_transposed);
  const Dims src = PermutedDims(inputs[0].shape, axes.src);
  const Dims weights = PermutedDims(inputs[1].shape, axes.weights);
  const Dims kernel(weights.begin() + 2, weights.end());
  CORE_CHECK(!node.Has("kernel_size") || ReadSpatial(node, "kernel_size", spatial, 1, 1) == kernel)
      << node.Where() << ": kernel_size does not fit weights of " << ToText(kernel);
  const Window window = Window::Read(node, spatial);
  const Dims extra = ReadSpatial(node, "output_padding", spatial, 0, 0);
  Dims dst = {src[0], OutChannels(node, src, weights, is_transposed)};
  for (size_t i = 0; i < spatial; ++i) {
    const int64_t pad = window.pad_begin[i] + window.pad_end[i], stride = window.strides[i];
    const int64_t span = window.Span(i, kernel[i]), size = src[i + 2];
    CORE_CHECK(!is_transposed || extra[i] < stride)
        << node.Where() << ": output_padding " << extra[i] << " is not less than a stride of "
        << stride;
    // The distance from the first window to the last; of a transposed convolution, how many
    // values follow the first.
    const int64_t last =
        is_transposed ? stride * (size - 1) + span - pad + extra[i] - 1 : size + pad - span;
    CheckExtents(node, span, is_transposed ? last + 1 + pad : size + pad);
    CORE_CHECK(last >= 0) << node.Where() << ": a window over " << span << " values does not fit "
                          << size << " with a padding of " << pad;
    dst.push_back(is_transposed ? last + 1 : last / stride + 1);
  }
  return {{PermutedDims(dst, InversePermutation(axes.dst)),
           ReadRealType(node, "out_dtype", inputs[0].dtype)}};
}

/*!
 * \brief The weights of a convolution with groups as (G, O/G, I/G, ...).
 *
 * Depthwise weights of Relay are (O, 1, ...), or (C, O/C, ...) with the multiplier instead of I, as
 * in TFLite's models.
 */
Tensor GroupWeights(const NodeReader& node, PlanBuilder* plan, const Tensor& weights,
                    int64_t groups, int64_t out_channels) {
  const Dims dims = weights.dims();
  const bool has_multiplier = dims[0] == groups && dims[0] * dims[1] == out_channels;
  Dims grouped = {groups, out_channels / groups, has_multiplier ? 1 : dims[1]};
  grouped.insert(grouped.end(), dims.begin() + 2, dims.end());
  return plan->Reshaped(node, weights, grouped);
}

/*! \brief The weights of a transposed convolution, (O/G, I, ...), as (G, O/G, I/G, ...). */
Tensor GroupTransposedWeights(const NodeReader& node, PlanBuilder* plan, const Tensor& weights,
                              int64_t groups, int64_t) {
  const Dims dims = weights.dims();
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

ConvTensors ReadTensors(const NodeReader& node, PlanBuilder* plan, bool is_transposed,
                        bool is_exact = false) {
  ConvTensors conv;
  const size_t spatial = SpatialOf(node);
  conv.window = Window::Read(node, spatial);
  ConvAxes axes = ConvAxes::Read(node, is_transposed);
  conv.is_column = !is_transposed &&
                   IsColumn(PermutedDims(plan->Input(node, 0).dims(), axes.src),
                            PermutedDims(plan->Input(node, 1).dims(), axes.weights), conv.window);
  if (conv.is_column) {
    axes.Transpose();
    conv.window.Transpose();
  }
  conv.src = plan->Input(node, 0).Permuted(axes.src);
  conv.src.md = WithUsualStrides(conv.src.md);
  conv.dst_axes = axes.dst;
  conv.dst_dims = PermutedDims(node.RootDims(), conv.dst_axes);
  const bool is_convolution = true;
  conv.int8 = ReadInt8(node, plan, {axes.weights[0], conv.dst_dims[1], is_convolution, is_exact});
  conv.weights = (conv.int8 ? conv.int8->weights : plan->Input(node, 1)).Permuted(axes.weights);
  const auto groups = node.Get<int64_t>("groups", 1);
  if (groups > 1) {
    const auto group = is_transposed ? GroupTransposedWeights : GroupWeights;
    conv.weights = group(node, plan, conv.weights, groups, conv.dst_dims[1]);
  }
  if (is_transposed) {
    // That much less is cut off at the end; it may be less than nothing.
    const Dims extra = ReadSpatial(node, "output_padding", spatial, 0, 0);
    for (size_t i = 0; i < spatial; ++i) conv.window.pad_end[i] -= extra[i];
  }
  if (spatial == 1 && groups > 1) MakeRow(node, plan, &conv);
  return conv;
}

/*! \brief Whether there is one filter for each channel, and one result of it. */
bool IsDepthwise(const ConvTensors& conv) {
  const Dims weights = conv.weights.dims();
  return weights.size() == conv.dst_dims.size() + 1 && weights[1] == 1 && weights[2] == 1;
}

/*! \brief Whether the result depends on the source at the same spatial position only. */
bool IsPointwise(const ConvTensors& conv) {
  const Dims weights = conv.weights.dims();
  const auto is_one = [](int64_t value) { return value == 1; };
  return weights.size() == conv.dst_dims.size() &&
         std::all_of(weights.begin() + 2, weights.end(), is_one) &&
         std::all_of(conv.window.strides.begin(), conv.window.strides.end(), is_one);
}

/*! \brief Whether there are results of which some of the source is missing. */
bool IsPadded(const ConvTensors& conv) {
  const auto is_positive = [](int64_t value) { return value > 0; };
  const Dims &begin = conv.window.pad_begin, &end = conv.window.pad_end;
  return std::any_of(begin.begin(), begin.end(), is_positive) ||
         std::any_of(end.begin(), end.end(), is_positive);
}

/*!
 * \brief The layout of the result where the convolution keeps the blocks of channels in which it
 * has its source, or an empty one where the choice is oneDNN's.
 *
 * On CPUs with AVX-512 oneDNN 3.2 puts the channels last for depthwise and 1x1 convolutions of
 * float32, but leaves the result of a network's first convolution in blocks of 16. To go on in
 * blocks saves the reorder after it, and depthwise convolutions are faster so. Measured in µs,
 * each in its turn on two cores:
 *
 *                                          last  blocks
 *   reorder after the first convolution      93       0
 *   depthwise, 28x28x256                     46      34
 *   depthwise, 14x14x512                     28      17
 *   1x1, 28x28, 256 to 256                  279     293
 *   1x1, 14x14, 512 to 512                  297     292
 *   1x1, 7x7, 1024 to 1024                  398     351
 *   all convolutions of MobileNet v1       4310    4060
 *   all convolutions of MobileNet v2       3180    2980
 *   all primitives of PP-OCR text angle     465     349
 *
 * Networks without depthwise convolutions stay as they are: 3x3 convolutions are faster with the
 * channels last, and the reorders between those and 1x1 ones in blocks cost ResNet-50 0.5 ms.
 */
dnnl::memory::desc KeptBlocks(PlanBuilder* plan, const ConvTensors& conv,
                              dnnl::memory::data_type dst_type) {
  constexpr auto kBlocks = dnnl::memory::format_tag::nChw16c;
  constexpr auto kType = dnnl::memory::data_type::f32;
  const bool is_image = conv.dst_dims.size() == 4 && !conv.is_row;
  if (!is_image || conv.src.dtype() != kType || dst_type != kType) return {};
  if (conv.src.md != dnnl::memory::desc(conv.src.dims(), kType, kBlocks)) return {};
  if (IsDepthwise(conv)) plan->KeepBlocks();
  if (!IsDepthwise(conv) && !(plan->keeps_blocks() && IsPointwise(conv))) return {};
  return dnnl::memory::desc(conv.dst_dims, kType, kBlocks);
}

/*!
 * \brief Emit the primitive with what is fused to it.
 *
 * If oneDNN has no good implementation in bfloat16 or float16, the result is float32, and else the
 * operands, too.
 * \param blocks The layout of the result that goes with that of the source; it may be empty.
 */
template <typename Primitive>
void EmitConv(const NodeReader& node, PlanBuilder* plan, const ConvTensors& conv,
              dnnl::algorithm algorithm, double flops, const dnnl::memory::desc& blocks) {
  const auto to_primitive = [&](const Tensor& operand) {
    const Tensor permuted = operand.Permuted(conv.dst_axes);
    return conv.is_row ? plan->Reshaped(node, permuted, AsRow(permuted.dims())) : permuted;
  };
  // With groups the output channels are the first two dimensions.
  const bool has_groups = conv.weights.dims().size() > conv.dst_dims.size();
  const bool is_transposed = std::is_same_v<Primitive, dnnl::deconvolution_forward>;
  const FusedOps fused = FuseInt8(node, plan, {conv.dst_axes[1], to_primitive}, conv.int8,
                                  has_groups ? 3 : 1, is_transposed || IsPadded(conv));
  const bool has_zero_point = conv.int8 && conv.int8->src.HasZeroPoint();

  using Desc = typename Primitive::primitive_desc;
  const auto describe = [&](const dnnl::memory::desc& src, const dnnl::memory::desc& weights,
                            const dnnl::memory::desc& dst, const dnnl::primitive_attr& attr,
                            bool allow_empty) {
    const auto create = [&](const dnnl::memory::desc& src_md, const dnnl::memory::desc& dst_md) {
      return Desc(plan->engine(), dnnl::prop_kind::forward_inference, algorithm, src_md, weights,
                  fused.BiasDesc(), dst_md, conv.window.strides, conv.window.dilation,
                  conv.window.pad_begin, conv.window.pad_end, attr, allow_empty);
    };
    const Dims positions(conv.dst_dims.begin() + 2, conv.dst_dims.end());
    Desc desc = Describe1x1(IsPointwise(conv) ? NumElements(positions) : 0, src, dst, create);
    if (SkipFaulty(&desc, {has_zero_point})) return desc;
    if (!allow_empty)
      throw dnnl::error(dnnl_unimplemented, "all implementations that accept this are incorrect");
    return Desc();
  };
  constexpr auto kFloat = dnnl::memory::data_type::f32;
  constexpr auto kAny = dnnl::memory::format_tag::any;
  Desc desc;
  if (blocks) {
    desc = describe(conv.src.md, AnyDesc(conv.weights.md), blocks, fused.attr, true);
  }
  const bool is_kept = desc && IsNative(desc);
  Tensor src = conv.src, weights = conv.weights;
  const auto is_good = [&desc]() { return desc && !IsReference(desc); };
  const auto choose = [&](dnnl::memory::data_type type, dnnl::memory::data_type dst_type,
                          bool allow_empty) {
    const auto any = [&](const Tensor& operand) {
      return dnnl::memory::desc(operand.dims(), conv.int8 ? operand.dtype() : type, kAny);
    };
    desc = describe(any(src), any(weights), dnnl::memory::desc(conv.dst_dims, dst_type, kAny),
                    fused.attr, allow_empty);
  };
  const bool is_reduced = !conv.int8 && src.dtype() != kFloat && fused.names.empty();
  if (!is_kept) choose(src.dtype(), node.OutType(), is_reduced);
  if (is_reduced && !is_good()) choose(src.dtype(), kFloat, true);
  if (is_reduced && !is_good()) {
    choose(kFloat, kFloat, false);
    src = Converted(node, plan, src, kFloat);
    weights = Converted(node, plan, weights, kFloat);
  }

  Tensor dst = plan->NewTensor(desc.dst_desc());
  plan->Emit(node, desc, Primitive(desc),
             fused.AddTo({{DNNL_ARG_SRC, plan->InLayout(node, src, desc.src_desc())},
                          {DNNL_ARG_WEIGHTS, plan->Weights(node, weights, desc.weights_desc())},
                          {DNNL_ARG_DST, dst}},
                         node, plan, desc),
             fused.names);
  plan->SetVariant(conv.has_patches ? "1x1 convolution"
                   : is_kept        ? "the source's blocks"
                   : conv.is_column ? "a column as a row"
                                    : "oneDNN's layouts",
                   flops);
  fused.OfferSum<Primitive>(plan, desc, describe);
  if (dst.dtype() != node.OutType()) dst = Cast(node, plan, dst, node.OutType());
  if (conv.is_row) dst = plan->Reshaped(node, dst, PermutedDims(node.RootDims(), conv.dst_axes));
  plan->SetOutput(node, dst.Permuted(InversePermutation(conv.dst_axes)));
}

/*! \brief How many elements of a tensor there are for each channel, its dimension `axes[1]`. */
double PerChannel(const Dims& dims, const std::vector<int>& axes) {
  return static_cast<double>(NumElements(dims)) / dims[axes[1]];
}

}  // namespace

Tensor Converted(const NodeReader& node, PlanBuilder* plan, const Tensor& value,
                 dnnl::memory::data_type type) {
  const PlanBuilder::Mark mark = plan->Here();
  const Tensor result = Cast(node, plan, value, type);
  if (plan->IsConstant(value)) plan->RunNow(mark);
  return result;
}

double ConvFlops(const NodeReader& node, const PlanBuilder& plan) {
  const double results = PerChannel(node.RootDims(), ConvAxes::Read(node, false).dst);
  return 2 * results * NumElements(plan.Input(node, 1).dims());
}

double ConvTransposeFlops(const NodeReader& node, const PlanBuilder& plan) {
  const double sources = PerChannel(plan.Input(node, 0).dims(), ConvAxes::Read(node, true).src);
  return 2 * sources * NumElements(plan.Input(node, 1).dims());
}

Types InferConv(const NodeReader& node, const Types& inputs) {
  return InferConvolution(node, inputs, /*is_transposed=*/false);
}

Types InferConvTranspose(const NodeReader& node, const Types& inputs) {
  return InferConvolution(node, inputs, /*is_transposed=*/true);
}

void LowerConv(const NodeReader& node, PlanBuilder* plan) {
  const double flops = ConvFlops(node, *plan);
  if (node.IsQuantized() && HasInt8Convs()) {
    const PlanBuilder::Mark mark = plan->Here();
    const ConvTensors conv = ReadTensors(node, plan, /*is_transposed=*/false, /*is_exact=*/true);
    if (EmitInt8Conv(node, plan, conv, flops)) return;
    plan->BackTo(mark);
  }
  ConvTensors conv = ReadTensors(node, plan, /*is_transposed=*/false);
  if (IsDepthwise(conv) && EmitDepthwise3D(node, plan, conv, flops)) return;
  ReadAsPatches(node, plan, &conv);
  EmitConv<dnnl::convolution_forward>(node, plan, conv, dnnl::algorithm::convolution_direct, flops,
                                      KeptBlocks(plan, conv, node.OutType()));
}

void LowerConvTranspose(const NodeReader& node, PlanBuilder* plan) {
  const ConvTensors conv = ReadTensors(node, plan, /*is_transposed=*/true);
  const double flops = ConvTransposeFlops(node, *plan);
  if (EmitWindowsApart(node, plan, conv, flops)) return;
  EmitConv<dnnl::deconvolution_forward>(node, plan, conv, dnnl::algorithm::deconvolution_direct,
                                        flops, {});
}

}  // namespace tvm::runtime::contrib::dnnl_backend
