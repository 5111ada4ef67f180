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
 * \file src/runtime/contrib/dnnl/core/kernels/prelu.h
 * \brief The rectifier with a slope per channel.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_PRELU_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_PRELU_H_

#include <cstdint>

namespace tvm::runtime::contrib::dnnl_backend {

/*!
 * \brief dst[i] = src[i] > 0 ? src[i] : slopes[i % period] * src[i]; in place, too.
 *
 * Positive numbers are not multiplied, by a slope that may be infinite or NaN.
 */
void PReLU(const float* src, const float* slopes, int64_t period, float* dst, int64_t count);
/*! \brief The same in bfloat16, rounded once. */
void PReLU(const uint16_t* src, const float* slopes, int64_t period, uint16_t* dst, int64_t count);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_PRELU_H_
