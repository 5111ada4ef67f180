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
 * \file src/runtime/contrib/dnnl/core/kernels/attention_rows.h
 * \brief The tasks of attention and their rows, the masks of their scores, and keys that these
 * hide.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_ATTENTION_ROWS_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_ATTENTION_ROWS_H_

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>

#include "attention.h"
#include "vectors.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief A range of rows, and of keys. */
struct AttentionTask {
  int64_t batch, kv_head, first_row, rows, first_key, last_key;
};

/*! \brief All tasks: of each batch, head of keys, block of rows and part of the keys. */
class AttentionTasks {
 public:
  AttentionTasks(const AttentionShape& shape, int64_t threads) : shape_(shape) {
    // A block of fewer rows packs the keys for less, so that is for idle threads only.
    constexpr int64_t kFewRows = 64;
    const int64_t heads = shape.batch * shape.kv_heads, rows = shape.rows();
    const auto blocks_of = [rows](int64_t size) { return (rows + size - 1) / size; };
    const int64_t busy = (2 * threads + heads - 1) / std::max<int64_t>(1, heads);
    blocks_ = std::clamp(busy, blocks_of(kAttentionRows), blocks_of(kFewRows));
    const int64_t tasks = heads * blocks_;
    // Of more blocks of rows, the last ones may see all keys, and the first ones few.
    const bool is_even = blocks_ == 1 && tasks < 4 * threads;
    const int64_t wanted =
        is_even ? threads / std::gcd(tasks, threads) : threads / std::max<int64_t>(1, tasks);
    // A thread reads so many keys in the time that it takes to join two parts, and to wake it up.
    const int64_t part = (tasks < threads ? 4 : 1) * kAttentionKeys;
    parts_ = std::clamp<int64_t>(shape.keys / part, 1, std::max<int64_t>(1, wanted));
  }

  /*! \brief Into how many parts the keys are split, so that threads have as many tasks each. */
  int64_t parts() const { return parts_; }
  /*! \brief Workspaces: of each thread, or of each task whose result is joined to another one. */
  int64_t workspaces(int64_t threads) const { return parts_ == 1 ? threads : count(); }
  int64_t count() const { return shape_.batch * shape_.kv_heads * blocks_ * parts_; }
  AttentionTask At(int64_t index) const {
    const int64_t part = index % parts_, block = index / parts_ % blocks_;
    const int64_t head = index / parts_ / blocks_;
    // All blocks are about as large.
    const int64_t first = shape_.rows() * block / blocks_;
    const int64_t last = shape_.rows() * (block + 1) / blocks_;
    return {head / shape_.kv_heads, head % shape_.kv_heads,      first,
            last - first,           shape_.keys * part / parts_, shape_.keys * (part + 1) / parts_};
  }

 private:
  const AttentionShape& shape_;
  int64_t blocks_, parts_;
};

/*! \brief Of each row of a task: its head, and which query of that it is. */
struct RowIndices {
  int64_t head[kAttentionRows], query[kAttentionRows];

  RowIndices(const AttentionShape& shape, const AttentionTask& task) {
    int64_t own_head = task.kv_head * shape.group() + task.first_row / shape.queries;
    int64_t own_query = task.first_row % shape.queries;
    for (int64_t row = 0; row < task.rows; ++row) {
      head[row] = own_head;
      query[row] = own_query;
      if (++own_query < shape.queries) continue;
      own_query = 0;
      ++own_head;
    }
  }

  int64_t In(const std::array<int64_t, 3>& strides, int64_t batch, int64_t row) const {
    return batch * strides[0] + head[row] * strides[1] + query[row] * strides[2];
  }
  /*! \brief How many keys a row sees. */
  int64_t Keys(const AttentionShape& shape, int64_t row) const {
    return shape.is_causal ? std::max<int64_t>(0, query[row] + shape.keys - shape.queries + 1)
                           : shape.keys;
  }
};

/*! \brief The part of a group of rows that sees a block of keys, and as much of that as it sees. */
struct VisibleBlock {
  int64_t first_row, rows, keys;

  /*! \param step `first_row` less `begin` is a multiple of it; `rows` is 0 if no row sees a key. */
  VisibleBlock(const AttentionShape& shape, const RowIndices& indices, int64_t begin, int64_t end,
               int64_t step, int64_t first_key, int64_t count)
      : first_row(begin), rows(end - begin), keys(count) {
    if (!shape.is_causal) return;
    int64_t first = begin, last_key = 0;
    while (first < end && indices.Keys(shape, first) <= first_key) ++first;
    for (int64_t row = first; row < end; ++row) {
      last_key = std::max(last_key, indices.Keys(shape, row));
    }
    first_row = begin + (first - begin) / step * step;
    rows = first == end ? 0 : end - first_row;
    keys = std::min(count, last_key - first_key);
  }
};

/*! \brief scores = scores * scale + mask, whose `count` elements are `stride` (0 or 1) apart. */
template <int W, typename M>
DNNL_INLINE void AddMask(const M* mask, int64_t stride, int64_t count, float scale, float* scores) {
  const Floats<W> same = Filled<W>(Load<1>(mask)[0]);
  for (int64_t j = 0; j < count; j += W) {
    const Floats<W> own = stride == 0      ? same
                          : j + W <= count ? Load<W>(mask + j)
                                           : LoadSome<W>(mask + j, count - j);
    Store<W>(Load<W>(scores + j) * scale + own, scores + j);
  }
}

/*! \brief Where the element of a mask is that belongs to indices of a score. */
DNNL_INLINE int64_t MaskOffset(const AttentionShape& shape, int mask,
                               const std::array<int64_t, 4>& at) {
  int64_t offset = 0;
  for (int axis = 0; axis < 4; ++axis) offset += at[axis] * shape.masks[mask][axis];
  return offset;
}

/*! \brief Add a mask to a block of scaled scores of a row, whose indices are `at`. */
template <int W, typename T>
DNNL_INLINE void AddMaskOfRow(const AttentionShape& shape, const AttentionData<T>& data, int mask,
                              const std::array<int64_t, 4>& at, int64_t count, float scale,
                              float* scores) {
  const int64_t offset = MaskOffset(shape, mask, at), stride = shape.masks[mask][3];
  if (data.mask_is_float[mask]) {
    AddMask<W>(static_cast<const float*>(data.masks[mask]) + offset, stride, count, scale, scores);
  } else {
    AddMask<W>(static_cast<const T*>(data.masks[mask]) + offset, stride, count, scale, scores);
  }
}

/*!
 * \brief A mask that lowers scores to this or less hides them from rows that have other scores:
 *        exponentials relative to those are zero. Exporters mask with the lowest finite number.
 */
constexpr float kHiddenScore = -1e30f;

/*! \brief Whether some elements of a mask, which are `stride` (0 or 1) apart, hide their keys. */
template <int W, typename M>
DNNL_INLINE bool Hides(const M* mask, int64_t stride, int64_t count) {
  // Comparisons with NaN are false.
  if (stride == 0 || !(Load<1>(mask)[0] <= kHiddenScore)) return Load<1>(mask)[0] <= kHiddenScore;
  Floats<W> seen = {};
  int64_t j = 0;
  for (; j + W <= count; j += W) {
    seen += Load<W>(mask + j) <= kHiddenScore ? Filled<W>(0.f) : Filled<W>(1.f);
  }
  if (j < count) {
    seen += LoadSome<W>(mask + j, count - j) <= kHiddenScore ? Filled<W>(0.f) : Filled<W>(1.f);
  }
  // Lanes after the last element are zeros, which mask nothing.
  return SumOf<W>(seen) == static_cast<float>((W - (count - j)) % W);
}

/*! \brief Whether a mask hides a block of keys from all rows, so that their exponentials are zero.
 */
template <int W, typename T>
DNNL_INLINE bool IsHidden(const AttentionShape& shape, const AttentionData<T>& data,
                          const AttentionTask& task, const RowIndices& rows, int64_t first,
                          int64_t count) {
  if (data.masks[0] == nullptr || data.masks[1] != nullptr) return false;
  for (int64_t r = 0; r < task.rows; ++r) {
    const std::array<int64_t, 4> at = {task.batch, rows.head[r], rows.query[r], first};
    const int64_t offset = MaskOffset(shape, 0, at), stride = shape.masks[0][3];
    const bool is_hidden =
        data.mask_is_float[0]
            ? Hides<W>(static_cast<const float*>(data.masks[0]) + offset, stride, count)
            : Hides<W>(static_cast<const T*>(data.masks[0]) + offset, stride, count);
    if (!is_hidden) return false;
  }
  return true;
}

/*! \brief The sum of the absolute values of contiguous rows. */
template <int W, typename T>
DNNL_INLINE float SumOfAbsolutes(const T* data, int64_t stride, int64_t rows, int64_t width) {
  Floats<W> sums = {};
  float rest = 0;
  for (int64_t row = 0; row < rows; ++row, data += stride) {
    int64_t e = 0;
    for (; e + W <= width; e += W) {
      const Floats<W> own = Load<W>(data + e);
      sums += own < 0.f ? -own : own;
    }
    for (; e < width; ++e) rest += std::abs(Load<1>(data + e)[0]);
  }
  return SumOf<W>(sums) + rest;
}

/*!
 * \brief Whether a block of keys that is hidden has no part in a result: no score can be as large
 *        as the mask, and nothing is infinite or NaN, which would spread.
 * \param query The scaled queries, row by row.
 */
template <int W, typename T>
DNNL_INLINE bool HasNoPart(const AttentionShape& shape, const float* query, int64_t rows,
                           const T* key, const T* value, int64_t count) {
  const float scores = SumOfAbsolutes<W>(query, shape.width, rows, shape.width) *
                       SumOfAbsolutes<W>(key, shape.key[2], count, shape.width);
  const float values = SumOfAbsolutes<W>(value, shape.value[2], count, shape.value_width);
  return scores < -kHiddenScore / 10 && values < std::numeric_limits<float>::max();
}

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_ATTENTION_ROWS_H_
