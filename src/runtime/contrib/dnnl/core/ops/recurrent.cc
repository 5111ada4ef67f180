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
 * \file src/runtime/contrib/dnnl/core/ops/recurrent.cc
 * \brief LSTM, GRU and plain recurrent layers.
 */
#include "recurrent.h"

#include <algorithm>
#include <string>
#include <type_traits>
#include <vector>

#include "../exec/threads.h"
#include "../op_table.h"
#include "recurrent_kernel.h"
#include "rows.h"
#include "types.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief How errors call the operands. */
constexpr const char* kOperands[] = {"data", "weight",    "recurrent weight",
                                     "bias", "initial h", "initial c"};

/*! \brief An attribute that is one of some words. */
std::string ReadWord(const NodeReader& node, const std::string& key,
                     const std::vector<std::string>& words) {
  const auto value = node.Get<std::string>(key, words[0]);
  std::string expected;
  for (const std::string& word : words) {
    if (value == word) return value;
    expected += (expected.empty() ? "" : ", ") + word;
  }
  CORE_FAIL() << node.Where() << ": " << key << " is " << value
              << ", expected one of: " << expected;
}

/*! \brief Refuse an operand of another shape. */
void CheckOperand(const NodeReader& node, const Types& inputs, int index, const Dims& expected) {
  CORE_CHECK(inputs[index].shape == expected)
      << node.Where() << ": input " << index << ", the " << kOperands[index] << ", is "
      << ToText(inputs[index]) << ", expected: shape " << ToText(expected);
}

/*! \brief Refuse element types that are not the data's; biases and c may be float32. */
void CheckTypes(const NodeReader& node, const Types& inputs) {
  const DLDataType dtype = inputs[0].dtype;
  CORE_CHECK(dtype == kFloat32 || dtype.code == kDLBfloat)
      << node.Where() << ": input 0, the data, is " << ToText(inputs[0])
      << ", expected: float32 or bfloat16";
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool is_bias = i == 3, may_be_float = i == 5;
    const bool fits = is_bias ? inputs[i].dtype == kFloat32
                              : inputs[i].dtype == inputs[0].dtype ||
                                    (may_be_float && inputs[i].dtype == kFloat32);
    CORE_CHECK(fits) << node.Where() << ": input " << i << ", the " << kOperands[i] << ", is "
                     << ToText(inputs[i])
                     << (is_bias ? ", expected: float32" : ", expected: the type of the data, ")
                     << (is_bias ? "" : ToText(inputs[0]));
  }
}

}  // namespace

RecurrentLayer ReadRecurrentLayer(const NodeReader& node, const Dims& data, const Dims& weight,
                                  const Dims& recurrent_weight) {
  RecurrentLayer layer;
  const std::string& name = node.OpName();
  const std::string direction =
      ReadWord(node, "direction", {"forward", "reverse", "bidirectional"});
  layer.cell = Cell::kRNN;
  if (name == "dnnl.lstm") layer.cell = Cell::kLSTM;
  if (name == "dnnl.gru") {
    layer.cell = node.Get<bool>("linear_before_reset", false) ? Cell::kLinearGRU : Cell::kGRU;
  }
  if (name == "dnnl.rnn") {
    layer.is_relu = ReadWord(node, "activation", {"tanh", "relu"}) == "relu";
  }
  layer.directions = direction == "bidirectional" ? 2 : 1;
  layer.is_reverse = direction == "reverse";
  layer.is_batch_first = node.Get<bool>("batch_first", false);
  layer.has_initial_state = node.Get<bool>("has_initial_state", false);
  layer.steps = data[layer.is_batch_first ? 1 : 0];
  layer.batch = data[layer.is_batch_first ? 0 : 1];
  layer.inputs = weight[2];
  layer.hidden = recurrent_weight[2];
  return layer;
}

Types InferRecurrent(const NodeReader& node, const Types& inputs) {
  CORE_CHECK(!node.Has("post_ops")) << node.Where() << ": post-ops are not supported";
  for (int i = 0; i < 4; ++i) CheckRank(node, inputs, i, i == 3 ? 2 : 3);
  const RecurrentLayer layer =
      ReadRecurrentLayer(node, inputs[0].shape, inputs[1].shape, inputs[2].shape);
  const size_t states = layer.num_states();
  const size_t operands = 4 + (layer.has_initial_state ? states : 0);
  CORE_CHECK(inputs.size() == operands)
      << node.Where() << ": has " << inputs.size() << " inputs, but has_initial_state is "
      << layer.has_initial_state << ", which makes it " << operands;
  CheckTypes(node, inputs);
  // Sizes are below 2^31.
  const int64_t directions = layer.directions, hidden = layer.hidden;
  CheckOperand(node, inputs, 0, {inputs[0].shape[0], inputs[0].shape[1], layer.inputs});
  CheckOperand(node, inputs, 1, {directions, layer.gates() * hidden, layer.inputs});
  CheckOperand(node, inputs, 2, {directions, layer.gates() * hidden, hidden});
  CheckOperand(node, inputs, 3, {directions, layer.bias_gates() * hidden});
  const Dims state = {directions, layer.batch, hidden};
  for (size_t i = 4; i < operands; ++i) CheckOperand(node, inputs, static_cast<int>(i), state);
  Types results = {
      {{inputs[0].shape[0], inputs[0].shape[1], directions * hidden}, inputs[0].dtype}};
  // The last states have the types of the initial ones.
  for (size_t i = 0; i < states; ++i) {
    results.push_back({state, layer.has_initial_state ? inputs[4 + i].dtype : inputs[0].dtype});
  }
  return results;
}

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

/*!
 * \brief Whether our kernel is faster than oneDNN's primitive, which divides each step among the
 * threads, where ours divides directions and sequences.
 *
 * On one thread it takes 0.3 to 0.9 of the time of oneDNN 3.2 for one sequence (1 to 50 steps, 16
 * to 512 hidden units; AVX-512, AVX2 and SSE4.1), and 0.8 to 1.08 of it for 8 to 64. If threads are
 * left, such as the second for one sequence, the primitive takes 0.35 to 0.9 of the time of an LSTM
 * or GRU with 256 inputs and hidden units or more, whose weights two caches hold better, and more
 * below 192. Two directions on two threads, with caches of 2 MB, take 1.7 of our time with 256
 * units, whose weights a cache holds, and 0.6 with 320 or more. Its relu makes NaN zero.
 */
bool UsesKernel(const NodeReader& node, const RecurrentLayer& layer) {
  constexpr int64_t kLarge = 400000, kLargerThanCache = 700000;
  if (node.OutType() != dnnl::memory::data_type::f32) return false;
  const int threads = CurrentNumThreads();
  if (layer.cell == Cell::kRNN || threads <= layer.batch) return true;
  const int64_t weights = layer.gates() * layer.hidden * (layer.inputs + layer.hidden);
  return weights < (threads > layer.directions * layer.batch ? kLarge : kLargerThanCache);
}

/*! \brief A layer in float32 as one kernel of ours. */
void EmitRecurrentKernel(const NodeReader& node, PlanBuilder* plan, const RecurrentLayer& layer) {
  const RecurrentBlocks blocks(layer, CurrentNumThreads());
  const auto panels = [&](int index, int64_t gates, int64_t columns) {
    const Dims dims = {layer.directions * gates, layer.hidden, columns};
    const dnnl::memory::desc md(dims, dnnl::memory::data_type::f32,
                                dnnl::memory::format_tag::aBc16b);
    return plan->Weights(node, plan->Reshaped(node, plan->Input(node, index), dims), md);
  };
  const auto output = [&](int index) {
    const Dims state = {layer.directions, layer.batch, layer.hidden};
    return plan->NewTensor(
        PlainDesc(index == 0 ? node.OutDims() : state, dnnl::memory::data_type::f32));
  };
  PlanBuilder::Args args = {
      {DNNL_ARG_SRC_LAYER, plan->Plain(node, plan->Input(node, 0))},
      {DNNL_ARG_WEIGHTS_LAYER, panels(1, layer.gates(), layer.inputs)},
      {DNNL_ARG_WEIGHTS_ITER, panels(2, layer.gates(), layer.hidden)},
      {DNNL_ARG_BIAS, panels(3, layer.bias_gates(), 1)},
      {DNNL_ARG_DST_LAYER, output(0)},
      {DNNL_ARG_DST_ITER, output(1)},
      {DNNL_ARG_SCRATCHPAD, plan->NewTensor(PlainDesc({blocks.workers * blocks.scratch()},
                                                      dnnl::memory::data_type::f32))}};
  const bool has_c = layer.cell == Cell::kLSTM, has_initial = layer.has_initial_state;
  if (has_c) args.emplace_back(DNNL_ARG_DST_ITER_C, output(2));
  if (has_initial) args.emplace_back(DNNL_ARG_SRC_ITER, plan->Plain(node, plan->Input(node, 4)));
  if (has_c && has_initial) {
    args.emplace_back(DNNL_ARG_SRC_ITER_C, plan->Plain(node, plan->Input(node, 5)));
  }
  const auto run = [blocks, has_c, has_initial](void* const* addresses) {
    const auto at = [addresses](int i) { return static_cast<float*>(addresses[i]); };
    RecurrentTensors tensors{at(0),   at(1), at(2), at(3),   nullptr,
                             nullptr, at(4), at(5), nullptr, at(6)};
    int next = 7;
    if (has_c) tensors.c_n = at(next++);
    if (has_initial) tensors.h = at(next++);
    if (has_c && has_initial) tensors.c = at(next++);
    RunRecurrent(blocks, tensors);
  };
  const ThreadScope threads(static_cast<int>(blocks.workers));
  plan->EmitKernel(node, "rnn", run, args);
  const int outputs = std::min(node.NumOutputs(), has_c ? 3 : 2);
  const size_t positions[] = {4, 5, 7};
  for (int i = 0; i < outputs; ++i) plan->SetOutput(node, args[positions[i]].second, i);
}

}  // namespace

double RecurrentFlops(const NodeReader& node, const PlanBuilder& plan) {
  const RecurrentLayer layer = ReadRecurrentLayer(
      node, plan.Input(node, 0).dims(), plan.Input(node, 1).dims(), plan.Input(node, 2).dims());
  const auto rows = static_cast<double>(layer.steps * layer.batch);
  const auto columns = static_cast<double>(layer.directions * layer.gates() * layer.hidden);
  return 2. * rows * columns * static_cast<double>(layer.inputs + layer.hidden);
}

void LowerRecurrent(const NodeReader& node, PlanBuilder* plan) {
  const RecurrentLayer layer = ReadRecurrentLayer(
      node, plan->Input(node, 0).dims(), plan->Input(node, 1).dims(), plan->Input(node, 2).dims());
  if (UsesKernel(node, layer)) {
    EmitRecurrentKernel(node, plan, layer);
  } else {
    RecurrentPrimitive(node, plan, layer).Emit();
  }
  plan->SetVariant("", RecurrentFlops(node, *plan));
}

}  // namespace tvm::runtime::contrib::dnnl_backend
