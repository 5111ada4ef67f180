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
 * \file src/runtime/contrib/dnnl/core/kernels/reduce.h
 * \brief Reductions of float32 and bfloat16 along any axes of a strided tensor.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_REDUCE_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_REDUCE_H_

#include <cstdint>
#include <utility>
#include <vector>

namespace tvm::runtime::contrib::dnnl_backend {

enum class ReduceKind { kSum, kMean, kMax, kMin, kProd, kSumOfSquares };

/*! \brief A dimension of a tensor that is reduced; strides are in elements. */
struct ReduceDim {
  int64_t size;
  int64_t src_stride;
  /*! \brief -1 for a dimension that is reduced. */
  int64_t dst_stride;

  bool is_reduced() const { return dst_stride < 0; }
};

/*!
 * \brief A reduction.
 *
 * A sum is of blocks: at most 64 terms are added in float32 one after the other, all else in
 * float64. So it is within 4e-6 of the right one, relative to the sum of the absolute values, and
 * the same on any number of threads. A maximum or minimum is NaN where an element is.
 */
class ReduceKernel {
 public:
  /*!
   * \param dims The dimensions, in any order. One of stride 1 must be among them, unless there is
   * a single element.
   * \param is_bfloat16 Whether the source is in bfloat16; float32 otherwise.
   */
  ReduceKernel(ReduceKind kind, bool is_bfloat16, const std::vector<ReduceDim>& dims);

  /*! \brief How many bytes of memory a run needs to join parts of long sums. */
  int64_t scratch_bytes() const;

  /*!
   * \param src The tensor.
   * \param dst The results, in float32.
   * \param scratch See `scratch_bytes`; nullptr where that is zero.
   */
  void Run(const void* src, float* dst, void* scratch) const;

 private:
  void RunItems(const char* src, int64_t part, int64_t first, int64_t last, float* dst,
                double* sums) const;
  /*! \brief The first column of an item, and how many it has. */
  std::pair<int64_t, int64_t> ColumnsOf(int64_t item) const;
  void Finish(const double* sums, int64_t item, float* dst) const;

  ReduceKind kind_;
  bool is_bfloat16_;
  /*! \brief The dimensions that stay and that are reduced, from the outermost, but for the last. */
  std::vector<ReduceDim> kept_, outer_;
  /*! \brief These last ones: a matrix. */
  ReduceDim columns_{1, 1, 1}, rows_{1, 1, -1};
  /*! \brief An item of work is a block of columns. */
  int64_t blocks_{1}, items_{1};
  /*! \brief Into how many parts the outermost reduced dimension is divided. */
  int64_t parts_{1};
  int64_t grain_{1};
  double scale_{1};
};

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_REDUCE_H_
