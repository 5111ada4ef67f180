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
 * \file src/runtime/contrib/dnnl/core/ops/slice.cc
 * \brief Parts of a tensor, as views.
 */
#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "../op_table.h"
#include "types.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief Where the parts of a split end along an axis of some size. */
Dims SplitEnds(const NodeReader& node, int64_t size, int axis) {
  const auto listed = node.Get<std::vector<int64_t>>("indices_or_sections");
  CheckSizes(node, "indices_or_sections", listed, 1);
  // A list of one index is written as a number of sections is. The graph tells which it is: of two
  // parts, the first ends there.
  const Dims& said = node.Output(0).shape;
  const bool is_number =
      listed.size() == 1 &&
      (node.NumOutputs() != 2 ||
       (listed[0] == 2 && !(axis < static_cast<int>(said.size()) && said[axis] == listed[0])));
  Dims ends = listed;
  if (is_number) {
    const int64_t sections = listed[0];
    CORE_CHECK(sections == node.NumOutputs() && size % sections == 0)
        << node.Where() << ": " << sections << " sections of an axis of " << size << " do not give "
        << node.NumOutputs() << " parts of equal size";
    ends.clear();
    for (int64_t i = 1; i < sections; ++i) ends.push_back(size / sections * i);
  }
  ends.push_back(size);
  CORE_CHECK(static_cast<int>(ends.size()) == node.NumOutputs())
      << node.Where() << ": " << ends.size() << " parts, but " << node.NumOutputs() << " outputs";
  for (size_t i = 1; i < ends.size(); ++i) {
    CORE_CHECK(ends[i - 1] < ends[i]) << node.Where() << ": indices_or_sections " << ToText(listed)
                                      << " do not ascend within an axis of " << size;
  }
  return ends;
}

/*! \brief The part of data that a strided_slice takes, as Relay counts it. */
Slice ReadSlice(const NodeReader& node, const Dims& dims) {
  const size_t rank = dims.size();
  const auto begin = node.Get<std::vector<int64_t>>("begin");
  const auto end = node.Get<std::vector<int64_t>>("end");
  const auto strides = node.Get<std::vector<int64_t>>("strides", {});
  const auto mode = node.Get<std::string>("slice_mode", "end");
  CORE_CHECK(mode == "end" || mode == "size")
      << node.Where() << ": slice_mode is " << mode << ", expected: end or size";
  std::vector<int> axes = ReadAxes(node, "axes", static_cast<int>(rank));
  if (!node.Has("axes")) {
    axes.resize(rank);
    std::iota(axes.begin(), axes.end(), 0);
  }
  CORE_CHECK(begin.size() <= axes.size() && end.size() <= axes.size())
      << node.Where() << ": " << begin.size() << " begins and " << end.size() << " ends of "
      << axes.size() << " axes";
  Slice slice{Dims(rank, 0), dims, Dims(rank, 1)};
  for (size_t i = 0; i < axes.size(); ++i) {
    const int axis = axes[i];
    const int64_t size = dims[axis];
    // From the end if negative; never outside.
    const auto place = [size](int64_t index) {
      return std::min(std::max<int64_t>(index < 0 ? index + size : index, 0), size);
    };
    const int64_t first = i < begin.size() ? place(begin[i]) : 0;
    int64_t last = i < end.size() ? place(end[i]) : size;
    // Sizes instead of ends go without steps; a negative one is all that is left.
    const int64_t step = mode == "end" && i < strides.size() ? strides[i] : 1;
    if (mode == "size" && i < end.size()) {
      last = end[i] < 0 ? size : std::min(size, first + std::min(end[i], size));
    }
    CheckSizes(node, "strides", {step}, 1);
    CORE_CHECK(first < last) << node.Where() << ": the slice of " << size
                             << " values is empty, from " << first << " to " << last;
    slice.begin[axis] = first;
    const int64_t count = (last - first + step - 1) / step;
    // oneDNN counts the memory after an element, up to the next one, as the tensor's.
    CORE_CHECK(count == 1 || count * step <= size)
        << node.Where() << ": " << count << " steps of " << step << " extend beyond the " << size
        << " values of an axis";
    slice.dims[axis] = count;
    // The stride of a single element is never used.
    slice.steps[axis] = count > 1 ? step : 1;
  }
  return slice;
}

}  // namespace

Types InferSplit(const NodeReader& node, const Types& inputs) {
  TensorType part = inputs[0];
  const int axis = node.Axis("axis", 0, static_cast<int>(part.shape.size()));
  Types parts;
  int64_t begin = 0;
  for (int64_t end : SplitEnds(node, part.shape[axis], axis)) {
    part.shape[axis] = end - begin;
    parts.push_back(part);
    begin = end;
  }
  return parts;
}

Types InferStridedSlice(const NodeReader& node, const Types& inputs) {
  return {{ReadSlice(node, inputs[0].shape).dims, inputs[0].dtype}};
}

void LowerSplit(const NodeReader& node, PlanBuilder* plan) {
  const Tensor src = plan->Input(node, 0);
  const size_t rank = src.dims().size();
  const int axis = node.Axis("axis", 0, static_cast<int>(rank));
  Slice slice{Dims(rank, 0), src.dims(), Dims(rank, 1)};
  for (int i = 0; i < node.NumOutputs(); ++i) {
    slice.dims = node.WithoutPostOps().OutDims(i);
    plan->SetOutput(node, plan->Sliced(node, src, slice), i);
    slice.begin[axis] += slice.dims[axis];
  }
}

void LowerStridedSlice(const NodeReader& node, PlanBuilder* plan) {
  const Tensor src = plan->Input(node, 0);
  if (node.Output().shape.empty()) return plan->SetOutput(node, src);
  plan->SetOutput(node, plan->Sliced(node, src, ReadSlice(node, src.dims())));
}

}  // namespace tvm::runtime::contrib::dnnl_backend
