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
 * \file src/runtime/contrib/dnnl/core/fusion/post_ops.h
 * \brief Turns the ops after a composite's root op into oneDNN's bias and post-ops.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_FUSION_POST_OPS_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_FUSION_POST_OPS_H_

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../node_reader.h"
#include "../plan/builder.h"
#include "../plan/tensor.h"
#include "post_op_chain.h"
#include "quantization.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief How the root op's primitive sees its result. */
struct ResultView {
  /*! \brief The channel axis in Relay's order; -1 for a primitive without a bias argument. */
  int channel_axis;
  /*! \brief An operand of the result's rank, in Relay's order, as the primitive wants it. */
  std::function<Tensor(const Tensor&)> to_primitive;
  /*! \brief Whether the primitive computes the negative of what the root op does. */
  bool is_negated{false};
  /*! \brief Whether the primitive has a scale and a zero point of its result. */
  bool has_destination_scale{false};
  /*! \brief For a primitive on quantized numbers: the real result is scale * its result + shift. */
  double scale{1}, shift{0};
  /*! \brief The root op with its second operand, where the primitive leaves that to a post-op. */
  std::optional<std::pair<dnnl::algorithm, Tensor>> root{};
  /*! \brief Whether the root op, an elementwise one, is left to a post-op. */
  bool is_post_op{false};
  /*! \brief How many of the last dimensions a reshape must keep; 0 where none may be fused. */
  size_t kept_dims{0};
  /*! \brief Whether `FusedOps::head` is heeded where the bias, if any, is constant. */
  bool absorbs_linear{false};
};

/*! \brief The fused part of a composite. */
struct FusedOps {
  dnnl::primitive_attr attr;
  /*! \brief The (channels) vector to pass as the primitive's bias, or undefined. */
  Tensor bias;
  /*!
   * \brief What is done to the root op's result, bias included, before the post-ops; of a view that
   * absorbs it, and nowhere else.
   */
  std::optional<LinearFunction> head;
  /*! \brief The smallest step that anything is rounded to; 0 where nothing is. */
  double finest_step{0};
  /*! \brief How many elements the result has. */
  int64_t result_size;
  /*! \brief The second operands of binary post-ops, by DNNL_ARG_*. */
  PlanBuilder::Args operands;
  /*! \brief Scales and zero points, by DNNL_ARG_*. */
  PlanBuilder::Args scales;
  /*! \brief The names of what was fused, in order, for the report: "bias", "eltwise_relu", ... */
  std::vector<std::string> names;
  /*! \brief The addition of an operand of the result's shape, which may be done in its memory. */
  struct Residual {
    /*! \brief The operand (DNNL_ARG_*). */
    int arg{0};
    /*! \brief Its index in `names`; -1 where there is none. */
    int name{-1};
    /*! \brief `attr` with the sum instead of the addition. */
    dnnl::primitive_attr attr;
    /*! \brief The arguments of other operands that are others with it. */
    std::map<int, int> renumbered;
  } residual;
  bool has_residual() const { return residual.name >= 0; }

  /*!
   * \brief Have the primitive read an argument without dequantizing it.
   * \param mask oneDNN's, where they differ along an axis.
   */
  void Quantize(const Quantization& quantization, int arg, int mask);

  /*! \brief Note that something is rounded to multiples of a step. */
  void RoundTo(double step) { finest_step = finest_step == 0 ? step : std::min(finest_step, step); }

  /*! \brief The descriptor to create the primitive descriptor with: empty without a bias. */
  dnnl::memory::desc BiasDesc() const { return bias.defined() ? bias.md : dnnl::memory::desc(); }
  /*!
   * \brief `args` with the bias and the operands added.
   * \param desc The primitive's descriptor, which says in what layouts it wants the operands.
   */
  PlanBuilder::Args AddTo(PlanBuilder::Args args, const NodeReader& node, PlanBuilder* plan,
                          const dnnl::primitive_desc_base& desc) const;

  /*!
   * \brief After the primitive was emitted, offer to add the residual in its own memory.
   * \param desc The primitive's descriptor.
   * \param describe Makes a descriptor from those of source, weights and result, the attributes,
   *        and whether it may be empty where oneDNN has none.
   */
  template <typename Primitive, typename Describe>
  void OfferSum(PlanBuilder* plan, const typename Primitive::primitive_desc& desc,
                const Describe& describe) const {
    if (!has_residual()) return;
    const typename Primitive::primitive_desc sum =
        describe(desc.src_desc(), desc.weights_desc(), desc.dst_desc(), residual.attr,
                 /*allow_empty=*/true);
    // Only the code that runs it must be as good; all else, the workspace too, is the step's.
    if (!sum || std::string(sum.impl_info_str()) != desc.impl_info_str() ||
        sum.scratchpad_desc().get_size() != desc.scratchpad_desc().get_size()) {
      return;
    }
    plan->OfferInPlace(
        residual.arg, [sum]() { return Primitive(sum); }, residual.name, residual.renumbered);
  }
};

/*!
 * \brief Whether post-ops need a result without its dimensions of one element: those of oneDNN 3.2
 * read a vector of channels wrongly where each channel has one.
 */
inline bool HasOneElementPerChannel(const Dims& dims) {
  return dims.size() > 2 && NumElements(dims) == dims[0] * dims[1];
}

/*! \brief The first two dimensions of such a result, or of an operand of its rank. */
inline Tensor AsMatrix(const NodeReader& node, PlanBuilder* plan, const Tensor& value) {
  return plan->Reshaped(node, value, {value.dims()[0], value.dims()[1]});
}

/*!
 * \brief Read a node's post-ops.
 * \param view How the primitive sees the result. Without a channel axis it has no bias.
 */
FusedOps FusePostOps(const NodeReader& node, PlanBuilder* plan, const ResultView& view);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_FUSION_POST_OPS_H_
