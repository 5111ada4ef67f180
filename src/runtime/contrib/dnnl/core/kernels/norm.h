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
 * \file src/runtime/contrib/dnnl/core/kernels/norm.h
 * \brief Normalization of rows of float32 and bfloat16.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_NORM_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_NORM_H_

#include <cstdint>

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief What is normalized: a row-major matrix. */
struct NormRows {
  int64_t rows, columns;
  /*!
   * \brief How many neighbouring columns share a factor and a shift. The others of a row follow in
   * `gamma` and `beta`; those of the next row too, and so on in a cycle of `cycle` rows.
   */
  int64_t shared{1}, cycle{1};
  float epsilon;
  /*! \brief The types of data and result, if not float32. What reads bfloat16 writes it. */
  bool reads_bfloat16, writes_bfloat16;
  /*! \brief Whether the mean is subtracted; else rows are divided by the root of the mean of their
   * squares. */
  bool is_centered{true};
};

/*!
 * \brief (x - mean) / sqrt(variance + epsilon) * gamma + beta of each row.
 *
 * The mean is subtracted as the sum of two floats, and the variance is that of the differences, so
 * a result is as exact for rows far from zero, relative to their deviation, as for others. Without
 * `is_centered`: x / sqrt(mean of squares + epsilon) * gamma + beta.
 *
 * \param src, dst Matrices, which may be the same if they have one type.
 * \param gamma, beta nullptr for ones and zeros.
 */
void NormalizeRows(const NormRows& norm, const void* src, const float* gamma, const float* beta,
                   void* dst);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_NORM_H_
