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
 * \file src/runtime/contrib/dnnl/core/ops/recurrent_primitive.cc
 * \brief oneDNN's primitives of recurrent layers.
 */
#include <type_traits>

#include "../op_table.h"
#include "recurrent.h"
#include "rows.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief The descriptors of a primitive's tensors. */
struct RecurrentDescs {
  dnnl::memory::desc src, h, c, weights, recurrent_weights, bias, dst, h_n, c_n;
};

dnnl::rnn_direction DirectionOf(const RecurrentLayer& layer) {
  if (layer.directions == 2) return dnnl::rnn_direction::bidirectional_concat;
  return layer.is_reverse ? dnnl::rnn_direction::unidirectional_right2left
                          : dnnl::rnn_direction::unidirectional_left2right;
}

/*! \brief Emits oneDNN's primitive of a layer. */
class RecurrentPrimitive {
 public:
  RecurrentPrimitive(const NodeReader& node, PlanBuilder* plan, const RecurrentLayer& layer)
      : node_(node), plan_(plan), layer_(layer) {}

  void Emit() {
    using dnnl::prop_kind;
    const RecurrentDescs d = Describe();
    const auto& engine = plan_->engine();
    const auto inference = prop_kind::forward_inference;
    const auto direction = DirectionOf(layer_);
    const dnnl::primitive_attr attr = PlanBuilder::NewAttr();
    switch (layer_.cell) {
      case Cell::kLSTM:
        return EmitAs<dnnl::lstm_forward>(dnnl::lstm_forward::primitive_desc(
            engine, inference, direction, d.src, d.h, d.c, d.weights, d.recurrent_weights, d.bias,
            d.dst, d.h_n, d.c_n, attr));
      case Cell::kGRU:
        return EmitAs<dnnl::gru_forward>(
            dnnl::gru_forward::primitive_desc(engine, inference, direction, d.src, d.h, d.weights,
                                              d.recurrent_weights, d.bias, d.dst, d.h_n, attr));
      case Cell::kLinearGRU:
        return EmitAs<dnnl::lbr_gru_forward>(dnnl::lbr_gru_forward::primitive_desc(
            engine, inference, direction, d.src, d.h, d.weights, d.recurrent_weights, d.bias, d.dst,
            d.h_n, attr));
      case Cell::kRNN:
        return EmitAs<dnnl::vanilla_rnn_forward>(dnnl::vanilla_rnn_forward::primitive_desc(
            engine, inference,
            layer_.is_relu ? dnnl::algorithm::eltwise_relu : dnnl::algorithm::eltwise_tanh,
            direction, d.src, d.h, d.weights, d.recurrent_weights, d.bias, d.dst, d.h_n, attr));
    }
  }

 private:
  /*! \brief Data or result as oneDNN has it, (T, N, C). */
  dnnl::memory::desc TimeFirst(const dnnl::memory::desc& md) const {
    return layer_.is_batch_first ? PermutedDesc(md, {1, 0, 2}) : md;
  }

  /*! \brief Weights (D, G * H, C) as oneDNN has them, (1, D, C, G, H). */
  Tensor Gates(int index, int64_t columns) const {
    const Dims dims = {1, layer_.directions, layer_.gates(), layer_.hidden, columns};
    return plan_->Reshaped(node_, plan_->Input(node_, index), dims).Permuted({0, 1, 4, 2, 3});
  }

  RecurrentDescs Describe() {
    const auto state = [this](int result) {
      const Dims dims = {1, layer_.directions, layer_.batch, layer_.hidden};
      return PlainDesc(dims, node_.OutType(result));
    };
    src_ = plan_->Plain(node_, plan_->Input(node_, 0));
    weights_ = Gates(1, layer_.inputs);
    recurrent_weights_ = Gates(2, layer_.hidden);
    bias_ = PlainFloats(node_, plan_, plan_->Input(node_, 3))
                .Reshaped({1, layer_.directions, layer_.bias_gates(), layer_.hidden});
    RecurrentDescs d;
    d.src = TimeFirst(src_.md);
    d.dst = TimeFirst(PlainDesc(node_.OutDims(), node_.OutType()));
    d.weights = AnyDesc(weights_.md);
    d.recurrent_weights = AnyDesc(recurrent_weights_.md);
    d.bias = bias_.md;
    d.h_n = state(1);
    if (layer_.num_states() == 2) d.c_n = state(2);
    if (layer_.has_initial_state) {
      d.h = d.h_n;
      d.c = d.c_n;
    } else if (layer_.num_states() == 2) {
      // oneDNN takes an absent one for float32, and the last one must have its type.
      d.c_n = PlainDesc(d.c_n.get_dims(), dnnl::memory::data_type::f32);
    }
    return d;
  }

  template <typename Primitive>
  void EmitAs(const typename Primitive::primitive_desc& desc) {
    const auto initial = [this](int index, const dnnl::memory::desc& md) {
      return plan_->Plain(node_, plan_->Input(node_, index)).Reshaped(md.get_dims());
    };
    const Tensor dst = plan_->NewTensor(desc.dst_layer_desc());
    const Tensor h_n = plan_->NewTensor(desc.dst_iter_desc());
    PlanBuilder::Args args = {
        {DNNL_ARG_SRC_LAYER, {src_.buffer, desc.src_layer_desc()}},
        {DNNL_ARG_WEIGHTS_LAYER, plan_->Weights(node_, weights_, desc.weights_layer_desc())},
        {DNNL_ARG_WEIGHTS_ITER,
         plan_->Weights(node_, recurrent_weights_, desc.weights_iter_desc())},
        {DNNL_ARG_BIAS, bias_},
        {DNNL_ARG_DST_LAYER, dst},
        {DNNL_ARG_DST_ITER, h_n}};
    if (layer_.has_initial_state) {
      args.emplace_back(DNNL_ARG_SRC_ITER, initial(4, desc.src_iter_desc()));
    }
    const Dims state = {layer_.directions, layer_.batch, layer_.hidden};
    if constexpr (std::is_same_v<Primitive, dnnl::lstm_forward>) {
      if (layer_.has_initial_state) {
        args.emplace_back(DNNL_ARG_SRC_ITER_C, initial(5, desc.src_iter_c_desc()));
      }
      args.emplace_back(DNNL_ARG_DST_ITER_C, plan_->NewTensor(desc.dst_iter_c_desc()));
    }
    plan_->Emit(node_, desc, Primitive(desc), args);
    if (std::is_same_v<Primitive, dnnl::lstm_forward> && node_.NumOutputs() > 2) {
      const Tensor c_n = args.back().second.Reshaped(state);
      const auto md = PlainDesc(state, node_.OutType(2));
      plan_->SetOutput(node_, plan_->InLayout(node_, c_n, md), 2);
    }
    plan_->SetOutput(node_, {dst.buffer, PlainDesc(node_.OutDims(), node_.OutType())});
    if (node_.NumOutputs() > 1) plan_->SetOutput(node_, h_n.Reshaped(state), 1);
  }

  const NodeReader& node_;
  PlanBuilder* plan_;
  const RecurrentLayer& layer_;
  Tensor src_, weights_, recurrent_weights_, bias_;
};

}  // namespace

void EmitRecurrentPrimitive(const NodeReader& node, PlanBuilder* plan,
                            const RecurrentLayer& layer) {
  RecurrentPrimitive(node, plan, layer).Emit();
}

}  // namespace tvm::runtime::contrib::dnnl_backend
