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
 * \file src/runtime/contrib/dnnl/core/ops/loops.h
 * \brief Loops over the elements of a row-major result whose operands are broadcast.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_LOOPS_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_LOOPS_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "../exec/parallel.h"
#include "../plan/builder.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief The operand without blocks: its strides say where each element is. */
inline Tensor WithStrides(const NodeReader& node, PlanBuilder* plan, const Tensor& value) {
  const bool has_strides = value.md.get_format_kind() == dnnl::memory::format_kind::blocked &&
                           value.md.get_inner_blks().empty() &&
                           value.md.get_padded_dims() == value.dims();
  return has_strides ? value : plan->Plain(node, value);
}

/*! \brief Strides, in elements, of a tensor that is broadcast to the dimensions of a result. */
inline Dims BroadcastStrides(const Tensor& value, const Dims& dims) {
  const Dims own = value.dims(), strides = value.md.get_strides();
  Dims result(dims.size(), 0);
  for (size_t i = 1; i <= std::min(own.size(), dims.size()); ++i) {
    if (own[own.size() - i] != 1) result[dims.size() - i] = strides[own.size() - i];
  }
  return result;
}

/*! \brief A row-major copy of a value that is broadcast to other dimensions, see where.cc. */
Tensor Broadcast(const NodeReader& node, PlanBuilder* plan, const Tensor& value, const Dims& dims);

/*!
 * \brief Nested loops over a row-major result, with neighboring dimensions joined where the
 *        strides of all operands allow.
 *
 * The innermost loop is a row: each operand has one stride in it.
 */
template <size_t kOperands>
class Loops {
 public:
  using Offsets = std::array<int64_t, kOperands>;

  Loops(const Dims& dims, const std::array<Dims, kOperands>& strides) {
    for (size_t axis = 0; axis < dims.size(); ++axis) {
      if (dims[axis] == 1) continue;
      Offsets own;
      for (size_t k = 0; k < kOperands; ++k) own[k] = strides[k][axis];
      if (!dims_.empty() && IsJoined(own, dims[axis])) {
        dims_.back() *= dims[axis];
        strides_.back() = own;
      } else {
        dims_.push_back(dims[axis]);
        strides_.push_back(own);
      }
    }
    if (dims_.empty()) {
      dims_.push_back(1);
      strides_.push_back(Offsets{});
    }
  }

  /*! \brief The stride of each operand within a row. */
  const Offsets& strides() const { return strides_.back(); }

  /*!
   * \brief Call `body(offsets, begin, count)` for parts of rows: where each operand and the result
   *        begin, in elements, and how many elements follow.
   */
  template <typename Body>
  void Run(const Body& body) const {
    // Elements of a part, and how many parts are worth a thread.
    constexpr int64_t kPart = 4096, kGrain = 2;
    const int64_t columns = dims_.back(), rows = NumElements(dims_) / columns;
    const int64_t parts = (columns + kPart - 1) / kPart;
    // Short rows are joined to units of about a part.
    const int64_t rows_of_unit = std::max<int64_t>(1, kPart / columns);
    const int64_t units = (rows * parts + rows_of_unit - 1) / rows_of_unit;
    ParallelFor(units, kGrain, [&](int64_t first, int64_t last) {
      const int64_t end = std::min(rows * parts, last * rows_of_unit);
      if (parts == 1) return RunRows(first * rows_of_unit, end, body);
      for (int64_t i = first; i < end; ++i) {
        const int64_t row = i / parts, column = i % parts * kPart;
        Offsets offsets = At(row);
        for (size_t k = 0; k < kOperands; ++k) offsets[k] += column * strides()[k];
        body(offsets, row * columns + column, std::min(kPart, columns - column));
      }
    });
  }

 private:
  /*! \brief Whether the last dimension so far and a new one are one dimension to all operands. */
  bool IsJoined(const Offsets& own, int64_t size) const {
    for (size_t k = 0; k < kOperands; ++k) {
      if (strides_.back()[k] != own[k] * size) return false;
    }
    return true;
  }

  /*! \brief Call `body` for whole rows, which may be so short that to find each takes longer. */
  template <typename Body>
  void RunRows(int64_t row, int64_t end, const Body& body) const {
    const int64_t columns = dims_.back();
    const size_t outer = dims_.size() < 2 ? 0 : dims_.size() - 2;
    while (row < end) {
      Offsets offsets = At(row);
      const int64_t wrap = dims_.size() < 2 ? end : row + dims_[outer] - row % dims_[outer];
      for (const int64_t stop = std::min(end, wrap); row < stop; ++row) {
        body(offsets, row * columns, columns);
        for (size_t k = 0; k < kOperands; ++k) offsets[k] += strides_[outer][k];
      }
    }
  }

  Offsets At(int64_t row) const {
    Offsets offsets{};
    for (size_t i = dims_.size() - 1; i-- > 0;) {
      const int64_t coordinate = row % dims_[i];
      row /= dims_[i];
      for (size_t k = 0; k < kOperands; ++k) offsets[k] += coordinate * strides_[i][k];
    }
    return offsets;
  }

  Dims dims_;
  std::vector<Offsets> strides_;
};

/*!
 * \brief The kernel of an op on pairs of elements, of two operands and the result.
 * \param compute `compute(a, a_stride, b, b_stride, dst, count)` computes a part of a row.
 */
template <typename T, typename Result = T, typename Compute>
HostKernel PairsKernel(Loops<2> loops, Compute compute) {
  return [loops = std::move(loops), compute](void* const* addresses) {
    const auto* a = static_cast<const T*>(addresses[0]);
    const auto* b = static_cast<const T*>(addresses[1]);
    auto* dst = static_cast<Result*>(addresses[2]);
    loops.Run([&](const Loops<2>::Offsets& at, int64_t begin, int64_t count) {
      const auto& strides = loops.strides();
      compute(a + at[0], strides[0], b + at[1], strides[1], dst + begin, count);
    });
  };
}

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_LOOPS_H_
