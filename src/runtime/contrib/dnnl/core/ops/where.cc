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
 * \file src/runtime/contrib/dnnl/core/ops/where.cc
 * \brief Selections and comparisons of operands that are broadcast, and a broadcast alone.
 */
#include <algorithm>
#include <cstring>
#include <utility>

#include "../kernels/compare.h"
#include "../kernels/select.h"
#include "../op_table.h"
#include "loops.h"
#include "types.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief Copy `count` elements that are a stride apart. */
template <typename T>
void CopyRow(const T* src, int64_t stride, T* dst, int64_t count) {
  if (stride == 1) {
    std::memcpy(dst, src, count * sizeof(T));
  } else if (stride == 0) {
    std::fill(dst, dst + count, *src);
  } else {
    for (int64_t i = 0; i < count; ++i) dst[i] = src[i * stride];
  }
}

/*! \brief Select between elements that are strides apart: of the condition, x and y. */
template <typename T>
void SelectRow(const uint8_t* condition, const T* x, const T* y, const Loops<3>::Offsets& strides,
               T* dst, int64_t count) {
  const auto [step, x_step, y_step] = strides;
  if (step == 0) {
    const bool is_x = *condition != 0;
    CopyRow(is_x ? x : y, is_x ? x_step : y_step, dst, count);
  } else if (step == 1 && x_step <= 1 && y_step <= 1) {
    Select(condition, x, x_step, y, y_step, dst, count);
  } else {
    for (int64_t i = 0; i < count; ++i) {
      dst[i] = condition[i * step] != 0 ? x[i * x_step] : y[i * y_step];
    }
  }
}

template <typename T>
HostKernel WhereKernel(Loops<3> loops) {
  return [loops = std::move(loops)](void* const* addresses) {
    const auto* condition = static_cast<const uint8_t*>(addresses[0]);
    const auto* x = static_cast<const T*>(addresses[1]);
    const auto* y = static_cast<const T*>(addresses[2]);
    auto* dst = static_cast<T*>(addresses[3]);
    loops.Run([&](const Loops<3>::Offsets& at, int64_t begin, int64_t count) {
      SelectRow(condition + at[0], x + at[1], y + at[2], loops.strides(), dst + begin, count);
    });
  };
}

template <typename T>
HostKernel BroadcastKernel(Loops<1> loops) {
  return [loops = std::move(loops)](void* const* addresses) {
    const auto* src = static_cast<const T*>(addresses[0]);
    auto* dst = static_cast<T*>(addresses[1]);
    loops.Run([&](const Loops<1>::Offsets& at, int64_t begin, int64_t count) {
      CopyRow(src + at[0], loops.strides()[0], dst + begin, count);
    });
  };
}

/*! \brief The bits of infinity in a type of 16 bits. */
uint16_t InfinityOf(const Tensor& value) {
  return value.dtype() == dnnl::memory::data_type::bf16 ? 0x7f80 : 0x7c00;
}

/*! \brief The comparison of a table's op, or of its operands in the other order. */
Comparison ComparisonOf(dnnl::algorithm algorithm) {
  switch (algorithm) {
    case dnnl::algorithm::binary_eq:
      return Comparison::kEqual;
    case dnnl::algorithm::binary_ne:
      return Comparison::kNotEqual;
    case dnnl::algorithm::binary_lt:
    case dnnl::algorithm::binary_gt:
      return Comparison::kLess;
    default:
      return Comparison::kLessEqual;
  }
}

}  // namespace

Types InferWhere(const NodeReader& node, const Types& inputs) {
  CORE_CHECK(inputs[0].dtype == kBool)
      << node.Where() << ": input 0 is " << ToText(inputs[0]) << ", expected: bool";
  CORE_CHECK(inputs[1].dtype == inputs[2].dtype)
      << node.Where() << ": inputs 1 and 2 are " << ToText(inputs[1]) << " and "
      << ToText(inputs[2]);
  const Dims dims = BroadcastDims(node, "shapes", inputs[1].shape, inputs[2].shape);
  return {{BroadcastDims(node, "shapes", inputs[0].shape, dims), inputs[1].dtype}};
}

Types InferExtremum(const NodeReader& node, const Types& inputs) {
  CheckReal(node, inputs);
  return {{BroadcastDims(node, "shapes", inputs[0].shape, inputs[1].shape), inputs[0].dtype}};
}

Types InferComparison(const NodeReader& node, const Types& inputs) {
  CheckReal(node, inputs);
  return {{BroadcastDims(node, "shapes", inputs[0].shape, inputs[1].shape), kBool}};
}

Types InferBroadcastTo(const NodeReader& node, const Types& inputs) {
  const Dims& from = inputs[0].shape;
  // No attribute tells the shape. An open dimension is that of the data.
  CORE_CHECK(!node.Has("post_ops")) << node.Where() << ": post-ops are not supported";
  Dims dims = node.Output().shape;
  const auto check = [&](bool condition) {
    CORE_CHECK(condition) << node.Where() << ": data of shape " << ToText(from)
                          << " cannot be broadcast to " << ToText(node.Output().shape);
  };
  check(dims.size() >= from.size());
  const size_t missing = dims.size() - from.size();
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t own = i < missing ? 1 : from[i - missing];
    if (dims[i] == kOpen) dims[i] = own;
    check(own == 1 || own == dims[i]);
  }
  return {{dims, inputs[0].dtype}};
}

void LowerWhere(const NodeReader& node, PlanBuilder* plan) {
  const Dims dims = node.OutDims();
  std::array<Dims, 3> strides;
  PlanBuilder::Args args;
  for (int i = 0; i < 3; ++i) {
    const Tensor operand = WithStrides(node, plan, plan->Input(node, i));
    strides[i] = BroadcastStrides(operand, dims);
    args.emplace_back(i == 0 ? DNNL_ARG_SRC_0 : i == 1 ? DNNL_ARG_SRC_1 : DNNL_ARG_SRC_2, operand);
  }
  const Tensor dst = plan->NewTensor(PlainDesc(dims, node.OutType()));
  args.emplace_back(DNNL_ARG_DST, dst);
  const Loops<3> loops(dims, strides);
  const size_t bytes = dnnl::memory::data_type_size(dst.dtype());
  plan->EmitKernel(node, "select",
                   bytes == 1   ? WhereKernel<uint8_t>(loops)
                   : bytes == 2 ? WhereKernel<uint16_t>(loops)
                                : WhereKernel<uint32_t>(loops),
                   args);
  plan->SetOutput(node, dst);
}

void LowerExtremum(const NodeReader& node, PlanBuilder* plan) {
  Dims dims = node.OutDims();
  Tensor a = plan->Input(node, 0), b = plan->Input(node, 1), dst;
  std::array<Dims, 2> strides;
  const auto size = static_cast<int64_t>(a.md.get_size() / dnnl::memory::data_type_size(a.dtype()));
  if (a.md == b.md && size == NumElements(a.md.get_padded_dims())) {
    // Whatever the layout, also what pads its blocks.
    dst = plan->NewTensor(a.md);
    dims = {size};
    strides = {Dims{1}, Dims{1}};
  } else {
    a = WithStrides(node, plan, a);
    b = WithStrides(node, plan, b);
    dst = plan->NewTensor(PlainDesc(dims, node.OutType()));
    strides = {BroadcastStrides(a, dims), BroadcastStrides(b, dims)};
  }
  const Loops<2> loops(dims, strides);
  const bool is_max = SpecOf(node).algorithm == dnnl::algorithm::binary_max;
  const uint16_t infinity = InfinityOf(dst);
  const auto compute = [is_max](auto... part) { Extremum(is_max, part...); };
  const auto compute16 = [is_max, infinity](auto... part) { Extremum(is_max, infinity, part...); };
  plan->EmitKernel(node, "select",
                   dst.dtype() == dnnl::memory::data_type::f32
                       ? PairsKernel<float>(loops, compute)
                       : PairsKernel<uint16_t>(loops, compute16),
                   {{DNNL_ARG_SRC_0, a}, {DNNL_ARG_SRC_1, b}, {DNNL_ARG_DST, dst}});
  plan->OfferInPlace(DNNL_ARG_SRC_0);
  plan->SetOutput(node, dst);
}

void LowerComparison(const NodeReader& node, PlanBuilder* plan) {
  const dnnl::algorithm algorithm = SpecOf(node).algorithm;
  const bool is_greater =
      algorithm == dnnl::algorithm::binary_gt || algorithm == dnnl::algorithm::binary_ge;
  const Comparison comparison = ComparisonOf(algorithm);
  Tensor a = WithStrides(node, plan, plan->Input(node, 0));
  Tensor b = WithStrides(node, plan, plan->Input(node, 1));
  if (is_greater) std::swap(a, b);
  const Dims dims = node.OutDims();
  const Tensor dst = plan->NewTensor(PlainDesc(dims, node.OutType()));
  const Loops<2> loops(dims, {BroadcastStrides(a, dims), BroadcastStrides(b, dims)});
  const uint16_t infinity = InfinityOf(a);
  const auto compute = [=](auto... part) { Compare(comparison, part...); };
  const auto compute16 = [=](auto... part) { Compare(comparison, infinity, part...); };
  plan->EmitKernel(node, "compare",
                   a.dtype() == dnnl::memory::data_type::f32
                       ? PairsKernel<float, uint8_t>(loops, compute)
                       : PairsKernel<uint16_t, uint8_t>(loops, compute16),
                   {{DNNL_ARG_SRC_0, a}, {DNNL_ARG_SRC_1, b}, {DNNL_ARG_DST, dst}});
  plan->SetOutput(node, dst);
}

Tensor Broadcast(const NodeReader& node, PlanBuilder* plan, const Tensor& value, const Dims& dims) {
  const Tensor src = WithStrides(node, plan, value);
  const Tensor dst = plan->NewTensor(PlainDesc(dims, value.dtype()));
  const Loops<1> loops(dims, {BroadcastStrides(src, dims)});
  const size_t bytes = dnnl::memory::data_type_size(dst.dtype());
  plan->EmitKernel(node, "broadcast",
                   bytes == 1   ? BroadcastKernel<uint8_t>(loops)
                   : bytes == 2 ? BroadcastKernel<uint16_t>(loops)
                                : BroadcastKernel<uint32_t>(loops),
                   {{DNNL_ARG_SRC, src}, {DNNL_ARG_DST, dst}});
  return dst;
}

void LowerBroadcastTo(const NodeReader& node, PlanBuilder* plan) {
  plan->SetOutput(node, Broadcast(node, plan, plan->Input(node, 0), node.OutDims()));
}

}  // namespace tvm::runtime::contrib::dnnl_backend
