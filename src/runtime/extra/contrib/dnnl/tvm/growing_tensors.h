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
 * \file src/runtime/extra/contrib/dnnl/tvm/growing_tensors.h
 * \brief Tensors whose memory has room for what later calls append to them.
 */
#ifndef TVM_RUNTIME_EXTRA_CONTRIB_DNNL_TVM_GROWING_TENSORS_H_
#define TVM_RUNTIME_EXTRA_CONTRIB_DNNL_TVM_GROWING_TENSORS_H_

#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief A new tensor, with room along an axis; without one if that is -1. */
ffi::Tensor NewTensor(const ffi::Shape& shape, DLDataType dtype, int axis);

/*!
 * \brief Lay a tensor out with room along an axis.
 * \param past The tensor. It becomes a copy if its items, which begin at the axis, are dense, and
 *        lie otherwise: a dense tensor, or the first rows of a longer one.
 */
void Reserve(int axis, ffi::Tensor* past);

/*!
 * \brief The tensor to which a call appends: longer than `past` along an axis.
 *
 * It begins with the elements of `past`, in the same memory, if there is room after them that no
 * other tensor has taken. Otherwise it has memory of its own. The elements of `past` stay in any
 * case, so that several calls may continue from it.
 */
ffi::Tensor Longer(const ffi::Tensor& past, const ffi::Shape& shape, int axis);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_EXTRA_CONTRIB_DNNL_TVM_GROWING_TENSORS_H_
