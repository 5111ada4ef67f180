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
#include "vectors.h"

// Clang compiles no instruction of a CPU in a function that is inlined into another one for it.
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__)
#define DNNL_HAS_PAIRS 1
#else
#define DNNL_HAS_PAIRS 0
#endif

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

/*! \brief Round a vector. */
template <int W>
DNNL_INLINE void StoreRounded(Floats<W> value, uint16_t* dst) {
  typename VectorTypes<W>::Halves halves;
  asm("vcvtneps2bf16 %1, %0" : "=v"(halves) : "v"(value));
  std::memcpy(dst, &halves, sizeof(halves));
}

/*! \brief Round contiguous floats. */
template <int W>
DNNL_INLINE void RoundRow(const float* src, int64_t count, uint16_t* dst) {
  int64_t i = 0;
  for (; i + W <= count; i += W) StoreRounded<W>(Load<W>(src + i), dst + i);
  for (; i < count; ++i) {
    const uint16_t rounded = ToBFloat16(src[i]);
    std::memcpy(dst + i, &rounded, sizeof(rounded));
  }
}

/*! \brief Rows in bfloat16: as they are, or rounded to `buffer`, which changes their stride. */
template <int W, typename T>
DNNL_INLINE const uint16_t* RoundedRows(const T* rows, int64_t* stride, int64_t count,
                                        int64_t width, uint16_t* buffer) {
  if constexpr (std::is_same_v<T, uint16_t>) {
    return rows;
  } else {
    for (int64_t j = 0; j < count; ++j) RoundRow<W>(rows + j * *stride, width, buffer + j * width);
    *stride = width;
    return buffer;
  }
}

/*! \brief pairs[(count + 1) / 2, columns]: the elements of each two rows; 0 after the last row. */
template <int W>
DNNL_INLINE void PairRows(const uint16_t* rows, int64_t stride, int64_t count, int64_t columns,
                          Pair* pairs) {
  using Bits = typename VectorTypes<W>::Bits;
  using Halves = typename VectorTypes<W>::Halves;
  for (int64_t j = 0; j < count; j += 2) {
    for (int64_t e = 0; e < columns; e += W, pairs += W) {
      const uint16_t* first = rows + j * stride + e;
      Halves halves[2] = {};
      std::memcpy(&halves[0], first, sizeof(Halves));
      if (j + 1 < count) std::memcpy(&halves[1], first + stride, sizeof(Halves));
      Bits bits[2];
      for (int i = 0; i < 2; ++i) asm("vpmovzxwd %1, %0" : "=v"(bits[i]) : "v"(halves[i]));
      const Bits both = bits[0] | bits[1] << 16;
      std::memcpy(pairs, &both, sizeof(both));
    }
  }
}

/*! \brief What products of numbers that are rounded to bfloat16 read, as pairs. */
template <int W, typename T>
class RoundedProducts {
 public:
  /*! \brief See FloatProducts. */
  static constexpr bool kSkipsRows = false;

  /*! \brief Whether rows are whole pairs, and columns whole vectors. */
  static bool Fits(const AttentionShape& shape) {
    return shape.width % 2 == 0 && shape.value_width % W == 0 &&
           (std::is_same_v<T, float> || shape.key[2] % 2 == 0);
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
  /*! \param pairs Those of a row of queries, or more. */
  RoundedProducts(const AttentionShape& shape, int64_t pairs, float* workspace)
      : shape_(shape),
        pairs_(pairs),
        query_(reinterpret_cast<Pair*>(workspace)),
        key_(query_ + kAttentionRows * pairs),
        weights_(key_ + kAttentionKeys * pairs),
        value_(weights_ + kAttentionRows * kAttentionKeys / 2),
        rounded_(reinterpret_cast<uint16_t*>(value_ + kAttentionKeys / 2 * shape.value_width)) {}

  static int64_t Size(int64_t pairs, int64_t width, int64_t value_width) {
    return (kAttentionRows + kAttentionKeys) * pairs + kAttentionRows * kAttentionKeys / 2 +
           kAttentionKeys / 2 * value_width + kAttentionKeys * std::max(width, value_width) / 2;
  }

  /*! \brief Set key_[width / 2, kAttentionKeys] to the transposed pairs of keys, as Pack. */
  DNNL_INLINE void PackKeys(const T* key, int64_t count) {
    int64_t stride = shape_.key[2];
    const uint16_t* rounded = RoundedRows<W>(key, &stride, count, shape_.width, rounded_);
    // A pair has the size of a float, and is moved as one.
    Pack<W>(reinterpret_cast<const float*>(rounded), stride / 2, count, shape_.width / 2,
            reinterpret_cast<float*>(key_));
  }

  /*! \brief Set value_[(count + 1) / 2, value_width] to the elements of each two rows. */
  DNNL_INLINE void PairValues(const T* value, int64_t count) {
    int64_t stride = shape_.value[2];
    const uint16_t* rounded = RoundedRows<W>(value, &stride, count, shape_.value_width, rounded_);
    PairRows<W>(rounded, stride, count, shape_.value_width, value_);
  }

  const AttentionShape& shape_;
  const int64_t pairs_;
  Pair *query_, *key_, *weights_, *value_;

 private:
  uint16_t* rounded_;
};

/*! \brief The products of a task, of numbers that are rounded to bfloat16. */
template <int W, typename T>
class PairProducts : public RoundedProducts<W, T> {
 public:
  static constexpr int64_t kKeys = 64;

  PairProducts(const AttentionShape& shape, float* workspace)
      : RoundedProducts<W, T>(shape, shape.width / 2, workspace) {}

  static int64_t Size(int64_t width, int64_t value_width) {
    return RoundedProducts<W, T>::Size(width / 2, width, value_width);
  }

  DNNL_INLINE void Score(int64_t rows, const float*, const T* key, int64_t count, float* scores) {
    this->PackKeys(key, count);
    Multiply<W, false>(rows, (count + W - 1) / W * W, this->query_, this->pairs_, this->key_,
                       kAttentionKeys, this->pairs_, scores, kAttentionKeys);
  }

  DNNL_INLINE void AddValues(int64_t rows, const float*, const T* value, int64_t count,
                             float* sums) {
    const int64_t columns = this->shape_.value_width;
    this->PairValues(value, count);
    Multiply<W, true>(rows, columns, this->weights_, kAttentionKeys / 2, this->value_, columns,
                      (count + 1) / 2, sums, columns);
  }
};

#endif  // DNNL_HAS_PAIRS

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_ATTENTION_PAIRS_H_
