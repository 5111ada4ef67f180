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
 * \file src/runtime/contrib/dnnl/core/kernels/attention_workspace.h
 * \brief What a task of attention keeps of its rows, and the first and last access to these.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_ATTENTION_WORKSPACE_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_ATTENTION_WORKSPACE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "attention.h"
#include "attention_rows.h"
#include "vectors.h"

namespace tvm::runtime::contrib::dnnl_backend {

// Of a row without keys: a number that has no part in a sum, and is finite.
constexpr float kLowestLogSum = -5e4f;

/*! \brief What a task writes, in the workspace of a thread. */
struct Workspace {
  float *query, *sums, *scores, *maximum, *total, *products;

  Workspace(float* data, const AttentionShape& shape)
      : query(data),
        sums(query + shape.task_rows() * shape.width),
        scores(sums + shape.task_rows() * shape.columns()),
        maximum(scores + ScoreRows(shape) * kAttentionKeys),
        total(maximum + shape.task_rows()),
        products(total + shape.task_rows()) {}

  /*! \brief The floats of it, without those of products. */
  static int64_t Size(const AttentionShape& shape) {
    return shape.task_rows() * (shape.width + shape.columns() + 2) +
           ScoreRows(shape) * kAttentionKeys;
  }

 private:
  // Two groups of rows of AMXProducts at least.
  static int64_t ScoreRows(const AttentionShape& shape) {
    return std::clamp<int64_t>(shape.task_rows(), 64, kAttentionScoreRows);
  }
};

/*! \brief Prefetch a row: no CPU foresees those of heads that are far from each other. */
template <bool kIsWritten, typename T>
DNNL_INLINE void PrefetchRow(const T* row, int64_t count) {
  const auto* bytes = reinterpret_cast<const char*>(row);
  for (int64_t at = 0; at < count * static_cast<int64_t>(sizeof(T)); at += 64) {
    __builtin_prefetch(bytes + at, kIsWritten);
  }
}

/*! \brief So many rows ahead. */
constexpr int64_t kRowsAhead = 16;

template <int W, typename T>
DNNL_INLINE void StoreRow(const float* sums, float divisor, int64_t count, T* dst) {
  int64_t e = 0;
  for (; e + W <= count; e += W) Store<W>(Load<W>(sums + e) / divisor, dst + e);
  for (; e < count; ++e) Store<1>(Load<1>(sums + e) / divisor, dst + e);
}

/*! \brief Divide by the totals. A row without a finite one is as ZeroRows says. */
template <int W, typename T>
DNNL_INLINE void StoreRows(const AttentionShape& shape, const AttentionData<T>& data,
                           const AttentionTask& task, const Workspace& work) {
  const RowIndices rows(shape, task);
  for (int64_t r = 0; r < task.rows; ++r) {
    if (const int64_t ahead = r + kRowsAhead; ahead < task.rows) {
      PrefetchRow<true>(data.result + rows.In(shape.result, task.batch, ahead), shape.value_width);
    }
    float* sums = work.sums + r * shape.columns();
    const bool is_masked =
        work.maximum[r] == -std::numeric_limits<float>::infinity() && work.total[r] == 0.f;
    float divisor = work.total[r];
    if (is_masked) {
      divisor = shape.zeros == ZeroRows::kNone ? std::numeric_limits<float>::quiet_NaN() : 1.f;
    } else if (shape.zeros == ZeroRows::kAll && divisor != divisor) {
      // Zeros times the values, which may have NaN themselves.
      divisor = 1.f;
      const T* value = data.value + task.batch * shape.value[0] + task.kv_head * shape.value[1];
      std::fill(sums, sums + shape.value_width, 0.f);
      for (int64_t j = 0; j < rows.Keys(shape, r); ++j) {
        for (int64_t e = 0; e < shape.value_width; ++e) {
          sums[e] += 0.f * Load<1>(value + j * shape.value[2] + e)[0];
        }
      }
    }
    const int64_t at = rows.In(shape.result, task.batch, r);
    StoreRow<W>(sums, divisor, shape.value_width, data.result + at);
    if (data.log_sums == nullptr) continue;
    data.log_sums[at / shape.value_width] =
        is_masked ? kLowestLogSum : work.maximum[r] + std::log2(work.total[r]);
  }
}

/*! \brief Read the queries, and begin without keys. */
template <int W, typename Products, typename T>
DNNL_INLINE void StartRows(const AttentionShape& shape, const AttentionData<T>& data,
                           const AttentionTask& task, const RowIndices& rows, const Workspace& work,
                           Products* products) {
  const float scale = shape.scale * kLog2OfE;
  for (int64_t r = 0; r < task.rows; ++r) {
    if (const int64_t ahead = r + kRowsAhead; ahead < task.rows) {
      PrefetchRow<false>(data.query + rows.In(shape.query, task.batch, ahead), shape.width);
    }
    const T* query = data.query + rows.In(shape.query, task.batch, r);
    float* scaled = work.query + r * shape.width;
    // HasNoPart reads them where there is a mask.
    int64_t e = Products::kReadsScaled || data.masks[0] != nullptr ? 0 : shape.width;
    for (; e + W <= shape.width; e += W) Store<W>(Load<W>(query + e) * scale, scaled + e);
    for (; e < shape.width; ++e) scaled[e] = Load<1>(query + e)[0] * scale;
    products->SetQuery(r, query);
    work.maximum[r] = -std::numeric_limits<float>::infinity();
    work.total[r] = 0.f;
  }
  std::fill(work.sums, work.sums + task.rows * shape.columns(), 0.f);
}

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_ATTENTION_WORKSPACE_H_
