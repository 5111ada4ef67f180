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
 * \file src/runtime/contrib/dnnl/core/kernels/quantize.h
 * \brief Vector loops that quantize float32 numbers as the model runs.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_QUANTIZE_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_QUANTIZE_H_

#include <cstdint>

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief Extend a range to the smallest and the largest element; NaN leave it as it is. */
void ExtendRange(const float* src, int64_t count, float* low, float* high);

/*!
 * \brief dst[i] = round(src[i] / scale) + zero_point, halves to even, saturated to uint8.
 *
 * This is ONNX's QuantizeLinear. NaN become 0.
 */
void QuantizeToUint8(const float* src, int64_t count, float scale, int32_t zero_point,
                     uint8_t* dst);

/*! \brief dst[i] = scale * (q - zero_point), of what `QuantizeToUint8` makes of src[i]. */
void FakeQuantizeToUint8(const float* src, int64_t count, float scale, int32_t zero_point,
                         float* dst);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_QUANTIZE_H_
