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
 * \file src/runtime/contrib/dnnl/core/ops/pool.cc
 * \brief Maximum and average pooling over windows, over everything, and adaptive.
 */
#include "../kernels/pool.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "../fusion/quantization.h"
#include "../kernels/byte_means.h"
#include "../op_table.h"
#include "image.h"
#include "reduce.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

using Pool = dnnl::pooling_forward;

/*! \brief The window of a pool and how it moves. */
struct PoolWindow : Window {
  Dims kernel;
};

/*!
 * \brief The window of adaptive and global pooling, which depends on the shapes alone.
 *
 * Output i averages the inputs from floor(i * in / out) to ceil((i + 1) * in / out).
 */
PoolWindow AdaptiveWindow(const Dims& in, const Dims& out) {
  PoolWindow window;
  for (size_t i = 2; i < in.size(); ++i) {
    window.strides.push_back(in[i] / out[i]);
    window.kernel.push_back((in[i] + out[i] - 1) / out[i]);
  }
  window.dilation = window.pad_begin = window.pad_end = Dims(window.kernel.size(), 0);
  return window;
}

/*! \brief The window that the attributes describe. */
PoolWindow ReadWindow(const NodeReader& node) {
  const size_t spatial = SpatialOf(node);
  PoolWindow window;
  static_cast<Window&>(window) = Window::Read(node, spatial);
  window.kernel = ReadSpatial(node, "pool_size", spatial, 1, 1);
  return window;
}

/*!
 * \brief The same, padded at the end as far as the last window reaches: further with ceil_mode,
 * or less far. oneDNN would count another window in padding that is left over.
 */
PoolWindow PaddedWindow(const NodeReader& node, const Dims& in, const Dims& out) {
  PoolWindow window = ReadWindow(node);
  for (size_t i = 0; i < window.kernel.size(); ++i) {
    const int64_t end = (out[i + 2] - 1) * window.strides[i] + window.Span(i, window.kernel[i]);
    window.pad_end[i] = std::max<int64_t>(0, end - window.pad_begin[i] - in[i + 2]);
  }
  return window;
}

/*!
 * \brief Check how many values of the padding a window may hold.
 *
 * oneDNN's code for any layout (simple_nchw) goes through them one by one for each result.
 */
void CheckPadding(const NodeReader& node, const PoolWindow& window) {
  // The policy has the same number.
  constexpr double kMaxPadding = 4096;
  double values = 1, data = 1;
  for (size_t i = 0; i < window.kernel.size(); ++i) {
    const int64_t padding = window.pad_begin[i] + window.pad_end[i];
    values *= window.kernel[i];
    data *= std::max<int64_t>(window.kernel[i] - padding, 0);
  }
  CORE_CHECK(values - data <= kMaxPadding)
      << node.Where() << ": a window of " << ToText(window.kernel) << " may contain more than "
      << kMaxPadding << " values of padding";
}

/*!
 * \brief How many windows there are along each spatial dimension.
 *
 * The IRs differ where ceil_mode puts the last window into the padding after the data: Relax (0.26,
 * 0.27) drops it, as PyTorch does; Relay (0.16 to 0.19) counts it, and the rule refuses it, as it
 * holds no data. So what is accepted has the size that Relax gives, in both.
 */
Dims CountWindows(const NodeReader& node, const Dims& in) {
  const PoolWindow window = ReadWindow(node);
  const bool is_ceiled = node.Get<bool>("ceil_mode", false);
  Dims out;
  for (size_t i = 0; i < window.kernel.size(); ++i) {
    const int64_t span = window.Span(i, window.kernel[i]), stride = window.strides[i];
    const int64_t before = window.pad_begin[i], after = window.pad_end[i], size = in[i + 2];
    CheckExtents(node, span, size + before + after);
    // The distance from the first window to the last.
    const int64_t last = size + before + after - span;
    int64_t count = last < 0 ? 0 : (last + (is_ceiled ? stride - 1 : 0)) / stride + 1;
    if (is_ceiled && count > 1 && (count - 1) * stride >= size + before) --count;
    CORE_CHECK(count > 0 && before < span && (count - 1) * stride < size + before)
        << node.Where() << ": " << count << " windows over " << span << " values, with stride "
        << stride << ", do not each contain some of " << size << " values with a padding of "
        << before << " and " << after;
    out.push_back(count);
  }
  CheckPadding(node, window);
  return out;
}

/*! \brief How many windows an adaptive pool has along each spatial dimension. */
Dims AdaptiveCounts(const NodeReader& node, const Dims& in) {
  const Dims sizes(in.begin() + 2, in.end());
  Dims out = node.Get<std::vector<int64_t>>("output_size", {});
  if (out.empty()) out = sizes;
  if (out.size() == 1) out = Dims(sizes.size(), out[0]);
  CheckSizes(node, "output_size", out, 1);
  CORE_CHECK(out.size() == sizes.size()) << node.Where() << ": output_size " << ToText(out)
                                         << " does not fit data of " << ToText(sizes);
  for (size_t i = 0; i < out.size(); ++i) {
    // With one value more the windows overlap by that.
    CORE_CHECK(out[i] <= sizes[i] && sizes[i] % out[i] <= 1)
        << node.Where() << ": " << sizes[i] << " values do not give " << out[i]
        << " windows of equal size and stride";
  }
  return out;
}

/*! \brief The node whose post-ops are to be fused to a pool, and how the pool sees its result. */
struct PoolView {
  NodeReader node;
  ResultView result;
};

/*!
 * \brief Read what is fused to a pool. One of quantized numbers gives numbers of the same scale and
 * zero point, as it computes no sum that is not divided.
 */
PoolView ReadFused(const NodeReader& node, PlanBuilder* plan, dnnl::algorithm algorithm,
                   ResultView view) {
  if (!node.IsQuantized()) return {node, view};
  if (!node.IsDequantized(0) || node.NumPostOps() == 0) {
    throw dnnl::error(dnnl_unimplemented, "pooling has a single type");
  }
  const NodeReader dequantize = node.Dequantization(0);
  const Dims dims = plan->Input(node, 0).dims();
  const auto from = Quantization::Read(dequantize, plan, dims).Values(dequantize, plan);
  const auto [scale, zero_point] = from;
  if (algorithm == dnnl::algorithm::pooling_avg_include_padding && zero_point != 0) {
    throw dnnl::error(dnnl_unimplemented, "the padding is not the zero point");
  }
  if (node.NumPostOps() == 1) {
    const NodeReader last = node.PostOp(0);
    const bool is_same = last.OpName() == "qnn.quantize" &&
                         Quantization::Read(last, plan, dims).Values(last, plan) == from;
    if (is_same) return {node.WithoutPostOps(), view};
  }
  view.scale = scale;
  view.shift = -scale * zero_point;
  return {node, view};
}

/*!
 * \brief Emit a pool of a row-major image by a kernel of ours, which reads it as it is: oneDNN's
 * code for this CPU has the channels last.
 * \return The result without post-ops; undefined where there is no such kernel.
 */
Tensor OfWindows(const NodeReader& node, PlanBuilder* plan, const Tensor& src, const Dims& dst_dims,
                 const PoolWindow& window, dnnl::algorithm algorithm) {
  using Type = dnnl::memory::data_type;
  const Type type = src.dtype();
  const size_t spatial = window.kernel.size();
  PoolShape shape{src.dims()[0] * src.dims()[1], {}};
  for (size_t i = 0; i < spatial; ++i) {
    shape.axes[i + 3 - spatial] = {src.dims()[i + 2], dst_dims[i + 2],        window.kernel[i],
                                   window.strides[i], window.dilation[i] + 1, window.pad_begin[i]};
  }
  if (!IsPlain(src.md) || shape.axes[2].span() > kMaxPoolSpan) return {};
  const bool is_max = algorithm == dnnl::algorithm::pooling_max;
  const bool counts_padding = algorithm == dnnl::algorithm::pooling_avg_include_padding;
  const auto max_of = [shape](auto element) -> HostKernel {
    using T = decltype(element);
    return [shape](void* const* data) {
      MaxPool(shape, static_cast<const T*>(data[0]), static_cast<T*>(data[1]));
    };
  };
  HostKernel kernel;
  if (is_max && type == Type::f32) kernel = max_of(float{});
  if (is_max && type == Type::u8) kernel = max_of(uint8_t{});
  if (is_max && type == Type::s8) kernel = max_of(int8_t{});
  // oneDNN's averages of 8 bits are faster, with the reorders and what is fused to them.
  if (!is_max && type == Type::f32) {
    kernel = [shape, counts_padding](void* const* data) {
      AveragePool(shape, counts_padding, static_cast<const float*>(data[0]),
                  static_cast<float*>(data[1]));
    };
  }
  // Integers that stand for themselves have no post-ops.
  const bool is_integer = dnnl::memory::data_type_size(type) == 1 && !node.IsQuantized();
  if (!kernel || (is_integer && node.NumPostOps() > 0)) return {};
  const Tensor dst = plan->NewTensor(PlainDesc(dst_dims, type));
  plan->EmitKernel(node, "pooling", kernel, {{DNNL_ARG_SRC, src}, {DNNL_ARG_DST, dst}});
  return dst;
}

/*!
 * \brief Whether a pool is over all positions of an image, and there are many: oneDNN joins them
 * one after the other.
 */
bool IsReduction(const PoolWindow& window, const Dims& dims) {
  constexpr int64_t kMostInSequence = 64;
  const auto is_zero = [](int64_t padding) { return padding == 0; };
  return window.kernel == Dims(dims.begin() + 2, dims.end()) &&
         NumElements(window.kernel) > kMostInSequence &&
         std::all_of(window.pad_begin.begin(), window.pad_begin.end(), is_zero) &&
         std::all_of(window.pad_end.begin(), window.pad_end.end(), is_zero);
}

/*!
 * \brief Append a pool over all positions of an image in any layout.
 * \return The result in float32, without post-ops; undefined for other pools, and where other code
 * is better.
 */
Tensor OfAllPositions(const NodeReader& node, PlanBuilder* plan, const Tensor& src,
                      const PoolWindow& window, bool is_max) {
  if (!IsReduction(window, src.dims())) return {};
  const dnnl::memory::data_type type = src.dtype();
  if (dnnl::memory::data_type_size(type) > 1 && !node.IsQuantized()) {
    std::vector<int> spatial(window.kernel.size());
    std::iota(spatial.begin(), spatial.end(), 2);
    return Reduced(node, plan, is_max ? ReduceKind::kMax : ReduceKind::kMean, src, spatial);
  }
  // The kernel of max pools reads row-major integers, and oneDNN's code those of other layouts.
  if (is_max || !IsPlain(src.md)) return {};
  Dims dims(src.dims().size(), 1);
  dims[0] = src.dims()[0];
  dims[1] = src.dims()[1];
  const Tensor dst = plan->NewTensor(PlainDesc(dims, dnnl::memory::data_type::f32));
  const int64_t rows = dims[0] * dims[1], columns = NumElements(window.kernel);
  const bool is_signed = type == dnnl::memory::data_type::s8;
  const auto run = [=](void* const* data) {
    auto* means = static_cast<float*>(data[1]);
    if (is_signed) return MeansOfBytes(static_cast<const int8_t*>(data[0]), rows, columns, means);
    MeansOfBytes(static_cast<const uint8_t*>(data[0]), rows, columns, means);
  };
  plan->EmitKernel(node, "reduction", run, {{DNNL_ARG_SRC, src}, {DNNL_ARG_DST, dst}});
  return dst;
}

/*! \brief The type of a pool's result, by what counts its windows, from dimensions as NC... */
template <typename Count>
Types InferCounted(const NodeReader& node, const Types& inputs, const Count& count) {
  CheckFlags(node, {"count_include_pad"});
  CheckRank(node, inputs, 0, SpatialOf(node) + 2);
  CheckReal(node, inputs, FindOp(node.OpName())->algorithm == dnnl::algorithm::pooling_max);
  const std::vector<int> axes = ImageAxes(node);
  Dims dims = PermutedDims(inputs[0].shape, axes);
  const Dims out = count(dims);
  std::copy(out.begin(), out.end(), dims.begin() + 2);
  return {{PermutedDims(dims, InversePermutation(axes)), inputs[0].dtype}};
}

}  // namespace

Types InferPool(const NodeReader& node, const Types& inputs) {
  return InferCounted(node, inputs, [&](const Dims& in) {
    return node.Has("pool_size") ? CountWindows(node, in) : AdaptiveCounts(node, in);
  });
}

Types InferGlobalPool(const NodeReader& node, const Types& inputs) {
  return InferCounted(node, inputs, [](const Dims& in) { return Dims(in.size() - 2, 1); });
}

void LowerPool(const NodeReader& node, PlanBuilder* plan) {
  const std::vector<int> axes = ImageAxes(node);
  const Dims dst_dims = PermutedDims(node.RootDims(), axes);
  Tensor src = plan->Input(node, 0).Permuted(axes);
  const PoolWindow window = node.Has("pool_size") ? PaddedWindow(node, src.dims(), dst_dims)
                                                  : AdaptiveWindow(src.dims(), dst_dims);
  auto algorithm = FindOp(node.OpName())->algorithm;
  if (node.Get<bool>("count_include_pad", false)) {
    algorithm = dnnl::algorithm::pooling_avg_include_padding;
  }
  const ResultView view{-1, [&axes](const Tensor& operand) { return operand.Permuted(axes); }};
  const PoolView read = ReadFused(node, plan, algorithm, view);
  const bool is_max = algorithm == dnnl::algorithm::pooling_max;
  Tensor dst = OfAllPositions(node, plan, src, window, is_max);
  if (!dst.defined()) dst = OfWindows(node, plan, src, dst_dims, window, algorithm);
  if (dst.defined()) {
    dst = WithPostOps(read.node, plan, dst, read.result);
    if (IsPlain(dst.md) || dst.dtype() != node.OutType()) {
      dst = plan->InLayout(node, dst, PlainDesc(dst_dims, node.OutType()));
    }
    return plan->SetOutput(node, dst.Permuted(InversePermutation(axes)));
  }
  const FusedOps fused = FusePostOps(read.node, plan, read.result);
  constexpr auto kFloat = dnnl::memory::data_type::f32;
  auto type = node.OutType();
  const auto describe = [&](const dnnl::memory::desc& src_md) {
    const dnnl::memory::desc dst_any(dst_dims, type, dnnl::memory::format_tag::any);
    return Pool::primitive_desc(plan->engine(), dnnl::prop_kind::forward_inference, algorithm,
                                src_md, dst_any, window.strides, window.kernel, window.dilation,
                                window.pad_begin, window.pad_end, fused.attr);
  };
  auto desc = DescribeForImage(node, plan, &src, describe);
  const bool is_integer =
      !node.IsQuantized() && node.NumPostOps() == 0 && dnnl::memory::data_type_size(type) == 1;
  if (!is_integer || !IsReference(desc)) {
    return EmitForImage<Pool>(node, plan, src, desc, fused, axes);
  }
  // The largest of some integers is exact in float32, too.
  type = kFloat;
  src = Cast(node, plan, src, kFloat);
  desc = DescribeForImage(node, plan, &src, describe);
  dst = plan->NewTensor(desc.dst_desc());
  plan->Emit(node, desc, Pool(desc), {{DNNL_ARG_SRC, src}, {DNNL_ARG_DST, dst}});
  plan->SetOutput(node, Cast(node, plan, dst, node.OutType()).Permuted(InversePermutation(axes)));
}

}  // namespace tvm::runtime::contrib::dnnl_backend
