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
 * \file src/runtime/contrib/dnnl/core/ops/recurrent.h
 * \brief Lowers recurrent layers, by a kernel of ours or by primitives.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_RECURRENT_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_RECURRENT_H_

#include "../kernels/recurrent.h"
#include "../node_reader.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief Read the layer of a node whose operands have these dims, of rank 3. */
RecurrentLayer ReadRecurrentLayer(const NodeReader& node, const Dims& data, const Dims& weight,
                                  const Dims& recurrent_weight, bool is_int8);

class PlanBuilder;

/*! \brief Emit oneDNN's primitive of a layer whose weights have the type of the data. */
void EmitRecurrentPrimitive(const NodeReader& node, PlanBuilder* plan, const RecurrentLayer& layer);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_RECURRENT_H_
