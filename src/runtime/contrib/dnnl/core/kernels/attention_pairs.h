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
 * \file src/runtime/contrib/dnnl/core/kernels/attention_pairs.h
 * \brief Products of blocks in bfloat16, two at once, for CPUs with AVX512_BF16. To be included
 *        after attention_tiles.h.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_ATTENTION_PAIRS_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_ATTENTION_PAIRS_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "attention.h"
#include "attention_tiles.h"
#include "rounded_vectors.h"
#include "vectors.h"

namespace tvm::runtime::contrib::dnnl_backend {

#if DNNL_HAS_PAIRS

/*! \brief Two numbers in bfloat16: the product of two pairs is the sum of both products. */
struct Pair {
  uint32_t bits;
};

/*! \brief Load contiguous pairs, which have the size of floats. */
template <int W>
DNNL_INLINE Floats<W> Load(const Pair* src) {
  Floats<W> result;
  std::memcpy(&result, src, sizeof(result));
  return result;
}

template <int W>
DNNL_INLINE Floats<W> PlusProduct(Floats<W> sum, Floats<W> row, Pair factor) {
  const auto factors = typename VectorTypes<W>::Bits{} + factor.bits;
  asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(row), "v"(factors));
  return sum;
}

/*! \brief A mask of the first lanes of a vector. */
template <int W>
DNNL_INLINE uint16_t FirstLanes(int64_t count) {
  static_assert(W == 16, "a mask has a bit for each lane");
  return static_cast<uint16_t>(count >= W ? 0xffff : (1 << count) - 1);
}

/*! \brief Load some lanes; the others become zero, and their memory is not read. */
template <int W>
DNNL_INLINE Floats<W> LoadLanes(const float* src, uint16_t lanes) {
  Floats<W> result;
  asm volatile("vmovups (%1), %0%{%2%}%{z%}" : "=v"(result) : "r"(src), "Yk"(lanes) : "memory");
  return result;
}

/*! \brief Load some numbers in bfloat16 as the lower halves of lanes, likewise. */
template <int W>
DNNL_INLINE Bits<W> LoadHalves(const uint16_t* src, uint16_t lanes) {
  Bits<W> result;
  asm volatile("vpmovzxwd (%1), %0%{%2%}%{z%}" : "=v"(result) : "r"(src), "Yk"(lanes) : "memory");
  return result;
}

/*! \brief Round contiguous floats; zeros follow, up to a whole vector. */
template <int W>
DNNL_INLINE void RoundRow(const float* src, int64_t count, uint16_t* dst) {
  for (int64_t i = 0; i < count; i += W) {
    StoreRounded<W>(LoadLanes<W>(src + i, FirstLanes<W>(count - i)), dst + i);
  }
}

/*!
 * \brief Rows in bfloat16: as they are, or copied to `buffer`, which changes their stride.
 * \param is_paired Whether rows are to be whole pairs; a zero completes the last one.
 */
template <int W, typename T>
DNNL_INLINE const uint16_t* RoundedRows(const T* rows, int64_t* stride, int64_t count,
                                        int64_t width, bool is_paired, uint16_t* buffer) {
  const int64_t step = *stride, padded = (width + W - 1) / W * W;
  if constexpr (std::is_same_v<T, uint16_t>) {
    if (!is_paired || (step % 2 == 0 && width % 2 == 0)) return rows;
    for (int64_t j = 0; j < count; ++j) {
      std::memcpy(buffer + j * padded, rows + j * step, width * sizeof(T));
      if (width % 2 != 0) buffer[j * padded + width] = 0;
    }
  } else {
    for (int64_t j = 0; j < count; ++j) RoundRow<W>(rows + j * step, width, buffer + j * padded);
  }
  *stride = padded;
  return buffer;
}

/*!
 * \brief pairs[(count + 1) / 2, width in whole vectors]: the elements of each two rows; 0 after the
 *        last row and column.
 */
template <int W>
DNNL_INLINE void PairRows(const uint16_t* rows, int64_t stride, int64_t count, int64_t width,
                          Pair* pairs) {
  for (int64_t j = 0; j < count; j += 2) {
    for (int64_t e = 0; e < width; e += W, pairs += W) {
      const uint16_t* first = rows + j * stride + e;
      const uint16_t lanes = FirstLanes<W>(width - e), next = j + 1 < count ? lanes : 0;
      const Bits<W> both = LoadHalves<W>(first, lanes) | LoadHalves<W>(first + stride, next) << 16;
      std::memcpy(pairs, &both, sizeof(both));
    }
  }
}

/*! \brief What products of numbers that are rounded to bfloat16 read, as pairs. */
template <int W, typename T>
class RoundedProducts {
 public:
  /*! \brief As those of FloatProducts: exponentials are rounded, too. */
  static constexpr int kExpDegree = 4;

  /*! \brief The floats of the workspace. */
  static int64_t Size(const AttentionShape& shape) {
    const int64_t columns = shape.columns();
    return (kAttentionRows + kAttentionKeys) * Pairs(shape.width) +
           kAttentionRows * kAttentionKeys / 2 + kAttentionKeys / 2 * columns +
           kAttentionKeys * std::max(Pairs(shape.width), columns / 2);
  }

  /*! \brief Pack the block of keys and values that all rows of a task are multiplied by. */
  DNNL_INLINE void SetBlock(int64_t, const T* key, const T* value, int64_t count) {
    int64_t stride = shape_.key[2];
    const uint16_t* rows = RoundedRows<W>(key, &stride, count, shape_.width, true, rounded_);
    // A pair has the size of a float, and is moved as one.
    Pack<W>(reinterpret_cast<const float*>(rows), stride / 2, count, (shape_.width + 1) / 2,
            reinterpret_cast<float*>(key_));
    stride = shape_.value[2];
    rows = RoundedRows<W>(value, &stride, count, shape_.value_width, false, rounded_);
    PairRows<W>(rows, stride, count, shape_.value_width, value_);
  }

  DNNL_INLINE void SetQuery(int64_t row, const T* query) {
    auto* dst = reinterpret_cast<uint16_t*>(query_ + row * pairs_);
    if constexpr (std::is_same_v<T, uint16_t>) {
      std::memcpy(dst, query, shape_.width * sizeof(T));
    } else {
      RoundRow<W>(query, shape_.width, dst);
    }
  }

  // The scale is that of the scores, which are not rounded.
  DNNL_INLINE float ScoreScale() const { return shape_.scale; }

  DNNL_INLINE void SetWeights(int64_t row, int64_t key, Floats<W> weights, float*) {
    StoreRounded<W>(weights, reinterpret_cast<uint16_t*>(weights_) + row * kAttentionKeys + key);
  }

 protected:
  RoundedProducts(const AttentionShape& shape, float* workspace)
      : shape_(shape),
        pairs_(Pairs(shape.width)),
        query_(reinterpret_cast<Pair*>(workspace)),
        key_(query_ + kAttentionRows * pairs_),
        weights_(key_ + kAttentionKeys * pairs_),
        value_(weights_ + kAttentionRows * kAttentionKeys / 2),
        rounded_(reinterpret_cast<uint16_t*>(value_ + kAttentionKeys / 2 * shape.columns())) {
    // Of the pairs that are not full only.
    const int64_t full = shape.width / 2;
    for (int64_t row = 0; row < kAttentionRows && full < pairs_; ++row) {
      std::fill(query_ + row * pairs_ + full, query_ + (row + 1) * pairs_, Pair{0});
    }
    std::fill(key_ + full * kAttentionKeys, key_ + pairs_ * kAttentionKeys, Pair{0});
  }

  /*! \brief The pairs of a row, in whole vectors. */
  static int64_t Pairs(int64_t width) { return (width + 2 * W - 1) / (2 * W) * W; }

  const AttentionShape& shape_;
  const int64_t pairs_;
  /*!
   * \brief Rows of queries; [pairs_, kAttentionKeys], the transposed keys; the weights of a group;
   *        and the elements of each two rows of values.
   */
  Pair *query_, *key_, *weights_, *value_;

 private:
  uint16_t* rounded_;
};

/*! \brief The products of a task, of numbers that are rounded to bfloat16. */
template <int W, typename T>
class PairProducts : public RoundedProducts<W, T> {
 public:
  static constexpr int64_t kKeys = 64, kRows = 32, kRowStep = W;

  PairProducts(const AttentionShape& shape, float* workspace)
      : RoundedProducts<W, T>(shape, workspace) {}

  DNNL_INLINE void Score(int64_t first, int64_t rows, const float*, int64_t count, float* scores) {
    const int64_t pairs = (this->shape_.width + 1) / 2;
    Multiply<W, false>(rows, (count + W - 1) / W * W, this->query_ + first * this->pairs_,
                       this->pairs_, this->key_, kAttentionKeys, pairs, scores, kAttentionKeys);
  }

  DNNL_INLINE void AddValues(int64_t rows, const float*, int64_t count, float* sums) {
    const int64_t columns = this->shape_.columns();
    Multiply<W, true>(rows, columns, this->weights_, kAttentionKeys / 2, this->value_, columns,
                      (count + 1) / 2, sums, columns);
  }
};

#endif  // DNNL_HAS_PAIRS

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_ATTENTION_PAIRS_H_
