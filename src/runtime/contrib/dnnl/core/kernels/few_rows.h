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
 * \file src/runtime/contrib/dnnl/core/kernels/few_rows.h
 * \brief Matmuls of few rows, of any sizes.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_FEW_ROWS_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_FEW_ROWS_H_

#include <cstdint>

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief The columns that a loop computes at once, and that a thread computes at least. */
constexpr int64_t kFewRowsColumns = 64;

/*! \brief One matrix multiplication: c = scale * a * b, in elements. */
struct FewRows {
  int64_t rows, columns, sum;
  /*! \brief From one row of a and c to the next; elements of a row are adjacent. */
  int64_t a_stride, c_stride;
  /*! \brief From one row of b to the next, or from one column to the next if b is transposed. */
  int64_t b_stride;
  float scale;
};

/*! \brief Columns [first, last) of one product, in blocks of kFewRowsColumns at most. */
void MultiplyFewRows(const float* a, const float* b, float* c, const FewRows& sizes,
                     bool is_transposed, int64_t first, int64_t last);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_FEW_ROWS_H_
