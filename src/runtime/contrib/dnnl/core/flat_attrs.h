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
 * \file src/runtime/contrib/dnnl/core/flat_attrs.h
 * \brief The attributes of fused ops under names with dots.
 *
 * Version 1 of the JSON graph and dnnl_kernel.h cannot nest attributes: they have the list of names
 * "post_ops" and call the attributes of the i-th of them "post_ops.<i>.<name>", and those of the
 * dequantization of the k-th input "dequantize.<k>.<name>". Everything else knows the nested form:
 *
 *   "post_ops": [{"op": "add", "operand": 2, "is_bias": true}, {"op": "nn.relu"}],
 *   "dequantize": [{"input": 1, "scale": 3, "zero_point": 4, "axis": -1}]
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_FLAT_ATTRS_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_FLAT_ATTRS_H_

#include "graph.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*!
 * \brief Nest the attributes of fused ops. Names that are not of that form stay what they are, and
 * attributes of a post-op that is not in the list are dropped.
 */
void NestAttrs(Attrs* attrs);

/*! \brief Undo NestAttrs. */
Attrs FlatAttrs(const Attrs& attrs);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_FLAT_ATTRS_H_
