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
 * \file src/runtime/contrib/dnnl/core/ops/attention.cc
 * \brief Attention of queries to keys and values, as one op.
 */
#include "../kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "../op_table.h"
#include "loops.h"
#include "types.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

ZeroRows ReadZeroRows(const NodeReader& node) {
  const auto softmax = node.Get<std::string>("softmax", "nn.softmax");
  if (softmax == "dnnl.masked_softmax") return ZeroRows::kMasked;
  if (softmax == "dnnl.nan_safe_softmax") return ZeroRows::kAll;
  CORE_CHECK(softmax == "nn.softmax")
      << node.Where() << ": softmax is " << softmax
      << ", expected: nn.softmax, dnnl.masked_softmax or dnnl.nan_safe_softmax";
  return ZeroRows::kNone;
}

bool AllowsBFloat16(const NodeReader& node) {
  const auto dtype = node.Get<std::string>("fpmath", "float32");
  CORE_CHECK(dtype == "float32" || dtype == "bfloat16")
      << node.Where() << ": fpmath is " << dtype << ", expected: float32 or bfloat16";
  return dtype == "bfloat16";
}

float ReadScale(const NodeReader& node) {
  const auto scale = static_cast<float>(node.Get<double>("scale"));
  CORE_CHECK(std::isfinite(scale)) << node.Where() << ": scale is not finite";
  return scale;
}

/*! \brief The value with contiguous rows: as it is, if its strides allow. */
Tensor WithRows(const NodeReader& node, PlanBuilder* plan, const Tensor& value) {
  const Tensor strided = WithStrides(node, plan, value);
  const bool has_rows = strided.dims().back() == 1 || strided.md.get_strides().back() == 1;
  return has_rows ? strided : plan->Plain(node, strided);
}

/*! \brief Dimensions with a batch, which matrices of heads alone have none of. */
Dims WithBatch(Dims dims) {
  if (dims.size() == 3) dims.insert(dims.begin(), 1);
  return dims;
}

std::array<int64_t, 3> StridesOfRows(const Tensor& value) {
  const Dims strides = WithBatch(value.md.get_strides());
  return {strides[0], strides[1], strides[2]};
}

/*!
 * \brief The descriptor of the result: with the heads of a query beside each other, as the next op
 *        reads them, which joins the heads.
 */
dnnl::memory::desc ResultDesc(const Dims& dims, dnnl::memory::data_type dtype) {
  if (dims.size() < 4 || dims[1] == 1 || dims[2] == 1) return PlainDesc(dims, dtype);
  const int64_t row = dims[1] * dims[3];
  return dnnl::memory::desc(dims, dtype, Dims{dims[2] * row, dims[3], row, 1});
}

template <typename T>
HostKernel KernelOf(const AttentionShape& shape, int num_masks,
                    const std::array<bool, kAttentionMasks>& mask_is_float, int64_t threads) {
  return [=](void* const* addresses) {
    AttentionData<T> data;
    data.query = static_cast<const T*>(addresses[0]);
    data.key = static_cast<const T*>(addresses[1]);
    data.value = static_cast<const T*>(addresses[2]);
    data.workspace = static_cast<float*>(addresses[3]);
    data.result = static_cast<T*>(addresses[4]);
    data.masks = {};
    std::copy(addresses + 5, addresses + 5 + num_masks, data.masks.begin());
    data.mask_is_float = mask_is_float;
    data.threads = threads;
    Attention(shape, data);
  };
}

}  // namespace

Types InferAttention(const NodeReader& node, const Types& inputs) {
  const size_t rank = inputs[0].shape.size();
  CORE_CHECK(rank == 3 || rank == 4)
      << node.Where() << ": input 0 is " << ToText(inputs[0]) << ", expected: rank 3 or 4";
  for (int i = 1; i < 3; ++i) {
    CheckRank(node, inputs, i, rank);
    CORE_CHECK(inputs[i].dtype == inputs[0].dtype)
        << node.Where() << ": input " << i << " is " << ToText(inputs[i]) << ", the query is "
        << ToText(inputs[0]);
  }
  const DLDataType dtype = inputs[0].dtype;
  CORE_CHECK(dtype == kFloat32 || (dtype.code == kDLBfloat && dtype.bits == 16))
      << node.Where() << ": input 0 is " << ToText(inputs[0]) << ", expected: float32 or bfloat16";
  const Dims query = WithBatch(inputs[0].shape), key = WithBatch(inputs[1].shape);
  const Dims value = WithBatch(inputs[2].shape);
  CORE_CHECK(query[0] == key[0] && query[0] == value[0] && key[1] == value[1] &&
             key[2] == value[2] && query[3] == key[3])
      << node.Where() << ": a query of shape " << ToText(query) << " does not fit keys of "
      << ToText(key) << " and values of " << ToText(value);
  CORE_CHECK(query[1] % key[1] == 0) << node.Where() << ": " << query[1]
                                     << " heads are no multiple of " << key[1] << " heads of keys";
  const Dims scores = {query[0], query[1], query[2], key[2]};
  for (size_t i = 3; i < inputs.size(); ++i) {
    const Dims& mask = inputs[i].shape;
    CORE_CHECK(inputs[i].dtype == kFloat32 || inputs[i].dtype == dtype)
        << node.Where() << ": the mask is " << ToText(inputs[i]) << ", expected: float32 or "
        << ToText(dtype);
    CORE_CHECK(mask.size() <= rank &&
               BroadcastDims(node, "a mask and scores", mask, scores) == scores)
        << node.Where() << ": a mask of shape " << ToText(mask) << " cannot be broadcast to "
        << ToText(scores);
  }
  CheckFlags(node, {"causal"});
  ReadScale(node);
  ReadZeroRows(node);
  AllowsBFloat16(node);
  Dims result = inputs[0].shape;
  result.back() = value[3];
  return {{result, dtype}};
}

double AttentionFlops(const NodeReader& node, const PlanBuilder& plan) {
  const Dims query = plan.Input(node, 0).dims(), value = WithBatch(plan.Input(node, 2).dims());
  return 1.0 * NumElements(query) / query.back() * value[2] * (query.back() + value[3]);
}

void LowerAttention(const NodeReader& node, PlanBuilder* plan) {
  const Tensor query = WithRows(node, plan, plan->Input(node, 0));
  const Tensor key = WithRows(node, plan, plan->Input(node, 1));
  const Tensor value = WithRows(node, plan, plan->Input(node, 2));
  const Tensor dst = plan->NewTensor(ResultDesc(node.OutDims(), node.OutType()));
  const Dims q = WithBatch(query.dims()), k = WithBatch(key.dims());
  const int64_t width = q[3], value_width = value.dims().back();

  AttentionShape shape{};
  shape.batch = q[0];
  shape.heads = q[1];
  shape.kv_heads = k[1];
  shape.queries = q[2];
  shape.keys = k[2];
  shape.width = width;
  shape.value_width = value_width;
  shape.query = StridesOfRows(query);
  shape.key = StridesOfRows(key);
  shape.value = StridesOfRows(value);
  shape.result = StridesOfRows(dst);
  shape.scale = ReadScale(node);
  shape.is_causal = node.Get<bool>("causal", false);
  shape.allows_bfloat16 = AllowsBFloat16(node);
  shape.zeros = ReadZeroRows(node);

  const int64_t threads = std::max(1, CurrentNumThreads());
  const Tensor workspace = plan->NewTensor(
      PlainDesc({AttentionWorkspace(shape, threads)}, dnnl::memory::data_type::f32));
  PlanBuilder::Args args = {{DNNL_ARG_SRC_0, query},
                            {DNNL_ARG_SRC_1, key},
                            {DNNL_ARG_SRC_2, value},
                            {DNNL_ARG_WORKSPACE, workspace},
                            {DNNL_ARG_DST, dst}};
  const int num_masks = node.NumRootInputs() - 3;
  std::array<bool, kAttentionMasks> mask_is_float{};
  for (int i = 0; i < num_masks; ++i) {
    const Tensor mask = WithRows(node, plan, plan->Input(node, 3 + i));
    mask_is_float[i] = mask.dtype() == dnnl::memory::data_type::f32;
    const Dims strides = BroadcastStrides(mask, {q[0], q[1], q[2], k[2]});
    std::copy(strides.begin(), strides.end(), shape.masks[i].begin());
    args.emplace_back(DNNL_ARG_ATTR_MULTIPLE_POST_OP(i) | DNNL_ARG_SRC_1, mask);
  }
  plan->EmitKernel(node, "attention",
                   dst.dtype() == dnnl::memory::data_type::f32
                       ? KernelOf<float>(shape, num_masks, mask_is_float, threads)
                       : KernelOf<uint16_t>(shape, num_masks, mask_is_float, threads),
                   std::move(args));
  plan->SetOutput(node, dst);
}

}  // namespace tvm::runtime::contrib::dnnl_backend
