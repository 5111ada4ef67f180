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
 * \file src/runtime/contrib/dnnl/core/kernels/reduce.cc
 * \brief Reductions of float32 and bfloat16 along any axes of a strided tensor.
 */
#include "reduce.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "../exec/parallel.h"
#include "reduce_loops.h"
// The last one.
#include "cpu_clones.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

#define DNNL_REDUCTION(OP)                                                                \
  DNNL_FOR_CPUS void OP##Float32(const Matrix& matrix) { JoinMatrix<OP, float>(matrix); } \
  DNNL_FOR_CPUS void OP##BFloat16(const Matrix& matrix) { JoinMatrix<OP, uint16_t>(matrix); }

DNNL_REDUCTION(SumOp)
DNNL_REDUCTION(SquaresOp)
DNNL_REDUCTION(ProdOp)
DNNL_REDUCTION(MaxOp)
DNNL_REDUCTION(MinOp)

/*! \brief How an element of the source counts. */
struct Operation {
  void (*join)(const Matrix& matrix);
  /*! \brief Where the results begin. */
  double begin;
  /*! \brief Of two parts of the elements. */
  double (*of_parts)(const double& a, const double& b);
};

template <typename Op>
Operation OperationOf(void (*float32)(const Matrix&), void (*bfloat16)(const Matrix&),
                      bool is_bfloat16) {
  return {is_bfloat16 ? bfloat16 : float32, Op::kBegin,
          [](const double& a, const double& b) { return Op::template Join<double>(a, b); }};
}

Operation Find(ReduceKind kind, bool is_bfloat16) {
  switch (kind) {
    case ReduceKind::kMax:
      return OperationOf<MaxOp>(MaxOpFloat32, MaxOpBFloat16, is_bfloat16);
    case ReduceKind::kMin:
      return OperationOf<MinOp>(MinOpFloat32, MinOpBFloat16, is_bfloat16);
    case ReduceKind::kProd:
      return OperationOf<ProdOp>(ProdOpFloat32, ProdOpBFloat16, is_bfloat16);
    case ReduceKind::kSumOfSquares:
      return OperationOf<SquaresOp>(SquaresOpFloat32, SquaresOpBFloat16, is_bfloat16);
    default:
      return OperationOf<SumOp>(SumOpFloat32, SumOpBFloat16, is_bfloat16);
  }
}

/*! \brief The product of sizes. */
int64_t SizeOf(const std::vector<ReduceDim>& dims) {
  int64_t size = 1;
  for (const ReduceDim& dim : dims) size *= dim.size;
  return size;
}

/*! \brief Offsets of the index-th element of dimensions, in the source and in the results. */
std::pair<int64_t, int64_t> OffsetsOf(const std::vector<ReduceDim>& dims, int64_t index) {
  std::pair<int64_t, int64_t> offsets{0, 0};
  for (auto dim = dims.rbegin(); dim != dims.rend(); ++dim) {
    offsets.first += index % dim->size * dim->src_stride;
    offsets.second += index % dim->size * dim->dst_stride;
    index /= dim->size;
  }
  return offsets;
}

/*! \brief The dimensions in the order of memory, joined where that is no difference. */
std::vector<ReduceDim> Simplify(std::vector<ReduceDim> dims) {
  std::stable_sort(dims.begin(), dims.end(), [](const ReduceDim& a, const ReduceDim& b) {
    return a.src_stride > b.src_stride;
  });
  std::vector<ReduceDim> result;
  for (const ReduceDim& dim : dims) {
    if (dim.size == 1) continue;
    const bool is_joined =
        !result.empty() && result.back().is_reduced() == dim.is_reduced() &&
        result.back().src_stride == dim.size * dim.src_stride &&
        (dim.is_reduced() || result.back().dst_stride == dim.size * dim.dst_stride);
    if (is_joined) {
      result.back() = {result.back().size * dim.size, dim.src_stride, dim.dst_stride};
    } else {
      result.push_back(dim);
    }
  }
  return result;
}

}  // namespace

ReduceKernel::ReduceKernel(ReduceKind kind, bool is_bfloat16, const std::vector<ReduceDim>& dims)
    : kind_(kind), is_bfloat16_(is_bfloat16) {
  for (const ReduceDim& dim : Simplify(dims)) (dim.is_reduced() ? outer_ : kept_).push_back(dim);
  const int64_t reduced = SizeOf(outer_);
  if (!outer_.empty()) {
    rows_ = outer_.back();
    outer_.pop_back();
  }
  if (!kept_.empty()) {
    columns_ = kept_.back();
    kept_.pop_back();
  }
  if (kind == ReduceKind::kMean) scale_ = 1. / static_cast<double>(reduced);
  // An item has some 10 us of work at most: that of several rows, or of a block of columns.
  constexpr int64_t kWork = 1 << 16, kMostItems = 16;
  const bool is_wide = columns_.src_stride == 1;
  const int64_t most = is_wide ? kColumns : std::clamp<int64_t>(kWork / reduced, 1, kColumns);
  blocks_ = (columns_.size + most - 1) / most;
  items_ = SizeOf(kept_) * blocks_;
  grain_ = std::max<int64_t>(1, kWork / (reduced * std::min(most, columns_.size)));
  // By the sizes alone: the sums are the same on any number of threads.
  if (items_ < kMostItems) {
    const int64_t work = reduced * std::min(most, columns_.size);
    parts_ = std::clamp<int64_t>(std::min(kMostItems / items_, work / kWork), 1,
                                 outer_.empty() ? rows_.size : outer_.front().size);
  }
}

int64_t ReduceKernel::scratch_bytes() const {
  return parts_ == 1 ? 0 : parts_ * items_ * kColumns * static_cast<int64_t>(sizeof(double));
}

void ReduceKernel::RunItems(const char* src, int64_t part, int64_t first, int64_t last, float* dst,
                            double* sums) const {
  const int64_t element = is_bfloat16_ ? sizeof(uint16_t) : sizeof(float);
  const Operation operation = Find(kind_, is_bfloat16_);
  // The matrices, or of a single one the rows.
  const int64_t size = outer_.empty() ? rows_.size : outer_.front().size;
  int64_t begin = size * part / parts_, end = size * (part + 1) / parts_, rows = rows_.size;
  if (outer_.empty()) {
    src += begin * rows_.src_stride * element;
    rows = end - begin;
    begin = 0;
    end = 1;
  } else {
    const int64_t inner = SizeOf(outer_) / size;
    begin *= inner;
    end *= inner;
  }
  for (int64_t item = first; item < last; ++item) {
    const auto [column, count] = ColumnsOf(item);
    double own[kColumns];
    double* results = sums == nullptr ? own : sums + item * kColumns;
    std::fill_n(results, count, operation.begin);
    const int64_t from = OffsetsOf(kept_, item / blocks_).first + column * columns_.src_stride;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t offset = from + OffsetsOf(outer_, i).first;
      operation.join(
          {src + offset * element, rows, rows_.src_stride, count, columns_.src_stride, results});
    }
    if (sums == nullptr) Finish(own, item, dst);
  }
}

std::pair<int64_t, int64_t> ReduceKernel::ColumnsOf(int64_t item) const {
  const int64_t block = item % blocks_, first = columns_.size * block / blocks_;
  return {first, columns_.size * (block + 1) / blocks_ - first};
}

void ReduceKernel::Finish(const double* sums, int64_t item, float* dst) const {
  const auto [column, count] = ColumnsOf(item);
  float* to = dst + OffsetsOf(kept_, item / blocks_).second + column * columns_.dst_stride;
  if (columns_.dst_stride == 1) {
    for (int64_t j = 0; j < count; ++j) to[j] = static_cast<float>(sums[j] * scale_);
    return;
  }
  for (int64_t j = 0; j < count; ++j) {
    to[j * columns_.dst_stride] = static_cast<float>(sums[j] * scale_);
  }
}

void ReduceKernel::Run(const void* src, float* dst, void* scratch) const {
  const auto* from = static_cast<const char*>(src);
  if (parts_ == 1) {
    ParallelFor(items_, grain_,
                [&](int64_t first, int64_t last) { RunItems(from, 0, first, last, dst, nullptr); });
    return;
  }
  auto* sums = static_cast<double*>(scratch);
  const int64_t results = items_ * kColumns;
  ParallelFor(parts_ * items_, 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t part = i / items_, item = i % items_;
      RunItems(from, part, item, item + 1, dst, sums + part * results);
    }
  });
  const auto join = Find(kind_, is_bfloat16_).of_parts;
  for (int64_t part = 1; part < parts_; ++part) {
    for (int64_t i = 0; i < results; ++i) sums[i] = join(sums[i], sums[part * results + i]);
  }
  for (int64_t item = 0; item < items_; ++item) Finish(sums + item * kColumns, item, dst);
}

}  // namespace tvm::runtime::contrib::dnnl_backend
