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
 * \file src/runtime/contrib/dnnl/dnnl_tensor.cc
 * \brief Tensors of a plan: a piece of memory and the layout it is read with.
 */
#include "dnnl_tensor.h"

namespace tvm {
namespace runtime {
namespace contrib {
namespace dnnl_backend {

std::vector<int> InversePermutation(const std::vector<int>& axes) {
  std::vector<int> inverse(axes.size());
  for (size_t i = 0; i < axes.size(); ++i) inverse[axes[i]] = static_cast<int>(i);
  return inverse;
}

dnnl::memory::desc PermutedDesc(const dnnl::memory::desc& md, const std::vector<int>& axes) {
  // oneDNN's argument says where each dimension goes, ours where each one comes from.
  return md.permute_axes(InversePermutation(axes));
}

Dims PermutedDims(const Dims& dims, const std::vector<int>& axes) {
  Dims permuted;
  for (int axis : axes) permuted.push_back(dims[axis]);
  return permuted;
}

Tensor Tensor::Permuted(const std::vector<int>& axes) const {
  return Tensor{buffer, PermutedDesc(md, axes)};
}

Tensor Tensor::Reshaped(const Dims& dims) const {
  if (dims == md.get_dims()) return *this;
  // oneDNN gives new dimensions of size one strides that its own kernels do not recognise.
  if (IsPlain(md)) return Tensor{buffer, PlainDesc(dims, md.get_data_type())};
  const dnnl::memory::desc reshaped = md.reshape(dims, /*allow_empty=*/true);
  return reshaped ? Tensor{buffer, reshaped} : Tensor{};
}

}  // namespace dnnl_backend
}  // namespace contrib
}  // namespace runtime
}  // namespace tvm
