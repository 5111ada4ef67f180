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
 * \file src/runtime/contrib/dnnl/core/kernels/byte_means.cc
 * \brief The means of rows of 8-bit integers.
 */
#include "byte_means.h"

#include <algorithm>

#include "../exec/parallel.h"
// The last one.
#include "cpu_clones.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief Add up elements in lanes of 16 bits, none of which gets more than 256 terms. */
template <typename Lane, typename T>
DNNL_INLINE int64_t SumOfRow(const T* row, int64_t count) {
  constexpr int64_t kLanes = 32, kBlock = 256 * kLanes;
  const int64_t tail_begin = count - count % kLanes;
  int64_t total = 0;
  for (int64_t begin = 0; begin < tail_begin; begin += kBlock) {
    const int64_t end = tail_begin - begin < kBlock ? tail_begin : begin + kBlock;
    Lane lanes[kLanes] = {};
    for (int64_t i = begin; i < end; i += kLanes) {
      DNNL_UNROLL
      for (int64_t j = 0; j < kLanes; ++j) lanes[j] = static_cast<Lane>(lanes[j] + row[i + j]);
    }
    int32_t sum = 0;
    for (Lane lane : lanes) sum += lane;
    total += sum;
  }
  for (int64_t i = tail_begin; i < count; ++i) total += row[i];
  return total;
}

DNNL_FOR_CPUS int64_t SumOf(const uint8_t* row, int64_t count) {
  return SumOfRow<uint16_t>(row, count);
}
DNNL_FOR_CPUS int64_t SumOf(const int8_t* row, int64_t count) {
  return SumOfRow<int16_t>(row, count);
}

}  // namespace

template <typename T>
void MeansOfBytes(const T* src, int64_t rows, int64_t columns, float* dst) {
  // Terms that are worth a thread.
  constexpr int64_t kWork = 1 << 17;
  const int64_t grain = std::max<int64_t>(1, kWork / columns);
  ParallelFor(rows, grain, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const auto sum = static_cast<double>(SumOf(src + i * columns, columns));
      dst[i] = static_cast<float>(sum / static_cast<double>(columns));
    }
  });
}

template void MeansOfBytes(const uint8_t* src, int64_t rows, int64_t columns, float* dst);
template void MeansOfBytes(const int8_t* src, int64_t rows, int64_t columns, float* dst);

}  // namespace tvm::runtime::contrib::dnnl_backend
