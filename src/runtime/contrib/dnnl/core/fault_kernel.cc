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
 * \file src/runtime/contrib/dnnl/core/fault_kernel.cc
 * \brief What decides whether a primitive has one of oneDNN's faults, read from its descriptor.
 */
#include <algorithm>

#include "faults.h"

namespace tvm::runtime::contrib::dnnl_backend {

using Kind = dnnl::primitive::kind;

Kernel Kernel::Read(const dnnl::primitive_desc& desc) {
  Kernel kernel;
  kernel.name = desc.impl_info_str();
  kernel.kind = desc.get_kind();
  const auto md = [&desc](dnnl::query what, int index = 0) { return desc.query_md(what, index); };
  const dnnl::memory::desc src = md(dnnl::query::src_md), dst = md(dnnl::query::dst_md);
  kernel.src_type = src.get_data_type();
  kernel.dst_type = dst.get_data_type();
  kernel.src = src.get_dims();
  kernel.dst = dst.get_dims();
  kernel.weights = md(dnnl::query::weights_md).get_dims();
  kernel.has_bias = md(dnnl::query::weights_md, 1).get_size() > 0;
  if (kernel.kind == Kind::convolution || kernel.kind == Kind::deconvolution) {
    kernel.strides = desc.get_strides();
    kernel.dilation = desc.get_dilations();
    kernel.pad_begin = desc.get_padding_l();
  }
  const dnnl::primitive_attr attr = desc.get_primitive_attr();
  const dnnl::post_ops post_ops = attr.get_post_ops();
  kernel.num_post_ops = post_ops.len();
  for (int i = 0; i < kernel.num_post_ops; ++i) {
    kernel.num_operands += post_ops.kind(i) == Kind::binary || post_ops.kind(i) == Kind::prelu;
    if (post_ops.kind(i) == Kind::eltwise) {
      dnnl::algorithm function;
      float alpha, beta;
      post_ops.get_params_eltwise(i, function, alpha, beta);
      kernel.has_sigmoid |= function == dnnl::algorithm::eltwise_logistic;
    }
  }
  return kernel;
}

int64_t Kernel::PadEnd(size_t dimension) const {
  const int64_t span = (Taps(dimension) - 1) * (dilation[dimension] + 1) + 1;
  return (dst[dimension + 2] - 1) * strides[dimension] + span - src[dimension + 2] -
         pad_begin[dimension];
}

bool Kernel::IsPadded() const {
  for (size_t i = 0; i < Spatial(); ++i) {
    if (pad_begin[i] > 0 || PadEnd(i) > 0) return true;
  }
  return false;
}

bool Kernel::IsDilated() const {
  return std::any_of(dilation.begin(), dilation.end(), [](int64_t gap) { return gap > 0; });
}

}  // namespace tvm::runtime::contrib::dnnl_backend
