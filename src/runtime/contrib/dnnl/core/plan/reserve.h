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
 * \file src/runtime/contrib/dnnl/core/plan/reserve.h
 * \brief Memory with room for what later calls append, such as new keys and values to a cache.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_PLAN_RESERVE_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_PLAN_RESERVE_H_

#include <cstdint>
#include <vector>

#include "../desc.h"
#include "../graph.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief The size that there is room for along an axis that grows: a multiple of 64 or more. */
int64_t ReservedSize(int64_t size);

/*! \brief The strides of a row-major tensor with room along an axis; -1 for no such axis. */
std::vector<int64_t> ReservedStrides(const std::vector<int64_t>& shape, int axis);

/*! \brief Whether a tensor is row-major, and dense but for what is reserved along an axis. */
bool HasStrides(const DLTensor& tensor, int reserved_axis);

/*! \brief How an argument of known shape lies in memory. */
dnnl::memory::desc DescOf(const Argument& argument);

/*!
 * \brief Reserve memory for what a graph appends to an input, which nothing else reads, to return
 *        the whole as an output. A plan copies nothing but that if both are at one address.
 * \return The number of such an input for each output; -1 for the others.
 */
std::vector<int> ReserveForAppends(Graph* graph);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_PLAN_RESERVE_H_
