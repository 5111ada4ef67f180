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
 * \file src/runtime/contrib/dnnl/core/ops/nan_rows.h
 * \brief Makes a softmax of a row with a NaN, or with an infinity, all NaN, or zero.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_NAN_ROWS_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_NAN_ROWS_H_

#include <string>

#include "../kernels/zero_rows.h"
#include "../plan/builder.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief Those of a softmax of this name. */
ZeroRows ZeroRowsOf(const std::string& op);

/*!
 * \brief Have the latest step, a softmax, fill the rows with NaN that are none.
 *
 * oneDNN's exponential of NaN is infinite. The sum of a row with a NaN, or with the difference of
 * two infinities, is infinite then, and its other results are zeros (in a logarithm, -inf). So the
 * first finite result that is not zero shows that a row is right: few elements are read.
 *
 * \param result What the softmax made, the second argument of the step. The first, its scores, has
 *        the same layout, and for `ZeroRows::kMasked` memory of its own.
 * \param axis Along which the rows are.
 */
void SpreadNaN(PlanBuilder* plan, const Tensor& result, int axis, ZeroRows zeros);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_NAN_ROWS_H_
