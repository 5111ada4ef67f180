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
 * \brief A frame of one value around a tensor.
 */
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "../op_table.h"
#include "types.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief How much goes before and behind each axis, in turn. */
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

/*! \brief What the frame consists of: a constant of one element, or an attribute. */
Tensor ReadValue(const NodeReader& node, PlanBuilder* plan) {
  if (node.NumRootInputs() == 2) return plan->Input(node, 1);
  const auto value = static_cast<float>(node.Get<double>("pad_value"));
  int32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  Tensor result = plan->NewConstant(bits);
  result.md = PlainDesc({1}, dnnl::memory::data_type::f32);
  return result;
}

}  // namespace

Types InferPad(const NodeReader& node, const Types& inputs) {
  const auto mode = node.Get<std::string>("pad_mode", "constant");
  CORE_CHECK(mode == "constant") << node.Where() << ": pad_mode is " << mode
                                 << ", expected: constant";
  const bool is_attribute = inputs.size() == 1;
  const DLDataType dtype = is_attribute ? kFloat32 : inputs[1].dtype;
  // What pads data of reduced precision is rounded where it is copied.
  CORE_CHECK(dtype == inputs[0].dtype || (dtype == kFloat32 && IsReal(inputs[0].dtype)))
      << node.Where() << ": the data are " << ToText(inputs[0]) << ", what pads them is not";
  if (is_attribute) {
    const auto value = node.Get<double>("pad_value");
    CORE_CHECK(std::isfinite(value)) << node.Where() << ": pad_value is " << value;
  } else {
    for (int64_t size : inputs[1].shape) {
      CORE_CHECK(size == 1) << node.Where() << ": pads with " << ToText(inputs[1]);
    }
  }
  TensorType result = inputs[0];
  const Dims widths = ReadWidths(node, result.shape.size());
  for (size_t axis = 0; axis < result.shape.size(); ++axis) {
    result.shape[axis] += widths[2 * axis] + widths[2 * axis + 1];
  }
  return {result};
}

void LowerPad(const NodeReader& node, PlanBuilder* plan) {
  const Tensor src = plan->Input(node, 0), value = ReadValue(node, plan);
  const Dims dims = node.OutDims();
  const size_t rank = node.Output().shape.size();
  const Dims widths = ReadWidths(node, rank);
  if (dims == src.dims()) return plan->SetOutput(node, src);
  const Tensor dst = plan->NewTensor(PlainDesc(dims, src.dtype()));
  // The slabs before and behind the data along one axis have, along the axes before it, the data's
  // size, so that none overlaps another.
  Slice slice{Dims(rank, 0), dims, Dims(rank, 1)};
  const auto region = [&] { return SlicedDesc(dst.md, slice); };
  for (size_t axis = 0; axis < rank; ++axis) {
    const int64_t before = widths[2 * axis], behind = widths[2 * axis + 1];
    for (const auto& [begin, width] :
         {std::pair(int64_t{0}, before), std::pair(dims[axis] - behind, behind)}) {
      if (width == 0) continue;
      slice.begin[axis] = begin;
      slice.dims[axis] = width;
      const auto [md, offset] = region();
      plan->CopyInto(node, plan->Filled(node, value, slice.dims), dst, md, offset);
    }
    slice.begin[axis] = before;
    slice.dims[axis] = src.dims()[axis];
  }
  const auto [md, offset] = region();
  if (!plan->MovedInto(src, dst, md, offset)) plan->CopyInto(node, src, dst, md, offset);
  plan->SetOutput(node, dst);
}

}  // namespace tvm::runtime::contrib::dnnl_backend
