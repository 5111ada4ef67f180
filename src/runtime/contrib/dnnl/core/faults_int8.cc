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
 * \file src/runtime/contrib/dnnl/core/faults_int8.cc
 * \brief Faults of int8 convolutions whose data is compensated, for a zero point or a sign.
 */
#include "faults_int8.h"

#include <algorithm>

namespace tvm::runtime::contrib::dnnl_backend {

using Kind = dnnl::primitive::kind;
using Type = dnnl::memory::data_type;

bool HasWrongBorder(const Kernel& kernel) {
  return kernel.IsConv() && kernel.StartsWith("jit:avx512_core_amx") && kernel.src_zero_point &&
         kernel.IsDilated() && kernel.IsPadded();
}

/*!
 * \brief Whether the sums that a zero point is compensated by may exceed their buffer.
 *
 * They are computed for padded rows alone if there are no padded columns, and read as if these were
 * of all columns where more than two tiles make a row.
 */
bool ExceedsSumsOfRows(const Kernel& kernel) {
  constexpr int64_t kTwoTiles = 32;
  if (!kernel.IsConv() || !kernel.StartsWith("jit:avx512_core_amx") || kernel.Spatial() == 0) {
    return false;
  }
  const size_t last = kernel.Spatial() - 1;
  return kernel.src_zero_point && kernel.IsPadded() && kernel.pad_begin[last] <= 0 &&
         kernel.PadEnd(last) <= 0 && kernel.dst.back() > kTwoTiles;
}

/*!
 * \brief Whether the weights may be packed by a transposition of 8x8 elements, which leaves out the
 * sums that a zero point, or signed data, are compensated by.
 *
 * These are the weights of 8 output channels whose elements are adjacent in both layouts: all of
 * those of a convolution by GEMM, or a block of depthwise ones. Many elements are divided for the
 * threads, by eights if they are a multiple of 8; observed from 144 on.
 */
bool LacksCompensation(const Kernel& kernel) {
  if (!kernel.IsInt8() || (!kernel.src_zero_point && kernel.src_type != Type::s8)) return false;
  if (!kernel.IsConv() && kernel.kind != Kind::deconvolution) return false;
  int64_t elements = kernel.Channels();
  for (size_t i = 0; i < kernel.Spatial(); ++i) elements *= kernel.Taps(i);
  const bool is_divided = elements == 8 || (elements > 64 && elements % 8 == 0);
  if (!is_divided || kernel.dst[1] % 8 != 0) return false;
  if (kernel.IsDepthwise() && kernel.Has("avx2")) return true;
  const bool is_adjacent = kernel.Channels() == 1 || kernel.Channels() == elements;
  return kernel.StartsWith("x64:gemm") && kernel.dst[1] == 8 && is_adjacent;
}

bool MisindexesBorder(const Kernel& kernel) {
  return kernel.IsConv() && kernel.StartsWith("brgconv:") && kernel.IsInt8() &&
         kernel.Spatial() == 3 && kernel.IsPadded() &&
         (kernel.src_zero_point || kernel.src_type == Type::s8);
}

/*!
 * \brief Whether it may compensate a zero point wrongly at the ends of rows.
 *
 * It was wrong for about one in thirty rows with a padding of 4 or more that were drawn, depending
 * on the width, the channels and the threads; not for any of 8,000 with less.
 */
bool MiscountsEndsOfRows(const Kernel& kernel) {
  constexpr int64_t kLongPadding = 4;
  if (!kernel.Has("brgconv:") || kernel.Has("amx") || kernel.Spatial() == 0) return false;
  if (!kernel.IsInt8() || !kernel.src_zero_point) return false;
  const size_t last = kernel.Spatial() - 1;
  int64_t begin = kernel.pad_begin[last], end = kernel.PadEnd(last);
  if (kernel.kind == Kind::deconvolution) {
    // It is the convolution with the kernel turned round.
    const int64_t reach = (kernel.Taps(last) - 1) * (kernel.dilation[last] + 1);
    begin = reach - begin;
    end = kernel.dst.back() - kernel.src.back() + reach - begin;
  }
  return (kernel.dilation[last] > 0 && end > 0) || std::max(begin, end) >= kLongPadding;
}

/*!
 * \brief Whether sums that compensate a zero point may be taken from another row, or from outside
 * of their buffer.
 *
 * There are such sums for each row of the result that is padded, and their positions are computed
 * for blocks of two rows. Observed where 4 rows at the end are padded, and once with 3 at the
 * begin.
 */
bool MiscountsPaddedRows(const Kernel& kernel) {
  constexpr int64_t kManyRows = 3;
  if (!kernel.IsConv() || !kernel.StartsWith("jit:avx512_core_amx") || !kernel.src_zero_point) {
    return false;
  }
  // The positions are those of an image then.
  if (kernel.Spatial() == 3 && kernel.src[2] == 1 && kernel.IsPadded()) return true;
  for (size_t i = 0; i + 1 < kernel.Spatial(); ++i) {
    const int64_t padding = std::max(kernel.pad_begin[i], kernel.PadEnd(i));
    if (padding > (kManyRows - 1) * kernel.strides[i]) return true;
  }
  return false;
}

}  // namespace tvm::runtime::contrib::dnnl_backend
