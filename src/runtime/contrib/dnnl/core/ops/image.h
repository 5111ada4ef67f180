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
 * \file src/runtime/contrib/dnnl/core/ops/image.h
 * \brief Shared by pooling and resizing: one image in, one out, channels first for oneDNN.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_IMAGE_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_IMAGE_H_

#include <string>
#include <vector>

#include "../fusion/post_ops.h"
#include "../implementation.h"
#include "window.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief The permutation that brings the dimensions of source and result into oneDNN's order. */
inline std::vector<int> ImageAxes(const NodeReader& node) {
  const std::string order = ChannelsFirst("NC", SpatialOf(node));
  const auto layout = node.Get<std::string>("layout", order);
  CORE_CHECK(node.Get<std::string>("out_layout", layout) == layout)
      << node.Where() << ": out_layout differs from layout " << layout;
  return LayoutAxes(node, layout, order);
}

/*!
 * \brief Describe a primitive for an image in its own layout or, where oneDNN has no code of
 * this CPU for that, with the channels last.
 * \param src The image, which is brought into the layout that was chosen.
 * \param describe Makes the descriptor from that of the image.
 */
template <typename Describe>
auto DescribeForImage(const NodeReader& node, PlanBuilder* plan, Tensor* src,
                      const Describe& describe) {
  auto desc = describe(src->md);
  if (IsNative(desc)) return desc;
  *src = plan->InLayout(node, *src, ChannelsLast(src->md));
  return describe(src->md);
}

/*!
 * \brief Emit a primitive that makes an image of an image.
 * \param axes The permutation that brought the node's dimensions into the order of `src`.
 */
template <typename Primitive>
void EmitForImage(const NodeReader& node, PlanBuilder* plan, const Tensor& src,
                  const typename Primitive::primitive_desc& desc, const FusedOps& fused,
                  const std::vector<int>& axes) {
  const Tensor dst = plan->NewTensor(desc.dst_desc());
  plan->Emit(node, desc, Primitive(desc),
             fused.AddTo({{DNNL_ARG_SRC, src}, {DNNL_ARG_DST, dst}}, node, plan, desc),
             fused.names);
  plan->SetOutput(node, dst.Permuted(InversePermutation(axes)));
}

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_IMAGE_H_
