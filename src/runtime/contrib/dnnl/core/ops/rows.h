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
 * \file src/runtime/contrib/dnnl/core/ops/rows.h
 * \brief Tensors of any rank as matrices, whose rows are along the last axis or axes.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_ROWS_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_ROWS_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "../error.h"
#include "../plan/builder.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief A row-major vector of float32, which oneDNN wants of statistics, factors and shifts. */
inline Tensor PlainFloats(const NodeReader& node, PlanBuilder* plan, const Tensor& value) {
  return plan->InLayout(node, value, PlainDesc(value.dims(), dnnl::memory::data_type::f32));
}

/*! \brief All dimensions but the last as one. */
inline Dims AsRows(const Dims& dims) { return {NumElements(dims) / dims.back(), dims.back()}; }

/*! \brief A value as a matrix of rows. */
inline Tensor FlattenRows(const NodeReader& node, PlanBuilder* plan, const Tensor& value) {
  return plan->Reshaped(node, value, AsRows(value.dims()));
}

/*!
 * \brief dst = data * weight^T of float32 with oneDNN's sgemm.
 * \param where What messages call the node.
 * \param dst_stride Between the rows of dst; those of data and weight are adjacent.
 */
inline void MultiplyByRows(const std::string& where, int64_t rows, int64_t units, int64_t columns,
                           const float* data, const float* weight, float* dst, int64_t dst_stride) {
  const dnnl_status_t status = dnnl_sgemm('N', 'T', rows, units, columns, 1.f, data, columns,
                                          weight, columns, 0.f, dst, dst_stride);
  CORE_CHECK(status == dnnl_success)
      << where << ": oneDNN's sgemm of " << rows << " rows, " << units << " units and " << columns
      << " columns failed with status " << status;
}

/*! \brief A row-major matrix whose rows are along some axes of a tensor, and the way back. */
class RowsAlong {
 public:
  RowsAlong(const NodeReader& node, PlanBuilder* plan, const Tensor& value,
            const std::vector<int>& axes) {
    int64_t columns = 1;
    for (int axis = 0; axis < static_cast<int>(value.dims().size()); ++axis) {
      if (std::count(axes.begin(), axes.end(), axis) == 0) order_.push_back(axis);
    }
    for (int axis : axes) {
      order_.push_back(axis);
      columns *= value.dims()[axis];
    }
    dims_ = PermutedDims(value.dims(), order_);
    const int64_t rows = NumElements(dims_) / columns;
    matrix_ = plan->Plain(node, value.Permuted(order_)).Reshaped({rows, columns});
  }

  const Tensor& matrix() const { return matrix_; }
  /*! \brief A row-major matrix of the same size as a tensor of the original dims. */
  Tensor Restore(const Tensor& matrix) const {
    return matrix.Reshaped(dims_).Permuted(InversePermutation(order_));
  }

 private:
  std::vector<int> order_;
  Dims dims_;
  Tensor matrix_;
};

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_ROWS_H_
