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
 * \file src/runtime/contrib/dnnl/core/kernels/functions.h
 * \brief Functions that oneDNN lacks, computes wrongly of NaN, or not accurately enough.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_FUNCTIONS_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_FUNCTIONS_H_

#include <cstdint>

namespace tvm::runtime::contrib::dnnl_backend {

/*!
 * \brief A function of each of `count` floats; in place, too.
 *
 * The results are within 4e-7 of the right ones, relative to these, for all arguments (an
 * underflow is to zero or to a subnormal number). NaN gives NaN, but its sign is 0; infinities give
 * the limits.
 */
using FloatFunction = void (*)(const float* src, float* dst, int64_t count);

void Ceil(const float* src, float* dst, int64_t count);
/*! \brief Within 2e-7 for angles of any size; NaN for infinities. Sin, too. */
void Cos(const float* src, float* dst, int64_t count);
/*! \brief Within 5e-7, relative to the result. */
void Erf(const float* src, float* dst, int64_t count);
void Exp(const float* src, float* dst, int64_t count);
void Floor(const float* src, float* dst, int64_t count);
/*! \brief GELU by tanh: within 7e-7, relative to results above 1. */
void GeluTanh(const float* src, float* dst, int64_t count);
void Log(const float* src, float* dst, int64_t count);
/*! \brief alpha * x^beta; NaN of negative x unless beta is an integer. */
void Pow(float alpha, float beta, const float* src, float* dst, int64_t count);
/*! \brief The nearest integer, of two the even one. */
void Round(const float* src, float* dst, int64_t count);
/*! \brief 1 / (1 + exp(-x)); results below 1e-38 may be zero. */
void Sigmoid(const float* src, float* dst, int64_t count);
void Sign(const float* src, float* dst, int64_t count);
void Sin(const float* src, float* dst, int64_t count);
/*! \brief log(1 + exp(x)). */
void Softplus(const float* src, float* dst, int64_t count);
void Tanh(const float* src, float* dst, int64_t count);
/*! \brief The integer part. */
void Trunc(const float* src, float* dst, int64_t count);

/*! \brief How a batch normalization computes a channel. */
struct ChannelFactors {
  float mean, scale, shift;
  /*! \brief What lower results become. */
  float lowest;
};

/*! \brief (x - mean) * scale + shift; NaN stays NaN. */
void NormalizeChannel(const ChannelFactors& factors, const float* src, float* dst, int64_t count);

/*! \brief Convert numbers from bfloat16. */
void WidenBFloats(const uint16_t* src, float* dst, int64_t count);
/*!
 * \brief Round to the nearest numbers in bfloat16, of two to the even one; NaN stays NaN.
 * AVX512_BF16 makes 0 of subnormal numbers.
 */
void RoundToBFloats(const float* src, uint16_t* dst, int64_t count);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_FUNCTIONS_H_
