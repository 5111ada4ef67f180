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
 * \file src/runtime/contrib/dnnl/core/ops/nan_rows.cc
 * \brief Makes a softmax of a row with a NaN, or with an infinity, all NaN, or zero.
 */
#include "nan_rows.h"

#include <utility>

#include "../exec/parallel.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief Where the rows of a tensor lie, in elements. */
struct Rows {
  int64_t count, columns;
  /*! \brief From one block of a row to the next, and from one element of a block to the next. */
  int64_t block, block_stride, stride;
  /*! \brief The dimensions but for the rows' own, and their strides; none for a matrix. */
  Dims dims, strides;
  /*! \brief Which of `dims` is in blocks, of how many; -1 for none. */
  int blocked{-1};
  int64_t inner{1};

  Rows(const dnnl::memory::desc& md, int axis);

  int64_t Begin(int64_t row) const {
    if (dims.empty()) return row * columns;
    int64_t at = 0;
    for (int i = static_cast<int>(dims.size()) - 1; i >= 0; --i) {
      const int64_t coordinate = row % dims[i];
      row /= dims[i];
      at += i == blocked ? coordinate / inner * strides[i] + coordinate % inner
                         : coordinate * strides[i];
    }
    return at;
  }
  int64_t At(int64_t column) const {
    return column / block * block_stride + column % block * stride;
  }
  bool is_dense() const { return block == columns && stride == 1; }
};

Rows::Rows(const dnnl::memory::desc& md, int axis) {
  const Dims all = md.get_dims(), all_strides = md.get_strides();
  const bool has_blocks = !md.get_inner_idxs().empty();
  const int blocked_axis = has_blocks ? static_cast<int>(md.get_inner_idxs()[0]) : -1;
  columns = all[axis];
  count = NumElements(all) / columns;
  const bool is_blocked_row = blocked_axis == axis;
  block = is_blocked_row ? md.get_inner_blks()[0] : columns;
  block_stride = all_strides[axis];
  stride = is_blocked_row ? 1 : all_strides[axis];
  const size_t bytes = NumElements(all) * dnnl::memory::data_type_size(md.get_data_type());
  // Of a dense tensor whose innermost axis is the rows'.
  if (!has_blocks && stride == 1 && md.get_size() == bytes) return;
  for (int i = 0; i < static_cast<int>(all.size()); ++i) {
    if (i == axis) continue;
    if (i == blocked_axis) {
      blocked = static_cast<int>(dims.size());
      inner = md.get_inner_blks()[0];
    }
    dims.push_back(all[i]);
    strides.push_back(all_strides[i]);
  }
  if (dims.empty()) {
    dims = {1};
    strides = {0};
  }
}

/*! \brief Whether the scores of a row are -inf alone. */
template <typename Bits>
bool IsMasked(const Bits* scores, const Rows& rows, Bits infinity) {
  const Bits negative = static_cast<Bits>(infinity | ~(static_cast<Bits>(~Bits{0}) >> 1));
  for (int64_t i = 0; i < rows.columns; ++i) {
    if (scores[rows.At(i)] != negative) return false;
  }
  return true;
}

/*! \brief Fill the rows that have a NaN and no finite number but zeros, with NaN or zeros. */
template <typename Bits>
void FillRows(const Bits* scores, Bits* data, const Rows& rows, int64_t first, int64_t last,
              Bits infinity, ZeroRows zeros) {
  constexpr Bits kMagnitude = static_cast<Bits>(~Bits{0}) >> 1;
  const bool is_dense = rows.is_dense();
  for (int64_t row = first; row < last; ++row) {
    Bits* begin = data + rows.Begin(row);
    bool has_nan = false, is_right = false;
    for (int64_t i = 0; i < rows.columns && !is_right; ++i) {
      const Bits magnitude = begin[is_dense ? i : rows.At(i)] & kMagnitude;
      is_right = magnitude != 0 && magnitude < infinity;
      has_nan |= magnitude > infinity;
    }
    if (is_right || !has_nan) continue;
    const bool is_zero =
        zeros == ZeroRows::kAll ||
        (zeros == ZeroRows::kMasked && IsMasked(scores + rows.Begin(row), rows, infinity));
    for (int64_t i = 0; i < rows.columns; ++i) begin[rows.At(i)] = is_zero ? Bits{0} : kMagnitude;
  }
}

}  // namespace

void SpreadNaN(PlanBuilder* plan, const Tensor& result, int axis, ZeroRows zeros) {
  // A thread reads some 64 rows in the time that it takes to wake it up.
  constexpr int64_t kGrain = 64;
  // Among the arguments of the step.
  constexpr int kScores = 0, kResult = 1;
  const Rows rows(result.md, axis);
  const auto run = [rows, zeros](const auto* scores, auto* data, auto infinity) {
    ParallelFor(rows.count, kGrain, [&](int64_t first, int64_t last) {
      FillRows(scores, data, rows, first, last, infinity, zeros);
    });
  };
  HostKernel kernel;
  switch (result.dtype()) {
    case dnnl::memory::data_type::f32:
      kernel = [run](void* const* data) {
        run(static_cast<const uint32_t*>(data[kScores]), static_cast<uint32_t*>(data[kResult]),
            uint32_t{0x7f800000});
      };
      break;
    case dnnl::memory::data_type::bf16:
      kernel = [run](void* const* data) {
        run(static_cast<const uint16_t*>(data[kScores]), static_cast<uint16_t*>(data[kResult]),
            uint16_t{0x7f80});
      };
      break;
    default:
      kernel = [run](void* const* data) {
        run(static_cast<const uint16_t*>(data[kScores]), static_cast<uint16_t*>(data[kResult]),
            uint16_t{0x7c00});
      };
  }
  plan->AppendKernel(std::move(kernel));
}

}  // namespace tvm::runtime::contrib::dnnl_backend
