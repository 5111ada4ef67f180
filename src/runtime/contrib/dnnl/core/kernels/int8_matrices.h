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
 * \file src/runtime/contrib/dnnl/core/kernels/int8_matrices.h
 * \brief Exact matmuls of 8-bit integers, on CPUs with AVX2 but without VNNI.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_INT8_MATRICES_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_INT8_MATRICES_H_

#include <cstdint>

namespace tvm::runtime::contrib::dnnl_backend {

/*!
 * \brief Whether this CPU has the kernels, and they are worthwhile.
 *
 * They multiply in 16 bits, twice as many numbers at once as in float32. AVX-512 without VNNI
 * multiplies as many floats at once.
 */
bool HasInt8Matrices();

/*! \brief A matrix of 8 bits that is packed in panels, and the matrices of a batch. */
struct Int8Matrix {
  int64_t inner, columns;
  /*! \brief Where the next row and column begin, in elements. */
  int64_t row_stride, column_stride;
  bool is_signed;

  /*! \brief The columns of a panel. */
  static constexpr int64_t kPanel = 16;
  int64_t pairs() const { return (inner + 1) / 2; }
  int64_t panels() const { return (columns + kPanel - 1) / kPanel; }
  /*! \brief The bytes of a packed matrix; the rest of the last panel and pair is zero. */
  int64_t packed_bytes() const { return panels() * pairs() * 2 * kPanel; }
};

/*! \brief Pack matrices that follow each other. Unsigned elements become signed, less 128. */
void PackInt8Matrices(const Int8Matrix& matrix, int64_t count, const void* src, int8_t* packed);

/*! \brief Rows of 8 bits, and how they are quantized. */
struct Int8Source {
  const void* values;
  bool is_signed;
  int64_t rows;
  int32_t zero_point;
};

/*! \brief What becomes of sums of products. */
struct Int8Finish {
  /*! \brief The factor of each column, and what is added; with the padding of the last panel. */
  const float *scales, *bias;
  /*! \brief A factor of all columns. */
  float factor;
  /*! \brief The zero point of the second matrix. */
  int32_t zero_point;
  /*! \brief Bounds of the results, before the zero point of the result is added. */
  float low, high;
  int32_t result_zero_point;
  /*! \brief Whether results are rounded to integers of 8 bits; else they are float32. */
  bool is_rounded;
};

/*! \brief The 16-bit numbers that the workspace of rows needs, for their lengths. */
inline int64_t Int8Workspace(const Int8Matrix& matrix, int64_t rows) {
  // The numbers of each row, and their sum in 32 bits.
  return rows * (2 * matrix.pairs() + 2);
}

/*!
 * \brief Multiply rows by packed matrices: all by one, or an equal share of them by each of
 * several.
 * \param matrices How many there are.
 * \param dst Row-major, in float32 or 8 bits.
 */
void MultiplyInt8(const Int8Source& src, const Int8Matrix& matrix, int64_t matrices,
                  const int8_t* packed, const Int8Finish& finish, int16_t* workspace, void* dst);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_INT8_MATRICES_H_
