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
 * \file src/runtime/contrib/dnnl/core/kernels/reduce_ops.h
 * \brief How reductions join elements, of numbers and of vectors.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_REDUCE_OPS_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_REDUCE_OPS_H_

#include <limits>

#include "vectors.h"

namespace tvm::runtime::contrib::dnnl_backend {

struct SumOp {
  static constexpr float kBegin = 0.f;
  template <typename F>
  static DNNL_INLINE F Of(const F& x) {
    return x;
  }
  template <typename F>
  static DNNL_INLINE F Join(const F& a, const F& x) {
    return a + x;
  }
};

struct SquaresOp : SumOp {
  template <typename F>
  static DNNL_INLINE F Of(const F& x) {
    return x * x;
  }
};

struct ProdOp : SumOp {
  static constexpr float kBegin = 1.f;
  template <typename F>
  static DNNL_INLINE F Join(const F& a, const F& x) {
    return a * x;
  }
};

// NaN stays, whichever of the two it is.
struct MaxOp : SumOp {
  static constexpr float kBegin = -std::numeric_limits<float>::infinity();
  template <typename F>
  static DNNL_INLINE F Join(const F& a, const F& x) {
    const F larger = x > a ? x : a;
    return x == x ? larger : x;
  }
};

struct MinOp : SumOp {
  static constexpr float kBegin = std::numeric_limits<float>::infinity();
  template <typename F>
  static DNNL_INLINE F Join(const F& a, const F& x) {
    const F smaller = x < a ? x : a;
    return x == x ? smaller : x;
  }
};

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_KERNELS_REDUCE_OPS_H_
