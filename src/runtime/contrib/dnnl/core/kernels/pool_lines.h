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
 * \file src/runtime/contrib/dnnl/core/kernels/pool_lines.h
 * \brief Pools along one line of values, in vectors.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_POOL_LINES_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_POOL_LINES_H_

#include <cstdint>
#include <cstring>

// The last one.
#include "cpu_clones.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief Keep the elements of two neighboring vectors of so many bytes whose index is even. */
template <int kBytes, typename Vector, typename Index = int32_t>
DNNL_INLINE void KeepEven(const Vector& second, Vector* first) {
  constexpr int kLanes = kBytes / sizeof(Index);
#if defined(__clang__)
  Vector result{};
  DNNL_UNROLL
  for (int i = 0; i < kLanes; ++i) {
    result[i] = 2 * i < kLanes ? (*first)[2 * i] : second[2 * i - kLanes];
  }
  *first = result;
#else
  typedef Index Indices __attribute__((vector_size(kBytes)));
  Indices even{};
  DNNL_UNROLL
  for (int i = 0; i < kLanes; ++i) even[i] = 2 * i;
  *first = __builtin_shuffle(*first, second, even);
#endif
}

/*! \brief A line of joined rows, and how windows move over it. */
template <typename Value>
struct Line {
  const Value* values;
  int64_t taps, step, stride;
  /*! \brief How many rows were joined. */
  int64_t rows;

  template <typename Op, typename V>
  DNNL_INLINE void JoinAt(int64_t i, V* joined) const {
    std::memcpy(joined, values + i, sizeof(V));
    for (int64_t tap = 1; tap < taps; ++tap) {
      V value;
      std::memcpy(&value, values + i + tap * step, sizeof(V));
      Op::Join(value, joined);
    }
  }
};

/*!
 * \brief Compute results in vectors of so many bytes, of windows with this stride.
 *
 * The last vector overlaps the one before it.
 *
 * \return False where there are fewer results than a vector has; nothing is done then.
 */
template <int kBytes, int kStride, typename Op, typename Finish, typename Value>
DNNL_INLINE bool PoolVectors(const Line<Value>& line, int64_t count, const Finish& finish,
                             Value* dst) {
  constexpr int64_t kLanes = kBytes / sizeof(Value);
  typedef Value Vector __attribute__((vector_size(kBytes)));
  if (count < kLanes) return false;
  for (int64_t next = 0; next < count; next += kLanes) {
    const int64_t i = next < count - kLanes ? next : count - kLanes;
    Vector joined;
    line.template JoinAt<Op>(kStride * i, &joined);
    if constexpr (kStride == 2) {
      Vector second;
      line.template JoinAt<Op>(kStride * i + kLanes, &second);
      KeepEven<kBytes>(second, &joined);
    }
    finish.Finish(i, line.rows, &joined);
    std::memcpy(dst + i, &joined, kBytes);
  }
  return true;
}

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_POOL_LINES_H_
