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
 * \file src/runtime/contrib/dnnl/core/ops/experts.cc
 * \brief Matmuls of mixtures of experts: each row by the weights that a mask selects.
 */
#include <algorithm>
#include <cstring>
#include <string>

#include "../exec/parallel.h"
#include "../kernels/few_rows.h"
#include "../op_table.h"
#include "rows.h"
#include "types.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief Up to so many rows the weights are multiplied as they are; of more, sgemm packs them. */
constexpr int64_t kFewExpertRows = 4;

struct ExpertSizes {
  int64_t rows, columns, units, experts;
  /*! \brief What messages call the node. */
  std::string where;
};

/*! \brief The addresses of a run. */
struct ExpertAddresses {
  const float *data, *weights;
  const uint8_t* mask;
  float *dst, *gathered, *products;
  /*! \brief The rows of an expert. */
  int32_t* places;
};

/*! \brief products = data * weight^T of so many adjacent rows. */
void MultiplyExpert(const ExpertSizes& s, int64_t rows, const float* data, const float* weight,
                    float* products) {
  if (rows > kFewExpertRows) {
    MultiplyByRows(s.where, rows, s.units, s.columns, data, weight, products, s.units);
    return;
  }
  // A thread is worth 32 KB of weights.
  const int64_t grain = std::max<int64_t>(1, 8192 / std::max<int64_t>(1, s.columns));
  const FewRows sizes = {rows, s.units, s.columns, s.columns, s.units, s.columns, 1.f};
  ParallelFor(s.units, grain, [&](int64_t first, int64_t last) {
    MultiplyFewRows(data, weight, products, sizes, /*is_transposed=*/true, first, last);
  });
}

void RunExperts(const ExpertSizes& s, const ExpertAddresses& a) {
  std::memset(a.dst, 0, s.rows * s.units * sizeof(float));
  for (int64_t e = 0; e < s.experts; ++e) {
    int64_t count = 0;
    for (int64_t m = 0; m < s.rows; ++m) {
      if (a.mask[m * s.experts + e] != 0) a.places[count++] = static_cast<int32_t>(m);
    }
    if (count == 0) continue;
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(a.gathered + i * s.columns, a.data + a.places[i] * s.columns,
                  s.columns * sizeof(float));
    }
    MultiplyExpert(s, count, a.gathered, a.weights + e * s.units * s.columns, a.products);
    for (int64_t i = 0; i < count; ++i) {
      const float* from = a.products + i * s.units;
      float* to = a.dst + a.places[i] * s.units;
      for (int64_t n = 0; n < s.units; ++n) to[n] += from[n];
    }
  }
}

}  // namespace

Types InferExpertDense(const NodeReader& node, const Types& inputs) {
  CheckRank(node, inputs, 0, 2);
  for (int i : {1, 2}) CheckRank(node, inputs, i, 3);
  const Dims &data = inputs[0].shape, &weight = inputs[1].shape;
  const Dims mask = {data[0], weight[0], 1};
  CORE_CHECK(inputs[0].dtype == kFloat32 && inputs[1].dtype == kFloat32)
      << node.Where() << ": data and weight are " << ToText(inputs[0]) << " and "
      << ToText(inputs[1]) << ", expected: float32";
  CORE_CHECK(data[0] <= kMaxSize && data[1] == weight[2])
      << node.Where() << ": data is " << ToText(inputs[0]) << ", but the weight is "
      << ToText(inputs[1]);
  CORE_CHECK(inputs[2].dtype == kBool && inputs[2].shape == mask)
      << node.Where() << ": the mask is " << ToText(inputs[2]) << ", expected: bool of shape "
      << ToText(mask);
  return {{{data[0], weight[1]}, kFloat32}};
}

double ExpertFlops(const NodeReader& node, const PlanBuilder& plan) {
  return 2. * NumElements(node.OutDims()) * plan.Input(node, 0).dims().back();
}

void LowerExpertDense(const NodeReader& node, PlanBuilder* plan) {
  using Type = dnnl::memory::data_type;
  const auto plain = [&](int input) { return plan->Plain(node, plan->Input(node, input)); };
  const Tensor data = plain(0), weight = plain(1), mask = plain(2);
  const ExpertSizes s = {data.dims()[0], data.dims()[1], weight.dims()[1], weight.dims()[0],
                         node.Where()};
  const Tensor dst = plan->NewTensor(PlainDesc(node.OutDims(), node.OutType()));
  const Tensor gathered = plan->NewTensor(PlainDesc(data.dims(), Type::f32));
  const Tensor products = plan->NewTensor(PlainDesc(dst.dims(), Type::f32));
  const Tensor places = plan->NewTensor(PlainDesc({s.rows}, Type::s32));
  const auto run = [s](void* const* at) {
    RunExperts(
        s, {static_cast<const float*>(at[0]), static_cast<const float*>(at[1]),
            static_cast<const uint8_t*>(at[2]), static_cast<float*>(at[3]),
            static_cast<float*>(at[4]), static_cast<float*>(at[5]), static_cast<int32_t*>(at[6])});
  };
  plan->EmitKernel(node, "expert_matmul", run,
                   {{DNNL_ARG_SRC, data},
                    {DNNL_ARG_WEIGHTS, weight},
                    {DNNL_ARG_SRC_1, mask},
                    {DNNL_ARG_DST, dst},
                    {DNNL_ARG_DST_1, gathered},
                    {DNNL_ARG_DST_2, products},
                    {DNNL_ARG_WORKSPACE, places}});
  plan->SetVariant("rows of each expert", ExpertFlops(node, *plan));
  plan->SetOutput(node, dst);
}

}  // namespace tvm::runtime::contrib::dnnl_backend
