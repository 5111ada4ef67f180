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
 * \file src/runtime/contrib/dnnl/core/kernels/attention.cc
 * \brief softmax(scale * query * key^T + mask) * value, in blocks that stay in the caches.
 *
 * A task is a block of the rows of queries that read one head of keys and values. It goes once
 * through these, a block of keys at a time, with the maximum and the sum of each row so far.
 */
#include "attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "../exec/parallel.h"
#include "attention_amx.h"
#include "attention_exp.h"
#include "attention_pairs.h"
#include "attention_rows.h"
#include "attention_tiles.h"
#include "cpu_clones.h"
#include "isa.h"
#include "vectors.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

constexpr int64_t kRows = kAttentionRows, kKeys = kAttentionKeys;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Of a row without keys: a number that has no part in a sum, and is finite.
constexpr float kLowestLogSum = -5e4f;

/*! \brief What a task writes, in the workspace of a thread. */
struct Workspace {
  float *query, *sums, *scores, *maximum, *total, *products;

  Workspace(float* data, const AttentionShape& shape)
      : query(data),
        sums(query + kRows * shape.width),
        scores(sums + kRows * shape.columns()),
        maximum(scores + kRows * kKeys),
        total(maximum + kRows),
        products(total + kRows) {}
};

/*! \brief The largest scores in each lane; masked ones become -inf. */
template <int W>
DNNL_INLINE Floats<W> LargestScores(int64_t seen, int64_t end, float* scores) {
  for (int64_t j = seen; j < end; ++j) scores[j] = -kInfinity;
  Floats<W> largest = Filled<W>(-kInfinity);
  for (int64_t j = 0; j < end; j += W) largest = Largest::Of<W>(Load<W>(scores + j), largest);
  return largest;
}

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
    float* sums = work.sums + r * shape.columns();
    const bool is_masked = work.maximum[r] == -kInfinity && work.total[r] == 0.f;
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
    constexpr float kLog2OfE = 1.44269504f;
    data.log_sums[at / shape.value_width] =
        is_masked ? kLowestLogSum : work.maximum[r] * kLog2OfE + std::log2(work.total[r]);
  }
}

template <int W, typename Products, typename T>
DNNL_INLINE void StartRows(const AttentionShape& shape, const AttentionData<T>& data,
                           const AttentionTask& task, const RowIndices& rows, const Workspace& work,
                           Products* products) {
  for (int64_t r = 0; r < task.rows; ++r) {
    const T* query = data.query + rows.In(shape.query, task.batch, r);
    float* scaled = work.query + r * shape.width;
    int64_t e = 0;
    for (; e + W <= shape.width; e += W) Store<W>(Load<W>(query + e) * shape.scale, scaled + e);
    for (; e < shape.width; ++e) scaled[e] = Load<1>(query + e)[0] * shape.scale;
    products->SetQuery(r, query);
    work.maximum[r] = -kInfinity;
    work.total[r] = 0.f;
  }
  std::fill(work.sums, work.sums + task.rows * shape.columns(), 0.f);
}

/*! \brief Add the masks to scores of a row; what these are still to be multiplied by. */
template <int W, typename T>
DNNL_INLINE float AddMasks(const AttentionShape& shape, const AttentionData<T>& data,
                           const std::array<int64_t, 4>& at, int64_t count, float scale,
                           float* scores) {
  for (int mask = 0; mask < kAttentionMasks && data.masks[mask] != nullptr; ++mask) {
    AddMaskOfRow<W>(shape, data, mask, at, count, scale, scores);
    scale = 1.f;
  }
  if (scale > 0.f) return scale;
  // The largest one would be another.
  for (int64_t j = 0; j < count; ++j) scores[j] *= scale;
  return 1.f;
}

/*! \brief Turn a block of scores into exponentials, and rescale the sums of the blocks before. */
template <int W, typename Products, typename T>
DNNL_INLINE void SoftmaxRows(const AttentionShape& shape, const AttentionData<T>& data,
                             const AttentionTask& task, const RowIndices& rows,
                             const Workspace& work, const VisibleBlock& block, int64_t first,
                             Products* products) {
  const int64_t count = block.keys, end = (count + W - 1) / W * W;
  const int64_t first_row = block.first_row, last_row = first_row + block.rows;
  for (int64_t group = first_row; group < last_row; group += W) {
    const int64_t rows_of_group = std::min<int64_t>(W, last_row - group);
    float scale = 1.f;
    Floats<W> largest[W] = {};
    for (int64_t i = 0; i < rows_of_group; ++i) {
      const int64_t r = group + i;
      float* scores = work.scores + (r - first_row) * kKeys;
      const std::array<int64_t, 4> at = {task.batch, rows.head[r], rows.query[r], first};
      scale = AddMasks<W>(shape, data, at, count, products->ScoreScale(), scores);
      const int64_t seen = std::clamp<int64_t>(rows.Keys(shape, r) - first, 0, count);
      largest[i] = LargestScores<W>(seen, end, scores);
    }
    const Floats<W> before = Load<W>(work.maximum + group);
    const Floats<W> now = Largest::Of<W>(ReduceLanes<W, Largest>(largest) * scale, before);
    // -inf less -inf would be NaN, though it has no part in a row with a finite score.
    const Floats<W> bases = now == -kInfinity ? Filled<W>(0.f) : now;
    const Floats<W> factors = ExpOfScore<W, Products::kExpDegree>(before - bases);
    Store<W>(now, work.maximum + group);
    Floats<W> totals[W] = {};
    for (int64_t i = 0; i < rows_of_group; ++i) {
      const int64_t r = group + i;
      const float base = bases[i], factor = factors[i];
      const float* scores = work.scores + (r - first_row) * kKeys;
      for (int64_t j = 0; j < end; j += W) {
        const Floats<W> weights =
            ExpOfScore<W, Products::kExpDegree>(Load<W>(scores + j) * scale - base);
        totals[i] += weights;
        products->SetWeights(r - first_row, j, weights, work.scores);
      }
      // Most blocks have no larger score.
      if (factor == 1.f) continue;
      float* sums = work.sums + r * shape.columns();
      for (int64_t e = 0; e < shape.columns(); ++e) sums[e] *= factor;
    }
    const Floats<W> total = Load<W>(work.total + group) * factors + ReduceLanes<W, Sum>(totals);
    Store<W>(total, work.total + group);
  }
}

/*!
 * \brief Visit the keys of a task, block by block.
 * \param skips_hidden Whether to skip the blocks that a mask hides.
 * \return False where a row has seen nothing else, so that these decide.
 */
template <int W, typename Products, typename T>
DNNL_INLINE bool VisitKeys(const AttentionShape& shape, const AttentionData<T>& data,
                           const AttentionTask& task, const RowIndices& rows, const Workspace& work,
                           Products* products, bool skips_hidden) {
  bool has_skipped = false;
  StartRows<W>(shape, data, task, rows, work, products);
  const T* keys = data.key + task.batch * shape.key[0] + task.kv_head * shape.key[1];
  const T* values = data.value + task.batch * shape.value[0] + task.kv_head * shape.value[1];
  int64_t last = 0;
  for (int64_t r = 0; r < task.rows; ++r) {
    last = std::max(last, rows.Keys(shape, r));
  }
  last = std::min(last, task.last_key);
  for (int64_t first = task.first_key, count = 0; first < last; first += count) {
    count = std::min(Products::kKeys, last - first);
    int64_t page = 0, row = first;
    if (shape.page_rows != 0) {
      page = data.pages[first / shape.page_rows] * shape.page;
      row = first % shape.page_rows;
      count = std::min(count, shape.page_rows - row);
    }
    const T* key = keys + page + row * shape.key[2];
    const T* value = values + page + row * shape.value[2];
    if (skips_hidden && IsHidden<W>(shape, data, task, rows, first, count) &&
        HasNoPart<W>(shape, work.query, task.rows, key, value, count)) {
      has_skipped = true;
      continue;
    }
    products->SetBlock(task.rows, key, value, count);
    for (int64_t group = 0; group < task.rows; group += Products::kRows) {
      const int64_t end = std::min(task.rows, group + Products::kRows);
      const VisibleBlock block(shape, rows, group, end, Products::kRowStep, first, count);
      if (block.rows == 0) continue;
      products->Score(block.first_row, block.rows, work.query + block.first_row * shape.width,
                      block.keys, work.scores);
      SoftmaxRows<W>(shape, data, task, rows, work, block, first, products);
      products->AddValues(block.rows, work.scores, block.keys,
                          work.sums + block.first_row * shape.columns());
    }
  }
  for (int64_t r = 0; r < task.rows && has_skipped; ++r) {
    if (!(work.maximum[r] > kHiddenScore / 2)) return false;
  }
  return true;
}

template <int W, template <int, typename> class Products, typename T>
DNNL_INLINE void RunTask(const AttentionShape& shape, const AttentionData<T>& data,
                         const AttentionTask& task, const Workspace& work) {
  const RowIndices rows(shape, task);
  Products<W, T> products(shape, work.products);
  // One call: each is compiled into its caller, for each CPU and type.
  bool skips_hidden = true;
  while (!VisitKeys<W>(shape, data, task, rows, work, &products, skips_hidden)) {
    skips_hidden = false;
  }
}

/*! \brief Join what tasks computed of parts of the keys, in their workspaces, in the first one. */
template <int W>
DNNL_INLINE void JoinParts(const AttentionShape& shape, const AttentionTask& task,
                           const Workspace& work, const Workspace& other) {
  for (int64_t r = 0; r < task.rows; ++r) {
    const float now = std::max(work.maximum[r], other.maximum[r]);
    const float base = now == -kInfinity ? 0.f : now;
    const float factors[] = {ExpOfNegative<W>(Filled<W>(work.maximum[r] - base))[0],
                             ExpOfNegative<W>(Filled<W>(other.maximum[r] - base))[0]};
    work.maximum[r] = now;
    work.total[r] = work.total[r] * factors[0] + other.total[r] * factors[1];
    float* sums = work.sums + r * shape.columns();
    const float* added = other.sums + r * shape.columns();
    for (int64_t e = 0; e < shape.value_width; ++e) {
      sums[e] = sums[e] * factors[0] + added[e] * factors[1];
    }
  }
}

/*! \brief What is compiled for a CPU. */
template <typename T>
struct Code {
  void (*run)(const AttentionShape&, const AttentionData<T>&, const AttentionTask&,
              float* workspace);
  /*! \brief Add what is in a second workspace to the first one. */
  void (*join)(const AttentionShape&, const AttentionTask&, float* workspace, float* other);
  void (*store)(const AttentionShape&, const AttentionData<T>&, const AttentionTask&,
                float* workspace);
  /*! \brief As `run`, with products of pairs; nullptr where the CPU has none. */
  void (*run_pairs)(const AttentionShape&, const AttentionData<T>&, const AttentionTask&,
                    float* workspace) = nullptr;
};

// The three functions of `Code`, with vectors of W floats.
#define DNNL_ATTENTION_CODE(NAME, W, TARGET)                                                       \
  template <typename T>                                                                            \
  TARGET void Run##NAME(const AttentionShape& shape, const AttentionData<T>& data,                 \
                        const AttentionTask& task, float* workspace) {                             \
    RunTask<W, FloatProducts>(shape, data, task, Workspace(workspace, shape));                     \
  }                                                                                                \
  TARGET void Join##NAME(const AttentionShape& shape, const AttentionTask& task, float* workspace, \
                         float* other) {                                                           \
    JoinParts<W>(shape, task, Workspace(workspace, shape), Workspace(other, shape));               \
  }                                                                                                \
  template <typename T>                                                                            \
  TARGET void Store##NAME(const AttentionShape& shape, const AttentionData<T>& data,               \
                          const AttentionTask& task, float* workspace) {                           \
    StoreRows<W>(shape, data, task, Workspace(workspace, shape));                                  \
  }

DNNL_ATTENTION_CODE(Any, 4, )
DNNL_ATTENTION_CODE(AVX2, 8, DNNL_AVX2)
DNNL_ATTENTION_CODE(AVX512, 16, DNNL_AVX512)

#if DNNL_HAS_PAIRS
template <template <int, typename> class Products, typename T>
__attribute__((target("avx512f,avx512bf16,avx2,fma"))) void RunRounded(const AttentionShape& shape,
                                                                       const AttentionData<T>& data,
                                                                       const AttentionTask& task,
                                                                       float* workspace) {
  RunTask<16, Products>(shape, data, task, Workspace(workspace, shape));
}

/*! \brief Whether pairs are multiplied: of bfloat16, or where it is allowed. */
template <typename T>
bool UsesPairs(const AttentionShape& shape) {
  // Without tiles, columns that are padded cost Intel's CPUs more than pairs save.
  const bool fits = HasISA(ISA::kAMX) || (shape.width % 2 == 0 && shape.value_width % 16 == 0);
  return (shape.allows_bfloat16 || std::is_same_v<T, uint16_t>) && shape.rows() >= kPackedRows &&
         fits;
}
#endif

template <typename T>
Code<T> OwnCode() {
  auto code =
      CodeForCPU<Code<T>>({RunAny<T>, JoinAny, StoreAny<T>}, {RunAVX2<T>, JoinAVX2, StoreAVX2<T>},
                          {RunAVX512<T>, JoinAVX512, StoreAVX512<T>});
#if DNNL_HAS_PAIRS
  if (HasISA(ISA::kAVX512BF16)) code.run_pairs = RunRounded<PairProducts, T>;
#endif
#if DNNL_HAS_TILES
  if (HasISA(ISA::kAMX)) code.run_pairs = RunRounded<AMXProducts, T>;
#endif
  return code;
}

/*! \brief The floats of the workspace of a task, whatever the numbers of rows are. */
int64_t WorkspaceOfTask(const AttentionShape& shape) {
  int64_t products = FloatProducts<16, float>::Size(shape);
#if DNNL_HAS_PAIRS
  products = std::max(products, RoundedProducts<16, float>::Size(shape));
#endif
  const int64_t floats = kRows * (shape.width + shape.columns() + kKeys + 2) + products;
  // No two threads write to one cache line, or to its neighbor.
  return (floats + 31) / 32 * 32;
}

template <typename T>
void RunAll(const AttentionShape& shape, const AttentionData<T>& data) {
  static const Code<T> code = OwnCode<T>();
  auto run = code.run;
#if DNNL_HAS_PAIRS
  if (code.run_pairs != nullptr && UsesPairs<T>(shape)) run = code.run_pairs;
#endif
  const AttentionTasks tasks(shape, data.threads);
  const int64_t floats = WorkspaceOfTask(shape);
  const int64_t count = tasks.count(), threads = std::min(data.threads, count);
  // A workspace is used by one thread at a time, whichever runs it.
  ParallelFor(threads, 1, [&](int64_t first, int64_t last) {
    for (int64_t thread = first; thread < last; ++thread) {
      for (int64_t i = count * thread / threads; i < count * (thread + 1) / threads; ++i) {
        float* workspace = data.workspace + (tasks.parts() == 1 ? thread : i) * floats;
        const AttentionTask task = tasks.At(i);
        run(shape, data, task, workspace);
        if (tasks.parts() == 1) code.store(shape, data, task, workspace);
      }
    }
  });
  if (tasks.parts() == 1) return;
  for (int64_t i = 0; i < count; i += tasks.parts()) {
    float* workspace = data.workspace + i * floats;
    const AttentionTask task = tasks.At(i);
    for (int64_t k = 1; k < tasks.parts(); ++k) {
      code.join(shape, task, workspace, workspace + k * floats);
    }
    code.store(shape, data, task, workspace);
  }
}

}  // namespace

int64_t AttentionWorkspace(const AttentionShape& shape, int64_t threads) {
  return AttentionTasks(shape, threads).workspaces(threads) * WorkspaceOfTask(shape);
}

void Attention(const AttentionShape& shape, const AttentionData<float>& data) {
  RunAll(shape, data);
}

void Attention(const AttentionShape& shape, const AttentionData<uint16_t>& data) {
  RunAll(shape, data);
}

}  // namespace tvm::runtime::contrib::dnnl_backend
