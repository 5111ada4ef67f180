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
 * \file src/runtime/contrib/dnnl/core/ops/concat.cc
 * \brief Concatenation; its inputs are computed in the memory of the result where possible.
 */
#include <utility>
#include <vector>

#include "../implementation.h"
#include "../op_table.h"
#include "changing_sizes.h"
#include "types.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

using Concat = dnnl::concat;

/*! \brief oneDNN numbers the sources of a primitive; the numbers after these are results. */
constexpr size_t kMostSources = DNNL_ARG_MULTIPLE_DST - DNNL_ARG_MULTIPLE_SRC;

/*! \brief Where the parts lie in a tensor; empty where one of them splits a block. */
std::vector<std::pair<dnnl::memory::desc, size_t>> RegionsOf(const std::vector<Tensor>& parts,
                                                             int axis,
                                                             const dnnl::memory::desc& joined) {
  std::vector<std::pair<dnnl::memory::desc, size_t>> regions;
  Slice slice{Dims(joined.get_ndims(), 0), {}, Dims(joined.get_ndims(), 1)};
  for (const Tensor& part : parts) {
    slice.dims = part.dims();
    regions.push_back(SlicedDesc(joined, slice));
    if (!regions.back().first) return {};
    slice.begin[axis] += slice.dims[axis];
  }
  return regions;
}

/*! \brief The primitive, its result in the layout of the first part that is not row-major. */
Concat::primitive_desc Describe(const NodeReader& node, PlanBuilder* plan,
                                const std::vector<Tensor>& parts, int axis) {
  std::vector<dnnl::memory::desc> sources;
  for (const Tensor& part : parts) sources.push_back(part.md);
  auto model = sources[0];
  for (auto it = sources.rbegin(); it != sources.rend(); ++it) {
    if (!IsPlain(*it)) model = *it;
  }
  if (!model.get_inner_blks().empty()) {
    return Concat::primitive_desc(plan->engine(), axis, sources, PlanBuilder::NewAttr());
  }
  return Concat::primitive_desc(plan->engine(), InOrderOf(model, node.OutDims()), axis, sources,
                                PlanBuilder::NewAttr());
}

Tensor Concatenated(const NodeReader& node, PlanBuilder* plan, const std::vector<Tensor>& parts,
                    int axis) {
  const Tensor rows = ConcatenateRows(node, plan, parts, axis);
  if (rows.defined()) return rows;
  const bool is_one = parts.size() <= kMostSources;
  Concat::primitive_desc desc;
  if (is_one) desc = Describe(node, plan, parts, axis);
  Tensor dst =
      plan->NewTensor(is_one ? desc.dst_desc() : PlainDesc(node.OutDims(), parts[0].dtype()));
  auto regions = RegionsOf(parts, axis, dst.md);
  std::vector<bool> is_moved(parts.size(), false);
  bool is_any_moved = false;
  for (size_t i = 0; i < regions.size(); ++i) {
    is_moved[i] = plan->MovedInto(parts[i], dst, regions[i].first, regions[i].second);
    is_any_moved = is_any_moved || is_moved[i];
  }
  if (is_one && !is_any_moved && !IsReference(desc)) {
    PlanBuilder::Args args = {{DNNL_ARG_DST, dst}};
    for (size_t i = 0; i < parts.size(); ++i) {
      args.emplace_back(DNNL_ARG_MULTIPLE_SRC + static_cast<int>(i), parts[i]);
    }
    plan->Emit(node, desc, Concat(desc), args);
    return dst;
  }
  if (regions.empty()) {
    dst = plan->NewTensor(PlainDesc(dst.dims(), dst.dtype()));
    regions = RegionsOf(parts, axis, dst.md);
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!is_moved[i]) plan->CopyInto(node, parts[i], dst, regions[i].first, regions[i].second);
  }
  return dst;
}

}  // namespace

Types InferConcat(const NodeReader& node, const Types& inputs) {
  TensorType result = inputs[0];
  const int axis = node.Axis("axis", 0, static_cast<int>(result.shape.size()));
  for (size_t i = 1; i < inputs.size(); ++i) {
    Dims dims = inputs[i].shape;
    bool fits = dims.size() == result.shape.size() && inputs[i].dtype == result.dtype;
    if (fits) {
      result.shape[axis] += dims[axis];
      dims[axis] = result.shape[axis];
      fits = dims == result.shape;
    }
    CORE_CHECK(fits) << node.Where() << ": input " << i << ", " << ToText(inputs[i])
                     << ", cannot be concatenated to input 0, " << ToText(inputs[0])
                     << ", along axis " << axis;
  }
  return {result};
}

Types InferStack(const NodeReader& node, const Types& inputs) {
  TensorType result = inputs[0];
  const int axis = node.Axis("axis", 0, static_cast<int>(result.shape.size()) + 1);
  for (size_t i = 1; i < inputs.size(); ++i) {
    CORE_CHECK(inputs[i].shape == result.shape && inputs[i].dtype == result.dtype)
        << node.Where() << ": input " << i << ", " << ToText(inputs[i])
        << ", has a different type than input 0, " << ToText(inputs[0]);
  }
  result.shape.insert(result.shape.begin() + axis, static_cast<int64_t>(inputs.size()));
  return {result};
}

void LowerConcat(const NodeReader& node, PlanBuilder* plan) {
  const int axis = node.Axis("axis", 0, static_cast<int>(node.OutDims().size()));
  const bool adds = node.NumRootInputs() > 1 && NumElements(plan->Input(node, 1).dims()) > 0;
  if (adds && plan->ReservedAxis(node) == axis) {
    return plan->SetOutput(node, AppendRows(node, plan, axis));
  }
  std::vector<Tensor> parts;
  for (int i = 0; i < node.NumRootInputs(); ++i) {
    // As a cache is at first.
    if (NumElements(plan->Input(node, i).dims()) > 0) parts.push_back(plan->Input(node, i));
  }
  if (parts.size() == 1) return plan->SetOutput(node, parts[0]);
  plan->SetOutput(node, Concatenated(node, plan, parts, axis));
}

void LowerStack(const NodeReader& node, PlanBuilder* plan) {
  const int axis = node.Axis("axis", 0, static_cast<int>(node.OutDims().size()));
  Dims dims = node.OutDims();
  dims[axis] = 1;
  std::vector<Tensor> parts;
  for (int i = 0; i < node.NumRootInputs(); ++i) {
    parts.push_back(plan->Reshaped(node, plan->Input(node, i), dims));
  }
  plan->SetOutput(node, Concatenated(node, plan, parts, axis));
}

}  // namespace tvm::runtime::contrib::dnnl_backend
