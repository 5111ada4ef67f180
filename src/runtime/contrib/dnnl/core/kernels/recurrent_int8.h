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
 * \file src/runtime/contrib/dnnl/core/kernels/recurrent_int8.h
 * \brief Products of rows and weights of 8 bits, by the dot products of VNNI.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_RECURRENT_INT8_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_RECURRENT_INT8_H_

#include <cstdint>
#include <vector>

#include "recurrent.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief The elements of a row with those that pad the last four. */
inline int64_t PaddedToQuads(int64_t size) { return (size + 3) / 4 * 4; }

/*! \brief A row in uint8. */
struct QuantizedRow {
  const uint8_t* values;
  float scale;
  int32_t zero_point;
  /*! \brief The sum of the numbers that the values stand for; NaN if one was not finite. */
  float sum;
};

/*! \brief Whether this CPU has VNNI, and ONEDNN_MAX_CPU_ISA allows it. */
bool HasInt8Products();

/*!
 * \brief Quantize a row as ONNX's DynamicQuantizeLinear does a tensor.
 * \param values Padded to quads.
 */
void QuantizeRow(const float* row, int64_t size, uint8_t* values, QuantizedRow* result);

/*!
 * \brief Add rows times the panels of some gates, 4 at most, to sums.
 * \param column The first column of the first gate; those of the others are `apart` further.
 * \param size The elements of a row.
 */
void AddInt8Products(const QuantizedRow* rows, int count, const RecurrentWeights& weights,
                     int64_t column, int gates, int64_t apart, int64_t size, float* sums,
                     int64_t row_stride);

/*!
 * \brief Pack weights (gates, hidden, size) into panels of 16 units, in each quads of elements.
 *
 * They are followed by what `Int8Weights` reads.
 * \param scales, zero_points (gates, hidden)
 */
std::vector<char> PackInt8(const std::vector<int8_t>& weights, const std::vector<float>& scales,
                           const std::vector<int32_t>& zero_points, int64_t gates, int64_t hidden,
                           int64_t size);

/*! \brief What PackInt8 has packed. \param columns gates * hidden, padded to panels. */
RecurrentWeights Int8Weights(const void* packed, int64_t columns, int64_t size);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_RECURRENT_INT8_H_
