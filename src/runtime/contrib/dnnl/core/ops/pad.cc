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
 * \file src/runtime/contrib/dnnl/core/ops/pad.cc
 * \brief A frame around a tensor: of one value, or of values of its own.
 */
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "../op_table.h"
#include "types.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief The padding before and after each axis, in turn. */
Dims ReadWidths(const NodeReader& node, size_t rank) {
  Dims widths;
  for (const Dims& pair : node.Get<std::vector<Dims>>("pad_width")) {
    widths.insert(widths.end(), pair.begin(), pair.end());
  }
  CheckSizes(node, "pad_width", widths, 0);
  CORE_CHECK(widths.size() == 2 * rank)
      << node.Where() << ": pad_width has " << widths.size() << " numbers for rank " << rank;
  return widths;
}

/*! \brief The value of the frame: a constant of one element, or an attribute. */
Tensor ReadValue(const NodeReader& node, PlanBuilder* plan, dnnl::memory::data_type dtype) {
  if (node.NumRootInputs() == 1) return plan->NewNumber(node.Get<double>("pad_value"), 1);
  const Tensor value = plan->Input(node, 1);
  CORE_CHECK(plan->IsConstant(value)) << node.Where() << ": pad_value is not constant";
  if (value.dtype() != dnnl::memory::data_type::s32 || value.dtype() == dtype) return value;
  // oneDNN copies no such integers into data of reduced precision.
  return plan->NewNumber(plan->ValuesOf<int32_t>(node, value).at(0), 1);
}

std::string ReadMode(const NodeReader& node) {
  auto mode = node.Get<std::string>("pad_mode", "constant");
  CORE_CHECK(mode == "constant" || mode == "edge" || mode == "reflect")
      << node.Where() << ": pad_mode is " << mode << ", expected: constant, edge or reflect";
  return mode;
}

/*! \brief Check what pads: one element of the data's type, or a number that becomes one. */
void CheckValue(const NodeReader& node, const Types& inputs) {
  if (inputs.size() == 1) {
    const auto value = node.Get<double>("pad_value");
    CORE_CHECK(std::isfinite(value)) << node.Where() << ": pad_value is " << value;
    CORE_CHECK(IsReal(inputs[0].dtype))
        << node.Where() << ": pad_value is a number, but the data has type " << ToText(inputs[0]);
    return;
  }
  const TensorType& value = inputs[1];
  // The value that pads data of reduced precision is rounded where it is copied.
  CORE_CHECK(value.dtype == inputs[0].dtype || value.dtype == kInt32 ||
             (value.dtype == kFloat32 && IsReal(inputs[0].dtype)))
      << node.Where() << ": pad_value has type " << ToText(value) << ", but the data has type "
      << ToText(inputs[0]);
  for (int64_t size : value.shape) {
    CORE_CHECK(size == 1) << node.Where() << ": pad_value is not a single element, but "
                          << ToText(value);
  }
}

/*! \brief Check that there is a line of the data for each one of the frame, and few of them. */
void CheckLines(const NodeReader& node, const std::string& mode, const Dims& dims,
                const Dims& widths) {
  // Each is a primitive. The policy has the same number.
  constexpr int64_t kMaxLines = 64;
  int64_t lines = 0;
  for (size_t i = 0; i < widths.size(); ++i) {
    const int64_t dim = dims[i / 2];
    CORE_CHECK(mode == "edge" || widths[i] < dim)
        << node.Where() << ": pad_width " << widths[i] << " reflects " << dim
        << " lines along axis " << i / 2;
    CORE_CHECK(widths[i] <= kMaxLines - lines)
        << node.Where() << ": pad_mode " << mode << " with pad_width " << ToText(widths)
        << " copies more than " << kMaxLines << " lines";
    lines += widths[i];
  }
}

/*! \brief Call a function with one part of a slice after the other, of no more elements than these.
 */
template <typename Function>
void ForEachPart(const Slice& slice, int64_t most, const Function& function) {
  Dims step = slice.dims;
  for (size_t axis = 0; NumElements(step) > most; ++axis) {
    step[axis] = std::max<int64_t>(1, most / (NumElements(step) / step[axis]));
  }
  const auto end = [&slice](size_t axis) { return slice.begin[axis] + slice.dims[axis]; };
  Slice part = slice;
  for (size_t axis = 0; axis < step.size();) {
    for (size_t i = 0; i < step.size(); ++i) {
      part.dims[i] = std::min(step[i], end(i) - part.begin[i]);
    }
    function(part);
    // To the next part: the first axis along which there is one, back to the start along those
    // before.
    for (axis = 0; axis < step.size() && (part.begin[axis] += step[axis]) >= end(axis); ++axis) {
      part.begin[axis] = slice.begin[axis];
    }
  }
}

/*! \brief The part of a tensor with one or more lines along an axis. */
Slice WithLines(Slice slice, size_t axis, int64_t begin, int64_t count) {
  slice.begin[axis] = begin;
  slice.dims[axis] = count;
  return slice;
}

}  // namespace

Types InferPad(const NodeReader& node, const Types& inputs) {
  const std::string mode = ReadMode(node);
  if (mode == "constant") CheckValue(node, inputs);
  TensorType result = inputs[0];
  const Dims widths = ReadWidths(node, result.shape.size());
  if (mode != "constant") CheckLines(node, mode, result.shape, widths);
  for (size_t axis = 0; axis < result.shape.size(); ++axis) {
    result.shape[axis] += widths[2 * axis] + widths[2 * axis + 1];
  }
  return {result};
}

void LowerPad(const NodeReader& node, PlanBuilder* plan) {
  const Tensor src = plan->Input(node, 0);
  const Dims dims = node.RootDims();
  // So is a scalar, which has one dimension here.
  if (dims == src.dims()) return plan->SetOutput(node, src);
  const size_t rank = dims.size();
  const Dims widths = ReadWidths(node, rank);
  const std::string mode = ReadMode(node);
  const bool has_blocks = !src.md.get_inner_blks().empty();
  const Tensor dst =
      plan->NewTensor(has_blocks ? PlainDesc(dims, src.dtype()) : InOrderOf(src.md, dims));
  const bool is_filled = mode == "constant";
  // A larger frame is copied part by part.
  constexpr int64_t kMostFilled = 1 << 20;
  const int64_t filled = std::min(NumElements(dims) - NumElements(src.dims()), kMostFilled);
  Tensor frame;
  if (is_filled) frame = plan->Filled(node, ReadValue(node, plan, src.dtype()), {filled});
  Slice slice{Dims(rank, 0), src.dims(), Dims(rank, 1)};
  const auto fill = [&](size_t axis, int64_t begin, int64_t count) {
    if (count == 0) return;
    ForEachPart(WithLines(slice, axis, begin, count), kMostFilled, [&](const Slice& part) {
      const auto [md, offset] = SlicedDesc(dst.md, part);
      const Tensor values = plan->Sliced(node, frame, {{0}, {NumElements(part.dims)}, {1}});
      plan->CopyInto(node, values.Reshaped(part.dims), dst, md, offset);
    });
  };
  const auto copy = [&](size_t axis, int64_t from, int64_t to) {
    const auto [md, offset] = SlicedDesc(dst.md, WithLines(slice, axis, to, 1));
    const Tensor line = plan->Sliced(node, dst, WithLines(slice, axis, from, 1));
    plan->CopyInto(node, line, dst, md, offset);
  };
  for (size_t axis = 0; axis < rank; ++axis) slice.begin[axis] = widths[2 * axis];
  const auto [md, offset] = SlicedDesc(dst.md, slice);
  if (!plan->MovedInto(src, dst, md, offset)) plan->CopyInto(node, src, dst, md, offset);
  // Axis by axis the slice grows to the size of the result: what comes before and after the data
  // along one axis is padded along the axes before it, and not yet along those after it.
  for (size_t axis = 0; axis < rank; ++axis) {
    const int64_t before = widths[2 * axis], after = widths[2 * axis + 1];
    const int64_t first = before, last = dims[axis] - after - 1;
    if (is_filled) {
      fill(axis, 0, before);
      fill(axis, last + 1, after);
    } else {
      // A mirror does not repeat the edge.
      const int64_t inwards = mode == "edge" ? 0 : 1;
      for (int64_t i = 1; i <= before; ++i) copy(axis, first + i * inwards, first - i);
      for (int64_t i = 1; i <= after; ++i) copy(axis, last - i * inwards, last + i);
    }
    slice = WithLines(std::move(slice), axis, 0, dims[axis]);
  }
  plan->SetOutput(node, dst);
}

}  // namespace tvm::runtime::contrib::dnnl_backend
