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
 * \file src/runtime/contrib/dnnl/core/kernels/byte_table.h
 * \brief Functions of 8-bit integers by a table of their results.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_BYTE_TABLE_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_BYTE_TABLE_H_

#include <cstdint>

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief The number of entries of a table: one for each value of a byte, read as unsigned. */
constexpr int kByteValues = 256;

/*! \brief dst[i] = table[src[i]], on all threads; in place, too. */
void LookUpBytes(const uint8_t* table, const uint8_t* src, uint8_t* dst, int64_t count);
/*! \brief The same with results in float32. */
void LookUpBytes(const float* table, const uint8_t* src, float* dst, int64_t count);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_BYTE_TABLE_H_
