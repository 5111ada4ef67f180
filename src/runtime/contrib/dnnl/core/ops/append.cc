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
 * \file src/runtime/contrib/dnnl/core/ops/append.cc
 * \brief Appends to a tensor along an axis that memory is reserved for.
 */
#include <algorithm>
#include <cstring>

#include "../exec/parallel.h"
#include "../plan/reserve.h"
#include "changing_sizes.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief Rows of items: from one item to the next, where they begin in one, and how many. */
struct ItemRows {
  int64_t stride, begin, count;

  ItemRows operator*(int64_t bytes) const { return {stride * bytes, begin * bytes, count * bytes}; }
};

/*! \brief Copy rows of one byte. */
void CopyRows(const ItemRows& from, const char* src, const ItemRows& to, char* dst, int64_t items) {
  // Pieces that two threads copy are no smaller.
  constexpr int64_t kPiece = 1 << 16;
  const int64_t pieces = (from.count + kPiece - 1) / kPiece;
  ParallelFor(items * pieces, 2, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t item = i / pieces, at = i % pieces * kPiece;
      std::memcpy(dst + item * to.stride + to.begin + at, src + item * from.stride + at,
                  std::min(kPiece, from.count - at));
    }
  });
}

}  // namespace

Tensor AppendRows(const NodeReader& node, PlanBuilder* plan, int axis) {
  const Tensor past = plan->Input(node, 0), added = plan->Plain(node, plan->Input(node, 1));
  const Tensor dst = plan->NewTensor(plan->OutputDesc(node));
  const Dims dims = dst.dims();
  const int64_t items = NumElements(Dims(dims.begin(), dims.begin() + axis));
  const int64_t bytes = NumElements(Dims(dims.begin() + axis + 1, dims.end())) *
                        static_cast<int64_t>(dnnl::memory::data_type_size(dst.dtype()));
  const int64_t total = dims[axis], count = past.dims()[axis];
  const int64_t room = ReservedSize(total);
  const ItemRows from = ItemRows{ReservedSize(count), 0, count} * bytes;
  const ItemRows to = ItemRows{room, 0, count} * bytes,
                 rest = ItemRows{room, count, total - count} * bytes;
  const ItemRows own = ItemRows{total - count, 0, total - count} * bytes;
  PlanBuilder::Args args = {{DNNL_ARG_MULTIPLE_SRC, added}, {DNNL_ARG_DST, dst}};
  if (count > 0) args.emplace_back(DNNL_ARG_MULTIPLE_SRC + 1, past);
  const auto run = [=](void* const* addresses) {
    auto* const result = static_cast<char*>(addresses[1]);
    CopyRows(own, static_cast<const char*>(addresses[0]), rest, result, items);
    // Else the result is the past one with more rows.
    const bool is_moved = count > 0 && addresses[2] != result;
    if (is_moved) CopyRows(from, static_cast<const char*>(addresses[2]), to, result, items);
  };
  plan->EmitKernel(node, "append", run, args);
  return dst;
}

}  // namespace tvm::runtime::contrib::dnnl_backend
