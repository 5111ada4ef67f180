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
 * \file tutorial_device.h
 * \brief What a vendor has: the instructions of the accelerator `tutorial`, here played by C99.
 */
#ifndef TUTORIAL_DEVICE_H_
#define TUTORIAL_DEVICE_H_

#include <math.h>
#include <stddef.h>
#include <stdint.h>

/*! \brief out[n][m] = x[n][k] * weight[m][k] + bias[m], clipped to low..high; bias may be NULL. */
static inline void TutorialDense(const float* x, const float* weight, const float* bias, float* out,
                                 int64_t n, int64_t m, int64_t k, float low, float high) {
  for (int64_t i = 0; i < n * m; ++i) {
    float sum = bias == NULL ? 0 : bias[i % m];
    for (int64_t j = 0; j < k; ++j) sum += x[i / m * k + j] * weight[i % m * k + j];
    out[i] = fminf(fmaxf(sum, low), high);
  }
}

/*! \brief out = lhs + rhs. */
static inline void TutorialAdd(const float* lhs, const float* rhs, float* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = lhs[i] + rhs[i];
}

#endif  // TUTORIAL_DEVICE_H_
