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
 * \file src/runtime/contrib/dnnl/core/ops/resize.cc
 * \brief Images of another size, of the nearest values or of values between neighbours.
 */
#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "../kernels/interpolation.h"
#include "../kernels/nearest.h"
#include "../op_table.h"
#include "image.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief The factor of an upsampling along a spatial dimension, 'D', 'H' or 'W'. */
int64_t Scaled(const NodeReader& node, int64_t size, char dimension) {
  const std::string key = std::string("scale_") + static_cast<char>(dimension - 'A' + 'a');
  // As Relay's type relation computes it.
  const float result = std::nearbyint(static_cast<float>(size) * node.Get<float>(key, 1));
  CORE_CHECK(result >= 1 && result < static_cast<float>(kMaxSize))
      << node.Where() << ": " << key << " gives " << result << " values from " << size;
  return static_cast<int64_t>(result);
}

using Words = std::vector<std::string>;

/*! \brief How an op says that it reads its data. */
struct Reading {
  std::string mode, rounding;
  bool is_nearest;
  /*! \brief Of cubic ones: the parameter, and whether values outside of the image are left out. */
  bool is_cubic{false}, is_exclusive{false};
  double alpha{0};

  static Reading Of(const NodeReader& node);
  /*! \brief The coordinate in `size` values of the i-th of `out`. */
  double At(int64_t i, int64_t size, int64_t out) const;
  /*! \brief The number of the value that is read for it, or the coordinate between two of them. */
  double Read(int64_t i, int64_t size, int64_t out) const;
  /*! \brief Those of the neighbors of a coordinate, of which the one before is a part `t` of their
   * distance away. */
  std::vector<double> Weights(double t) const;
  /*! \brief Whether coordinates along an axis are those of the values. */
  bool IsCopied(int64_t size, int64_t out) const;
  /*! \brief The neighbors of the coordinates along an axis. */
  InterpolationKernel::Axis AxisOf(int64_t size, int64_t out) const;
};

/*! \brief oneDNN's. */
Reading OfPrimitive(bool is_nearest) { return {"half_pixel", "round", is_nearest}; }

Reading Reading::Of(const NodeReader& node) {
  const auto method = node.Get<std::string>("method");
  const bool is_nearest = method == "nearest_neighbor";
  const bool is_upsampling = node.OpName() == "nn.upsampling";
  const char* const key = is_upsampling ? "align_corners" : "coordinate_transformation_mode";
  // Who says nothing wants what there is.
  Reading reading = OfPrimitive(is_nearest);
  reading.is_cubic = method == "cubic";
  reading.is_exclusive = node.Get<int64_t>("cubic_exclude", 0) != 0 && reading.is_cubic;
  reading.alpha = node.Get<float>("cubic_alpha", -0.5f);
  CORE_CHECK(std::isfinite(reading.alpha))
      << node.Where() << ": cubic_alpha is " << reading.alpha << ", expected: a finite number";
  if (!node.Has(key)) return reading;
  reading.mode = !is_upsampling        ? node.Get<std::string>(key)
                 : node.Get<bool>(key) ? "align_corners"
                                       : "asymmetric";
  const bool is_aligned = reading.mode == "align_corners";
  reading.rounding = node.Get<std::string>("rounding_method", is_aligned ? "round" : "floor");
  const auto check = [&](const char* name, const std::string& word, const Words& known) {
    CORE_CHECK(std::count(known.begin(), known.end(), word) > 0)
        << node.Where() << ": oneDNN does not support " << name << " " << word;
  };
  check(
      key, reading.mode,
      {"half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_half_pixel_for_nn"});
  check("rounding_method", reading.rounding,
        {"round", "round_prefer_floor", "round_prefer_ceil", "floor", "ceil"});
  return reading;
}

double Reading::At(int64_t i, int64_t size, int64_t out) const {
  const double x = static_cast<double>(i), scale = static_cast<double>(size) / out;
  // As the policy computes it, to the last bit: with nothing multiplied and added at once.
  volatile double result = 0;
  if (mode == "align_corners") {
    result = x * (static_cast<double>(size - 1) / std::max<int64_t>(out - 1, 1));
  } else if (mode == "asymmetric") {
    result = x * scale;
  } else if (mode == "pytorch_half_pixel" && out == 1) {
    result = 0;
  } else {
    result = (x + 0.5) * scale;
    if (mode != "tf_half_pixel_for_nn") result = result - 0.5;
  }
  return result;
}

double Reading::Read(int64_t i, int64_t size, int64_t out) const {
  // TVM adds this before it rounds a coordinate down, and subtracts it before it rounds up.
  constexpr double kEpsilon = 1e-5;
  double at = At(i, size, out);
  if (is_nearest && rounding == "round") at = std::copysign(std::floor(std::abs(at) + 0.5), at);
  if (is_nearest && rounding == "round_prefer_floor") at = std::ceil(at - 0.5);
  if (is_nearest && rounding == "round_prefer_ceil") at = std::floor(at + 0.5);
  if (is_nearest && rounding == "floor") at = std::floor(at + kEpsilon);
  if (is_nearest && rounding == "ceil") at = std::ceil(at - kEpsilon);
  return std::min(std::max(at, 0.), static_cast<double>(size - 1));
}

std::vector<double> Reading::Weights(double t) const {
  if (!is_cubic) return {1 - t, t};
  // Keys, "Cubic convolution interpolation for digital image processing", 1981.
  const auto outer = [a = alpha](double x) { return a * (((x - 5) * x + 8) * x - 4); };
  const auto inner = [a = alpha](double x) { return ((a + 2) * x - (a + 3)) * x * x + 1; };
  return {outer(1 + t), inner(t), inner(1 - t), outer(2 - t)};
}

bool Reading::IsCopied(int64_t size, int64_t out) const {
  for (int64_t i = 0; i < out; ++i) {
    if (size != out || At(i, size, out) != static_cast<double>(i)) return false;
  }
  return true;
}

InterpolationKernel::Axis Reading::AxisOf(int64_t size, int64_t out) const {
  // A copy is a sum of one value; of four, two precede the coordinate.
  const bool is_copied = IsCopied(size, out);
  const int64_t taps = is_copied ? 1 : is_cubic ? 4 : 2, before = taps == 4 ? 1 : 0;
  InterpolationKernel::Axis axis{size, out, taps, std::vector<int32_t>(taps * out),
                                 std::vector<float>(taps * out)};
  for (int64_t i = 0; i < out; ++i) {
    const double at = At(i, size, out), low = std::floor(at);
    std::vector<double> weights = is_copied ? std::vector<double>{1} : Weights(at - low);
    double sum = 0;
    for (int64_t tap = 0; tap < taps; ++tap) {
      const double index = low + static_cast<double>(tap - before);
      const double inside = std::min(std::max(index, 0.), static_cast<double>(size - 1));
      if (is_exclusive && index != inside) weights[tap] = 0;
      axis.indices[tap * out + i] = static_cast<int32_t>(inside);
      sum += weights[tap];
    }
    for (int64_t tap = 0; tap < taps; ++tap) {
      axis.weights[tap * out + i] = static_cast<float>(weights[tap] / (is_exclusive ? sum : 1));
    }
  }
  return axis;
}

/*! \brief Whether oneDNN reads the same values along an axis; this depends on the sizes. */
bool IsSame(const Reading& reading, int64_t size, int64_t out) {
  if (reading.is_cubic) return false;
  // In parts of the distance of two values.
  constexpr double kTolerance = 1e-6;
  const Reading ours = OfPrimitive(reading.is_nearest);
  if (reading.mode == ours.mode && (!reading.is_nearest || reading.rounding == ours.rounding)) {
    return true;
  }
  for (int64_t i = 0; i < out; ++i) {
    const double difference = reading.Read(i, size, out) - ours.Read(i, size, out);
    if (std::abs(difference) > kTolerance) return false;
  }
  return true;
}

/*!
 * \brief Copy the nearest values of an image with the channels first.
 *
 * oneDNN gathers them one by one. In µs on two cores with AVX2, float32, from 56x56 to 112x112,
 * oneDNN and these copies:
 *
 *   1x3        27    7
 *   1x64      444   91
 *   1x128    1018  255
 *   8x64     3831 1778
 */
Tensor Nearest(const NodeReader& node, PlanBuilder* plan, const Reading& reading, const Tensor& src,
               const Dims& dims) {
  const Dims from = src.dims();
  std::array<NearestKernel::Axis, 3> axes;
  for (size_t i = 2; i < dims.size(); ++i) {
    auto& [size, indices] = axes[i + 3 - dims.size()];
    size = from[i];
    indices.resize(dims[i]);
    for (int64_t k = 0; k < dims[i]; ++k) {
      indices[k] = static_cast<int64_t>(reading.Read(k, size, dims[i]));
    }
  }
  const auto bytes = static_cast<int>(dnnl::memory::data_type_size(src.dtype()));
  const NearestKernel kernel(dims[0] * dims[1], std::move(axes), bytes);
  const Tensor dst = plan->NewTensor(PlainDesc(dims, src.dtype()));
  plan->EmitKernel(node, "resampling",
                   [kernel](void* const* data) { kernel.Run(data[0], data[1]); },
                   {{DNNL_ARG_SRC, src}, {DNNL_ARG_DST, dst}});
  return dst;
}

/*!
 * \brief Interpolate an image with the channels first, in float32 or between copies in it.
 *
 * oneDNN interpolates these one by one. In ms on two cores with AVX2, to twice the height and
 * width, oneDNN and this kernel:
 *
 *   1x512x14x14   0.87  0.62
 *   1x128x56x56   3.57  1.16
 *   8x64x56x56   17.9   7.13
 */
Tensor Interpolated(const NodeReader& node, PlanBuilder* plan, const Reading& reading,
                    const Tensor& given, const Dims& dims) {
  const auto type = given.dtype();
  const Tensor src = plan->InLayout(node, given, WithType(given.md, dnnl::memory::data_type::f32));
  const Dims from = src.dims();
  std::array<InterpolationKernel::Axis, 3> axes;
  for (size_t i = 2; i < dims.size(); ++i) {
    axes[i + 3 - dims.size()] = reading.AxisOf(from[i], dims[i]);
  }
  const InterpolationKernel kernel(dims[0] * dims[1], std::move(axes));
  const Tensor dst = plan->NewTensor(PlainDesc(dims, src.dtype()));
  const auto run = [kernel](void* const* data) {
    kernel.Run(static_cast<const float*>(data[0]), static_cast<float*>(data[1]));
  };
  plan->EmitKernel(node, "resampling", run, {{DNNL_ARG_SRC, src}, {DNNL_ARG_DST, dst}});
  return plan->InLayout(node, dst, WithType(dst.md, type));
}

}  // namespace

Types InferResize(const NodeReader& node, const Types& inputs) {
  const size_t spatial = SpatialOf(node);
  CheckReal(node, inputs);
  CheckRank(node, inputs, 0, spatial + 2);
  const auto method = node.Get<std::string>("method");
  CORE_CHECK(method == "nearest_neighbor" || method == "linear" || method == "bilinear" ||
             method == "trilinear" || (method == "cubic" && node.OpName() != "nn.upsampling"))
      << node.Where() << ": oneDNN does not support method " << method;
  // Refuses what the lowering could not read.
  Reading::Of(node);
  const std::vector<int> axes = ImageAxes(node);
  const Dims from = PermutedDims(inputs[0].shape, axes);
  Dims dims = from;
  if (node.Has("size")) {
    const auto size = node.Get<std::vector<int64_t>>("size");
    CheckSizes(node, "size", size, 1);
    CORE_CHECK(size.size() == spatial) << node.Where() << ": size " << ToText(size)
                                       << " does not fit " << spatial << " spatial dimensions";
    std::copy(size.begin(), size.end(), dims.begin() + 2);
  } else {
    const std::string letters = ChannelsFirst("NC", spatial);
    for (size_t i = 2; i < dims.size(); ++i) dims[i] = Scaled(node, dims[i], letters[i]);
  }
  const TensorType result{PermutedDims(dims, InversePermutation(axes)),
                          ReadRealType(node, "out_dtype", inputs[0].dtype)};
  // So that what follows is not of huge sizes.
  CheckType(result, node.Where());
  return {result};
}

void LowerResize(const NodeReader& node, PlanBuilder* plan) {
  using Resampling = dnnl::resampling_forward;
  const std::vector<int> axes = ImageAxes(node);
  const Reading reading = Reading::Of(node);
  const bool is_nearest = reading.is_nearest;
  Tensor src = plan->Input(node, 0).Permuted(axes);
  const Dims src_dims = src.dims(), dst_dims = PermutedDims(node.RootDims(), axes);
  bool is_same = true;
  for (size_t i = 2; i < src_dims.size(); ++i) {
    is_same = is_same && IsSame(reading, src_dims[i], dst_dims[i]);
  }
  if (!is_same && (node.NumPostOps() > 0 || node.IsQuantized())) {
    throw dnnl::error(dnnl_unimplemented, "oneDNN samples at other coordinates");
  }
  if (!is_same) src = plan->Plain(node, src);
  // oneDNN interpolates row-major images in reduced precision as slowly as in float32.
  const bool is_own = is_nearest || dnnl::memory::data_type_size(src.dtype()) > 1;
  if (!is_same || (is_own && node.NumPostOps() == 0 && !node.IsQuantized() && IsPlain(src.md))) {
    const auto sample = is_nearest ? Nearest : Interpolated;
    const Tensor dst = sample(node, plan, reading, src, dst_dims);
    return plan->SetOutput(node, dst.Permuted(InversePermutation(axes)));
  }
  const FusedOps fused = FusePostOps(
      node, plan, {-1, [&axes](const Tensor& operand) { return operand.Permuted(axes); }});
  // One position is the same in several layouts. The code of oneDNN 3.6.2 for AVX-512 confuses
  // them, and reads and writes outside of source and result; that of 3.2 does not.
  const bool is_confused =
      std::all_of(src_dims.begin() + 2, src_dims.end(), [](int64_t dim) { return dim == 1; }) &&
      dnnl_version()->minor > 2;
  const dnnl::memory::desc dst_md =
      is_confused ? PlainDesc(dst_dims, node.OutType())
                  : dnnl::memory::desc(dst_dims, node.OutType(), dnnl::memory::format_tag::any);
  const auto describe = [&](const dnnl::memory::desc& src_md) {
    Resampling::primitive_desc desc(
        plan->engine(), dnnl::prop_kind::forward_inference,
        is_nearest ? dnnl::algorithm::resampling_nearest : dnnl::algorithm::resampling_linear,
        src_md, dst_md, fused.attr);
    while (is_confused && IsNative(desc) && desc.next_impl()) continue;
    return desc;
  };
  const auto desc = DescribeForImage(node, plan, &src, describe);
  // The plain loops of oneDNN 3.2 read an operand of the result's shape wrongly.
  if (!IsNative(desc) && node.NumPostOps() > 0) {
    throw dnnl::error(dnnl_unimplemented, "no resampling accepts these post-ops");
  }
  EmitForImage<Resampling>(node, plan, src, desc, fused, axes);
}

}  // namespace tvm::runtime::contrib::dnnl_backend
