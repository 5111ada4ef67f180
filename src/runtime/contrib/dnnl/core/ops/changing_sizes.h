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
 * \file src/runtime/contrib/dnnl/core/ops/changing_sizes.h
 * \brief Kernels of ours for the plans of few calls, see PlanBuilder::sizes_change, and for few
 *        elements in graphs with open dimensions, as each token of a language model has.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_CHANGING_SIZES_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_CHANGING_SIZES_H_

#include <vector>

#include "../node_reader.h"
#include "../plan/builder.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*!
 * \brief Lower a batch_matmul of few rows in float32, alone or with a constant factor.
 * \return False where a primitive is to do it: the plan's sizes do not change, or there are more
 * rows, other types or other post-ops.
 */
bool LowerFewRows(const NodeReader& node, PlanBuilder* plan);

/*! \brief Lower a softmax along the last axis in float32; false where a primitive is to do it. */
bool LowerSoftmaxRows(const NodeReader& node, PlanBuilder* plan);

/*! \brief Lower an addition, subtraction, multiplication or division in float32, likewise. */
bool LowerBinaryRows(const NodeReader& node, PlanBuilder* plan);

/*! \brief Lower a linear function or a swish in float32, likewise. */
bool LowerUnaryRows(const NodeReader& node, PlanBuilder* plan);

/*! \brief Lower a concatenation to a result that memory is reserved for, see reserve.h. */
Tensor AppendRows(const NodeReader& node, PlanBuilder* plan, int axis);

/*!
 * \brief Concatenate tensors along an axis; undefined where a primitive is to do it.
 */
Tensor ConcatenateRows(const NodeReader& node, PlanBuilder* plan, const std::vector<Tensor>& parts,
                       int axis);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_CHANGING_SIZES_H_
