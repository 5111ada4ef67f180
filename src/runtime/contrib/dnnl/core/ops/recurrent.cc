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
#include <vector>

#include "../exec/threads.h"
#include "../kernels/recurrent.h"
#include "../kernels/recurrent_int8.h"
#include "../op_table.h"
#include "rows.h"
#include "types.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief How errors call the operands. */
constexpr const char* kOperands[] = {"data", "weight",    "recurrent weight",
                                     "bias", "initial h", "initial c"};
constexpr const char* kInt8Operands[] = {"weight's scale", "weight's zero point",
                                         "recurrent weight's scale",
                                         "recurrent weight's zero point"};

std::string NameOf(const RecurrentLayer& layer, int index) {
  if (layer.has_lengths && index == layer.lengths_index()) return "lengths";
  if (index >= layer.scales_index()) return kInt8Operands[index - layer.scales_index()];
  return kOperands[index];
}

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
void CheckOperand(const NodeReader& node, const RecurrentLayer& layer, const Types& inputs,
                  int index, const Dims& expected) {
  CORE_CHECK(inputs[index].shape == expected)
      << node.Where() << ": input " << index << ", the " << NameOf(layer, index) << ", is "
      << ToText(inputs[index]) << ", expected: shape " << ToText(expected);
}

/*!
 * \brief Refuse element types that are not the data's; biases and c may be float32, and the weights
 *        of float32 data bfloat16 or int8.
 */
void CheckTypes(const NodeReader& node, const RecurrentLayer& layer, const Types& inputs) {
  const DLDataType dtype = inputs[0].dtype, weight = inputs[1].dtype;
  const bool is_float = dtype == kFloat32;
  CORE_CHECK(is_float || dtype.code == kDLBfloat)
      << node.Where() << ": input 0, the data, is " << ToText(inputs[0])
      << ", expected: float32 or bfloat16";
  const bool may_be_narrow = is_float && (weight == kBFloat16 || layer.is_int8);
  const auto check = [&](int i, DLDataType expected, bool fits) {
    CORE_CHECK(fits || inputs[i].dtype == expected)
        << node.Where() << ": input " << i << ", the " << NameOf(layer, i) << ", is "
        << ToText(inputs[i]) << ", expected: " << ToText(expected);
  };
  check(1, dtype, may_be_narrow);
  check(2, weight, false);
  check(3, kFloat32, false);
  for (int i = 4; i < layer.lengths_index(); ++i) {
    check(i, dtype, i == 5 && inputs[i].dtype == kFloat32);
  }
  CORE_CHECK(is_float || !layer.has_lengths)
      << node.Where() << ": lengths of data in " << ToText(inputs[0]) << " are not supported";
  if (layer.has_lengths) check(layer.lengths_index(), kInt32, false);
  for (int i = 0; layer.is_int8 && i < 4; ++i) {
    check(layer.scales_index() + i, i % 2 == 0 ? kFloat32 : kInt32, false);
  }
}

}  // namespace

RecurrentLayer ReadRecurrentLayer(const NodeReader& node, const Dims& data, const Dims& weight,
                                  const Dims& recurrent_weight, bool is_int8) {
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
  layer.has_lengths = node.Get<bool>("has_lengths", false);
  layer.is_int8 = is_int8;
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
      ReadRecurrentLayer(node, inputs[0].shape, inputs[1].shape, inputs[2].shape,
                         node.OpName() == "dnnl.lstm" && inputs[1].dtype == kInt8);
  const auto operands = static_cast<size_t>(layer.num_operands());
  CORE_CHECK(inputs.size() == operands)
      << node.Where() << ": has " << inputs.size() << " inputs, but has_initial_state is "
      << layer.has_initial_state << (layer.has_lengths ? ", has_lengths is 1" : "")
      << (layer.is_int8 ? ", the weight is int8" : "") << ", which makes it " << operands;
  CheckTypes(node, layer, inputs);
  // Sizes are below 2^31.
  const int64_t directions = layer.directions, hidden = layer.hidden;
  const auto check = [&](int index, const Dims& dims) {
    CheckOperand(node, layer, inputs, index, dims);
  };
  const Dims columns = {directions, layer.gates() * hidden};
  check(0, {inputs[0].shape[0], inputs[0].shape[1], layer.inputs});
  check(1, {directions, columns[1], layer.inputs});
  check(2, {directions, columns[1], hidden});
  check(3, {directions, layer.bias_gates() * hidden});
  const Dims state = {directions, layer.batch, hidden};
  for (int i = 4; i < layer.lengths_index(); ++i) check(i, state);
  if (layer.has_lengths) check(layer.lengths_index(), {layer.batch});
  for (int i = layer.scales_index(); i < layer.num_operands(); ++i) check(i, columns);
  Types results = {
      {{inputs[0].shape[0], inputs[0].shape[1], directions * hidden}, inputs[0].dtype}};
  // The last states have the types of the initial ones.
  for (size_t i = 0; i < layer.num_states(); ++i) {
    results.push_back({state, layer.has_initial_state ? inputs[4 + i].dtype : inputs[0].dtype});
  }
  return results;
}

namespace {

/*! \brief The most columns whose products with int8 weights fit into int32. */
constexpr int64_t kMostInt8Columns = 32768;
/*! \brief With fewer weights, float32 is faster than to quantize the state in each step. */
constexpr int64_t kFewestInt8Weights = 60000;
/*! \brief From both sizes on, oneDNN's primitive may be faster. */
constexpr int64_t kManySequences = 32, kManyUnits = 256;
/*! \brief Whole tiles of AMX in bfloat16: the columns of two. */
constexpr int64_t kTileColumns = 64;

RecurrentLayer LayerOf(const NodeReader& node, const PlanBuilder& plan) {
  const auto dims = [&](int input) { return plan.Input(node, input).dims(); };
  const bool is_int8 = plan.Input(node, 1).dtype() == dnnl::memory::data_type::s8;
  return ReadRecurrentLayer(node, dims(0), dims(1), dims(2), is_int8);
}

/*! \brief The type of the weights that our kernel reads. */
WeightType WeightTypeOf(const NodeReader& node, const PlanBuilder& plan) {
  using Type = dnnl::memory::data_type;
  const Type type = plan.Input(node, 1).dtype();
  return type == Type::s8     ? WeightType::kInt8
         : type == Type::bf16 ? WeightType::kBFloat16
                              : WeightType::kFloat32;
}

/*!
 * \brief Whether oneDNN's primitive computes a layer in bfloat16.
 *
 * On AMX it uses tiles that it has not configured where sizes are not multiples of a tile's, for
 * an LSTM of one sequence, and for a GRU of 32 units: an illegal instruction, or writes past the
 * end of its memory. Its larger layers are right (120 of 120 drawn ones), and those are what it is
 * faster for: with 20 steps it takes 0.16 to 0.61 of the time of our kernel.
 */
bool IsRightInBFloat16(const RecurrentLayer& layer) {
  if (!HasISA(dnnl::cpu_isa::avx512_core_amx)) return true;
  return layer.inputs % kTileColumns == 0 && layer.hidden % kTileColumns == 0 &&
         layer.hidden >= kManyUnits && layer.batch > 1;
}

/*!
 * \brief Whether oneDNN's primitive is right and faster than our kernel for a layer.
 *
 * In bfloat16 it is faster. In float32, measured with oneDNN 3.2 and AVX-512: on one thread it
 * takes 0.77 to 0.95 of our time for 32 sequences or more of 256 hidden units or more, and 1.0 to 3
 * for fewer. On two threads, which our kernel has compute different sequences, it takes 0.9 to 1.7.
 */
bool IsFasterAsPrimitive(const NodeReader& node, const PlanBuilder& plan,
                         const RecurrentLayer& layer) {
  if (node.OutType() != dnnl::memory::data_type::f32) {
    return IsRightInBFloat16(layer);
  }
  // The relu of oneDNN's primitive makes zero of a NaN.
  return layer.batch >= kManySequences && layer.hidden >= kManyUnits && !layer.is_relu &&
         !layer.has_lengths && WeightTypeOf(node, plan) == WeightType::kFloat32 &&
         CurrentNumThreads() == 1;
}

/*! \brief Emits a layer as one kernel of ours, whose data and results are float32. */
class RecurrentKernel {
 public:
  RecurrentKernel(const NodeReader& node, PlanBuilder* plan, const RecurrentLayer& layer)
      : node_(node),
        plan_(plan),
        layer_(layer),
        blocks_(layer, WeightTypeOf(node, *plan), CurrentNumThreads()) {}

  void Emit() {
    const int64_t gates = layer_.gates();
    AddFloats(DNNL_ARG_SRC_LAYER, 0);
    Add(DNNL_ARG_WEIGHTS_LAYER, Weights(1, gates, layer_.inputs));
    Add(DNNL_ARG_WEIGHTS_ITER, Weights(2, gates, layer_.hidden));
    Add(DNNL_ARG_BIAS, Panels(3, layer_.bias_gates(), 1));
    Add(DNNL_ARG_SCRATCHPAD, plan_->NewTensor(PlainDesc({blocks_.total_scratch()}, Type::f32)));
    const bool has_c = layer_.num_states() > 1, has_initial = layer_.has_initial_state;
    const int y = AddResult(DNNL_ARG_DST_LAYER, 0), h_n = AddResult(DNNL_ARG_DST_ITER, 1);
    const int c_n = has_c ? AddResult(DNNL_ARG_DST_ITER_C, 2) : -1;
    const int h = has_initial ? AddFloats(DNNL_ARG_SRC_ITER, 4) : -1;
    const int c = has_initial && has_c ? AddFloats(DNNL_ARG_SRC_ITER_C, 5) : -1;
    const int index = layer_.lengths_index();
    const int lengths = layer_.has_lengths ? AddPlain(DNNL_ARG_AUGRU_ATTENTION, index) : -1;
    const auto run = [=, blocks = blocks_](void* const* addresses) {
      const auto at = [addresses](int i) {
        return i < 0 ? nullptr : static_cast<float*>(addresses[i]);
      };
      RunRecurrent(blocks,
                   {at(0), at(1), at(2), at(3), at(h), at(c),
                    reinterpret_cast<const int32_t*>(at(lengths)), at(y), at(h_n), at(c_n), at(4)});
    };
    const ThreadScope threads(static_cast<int>(blocks_.workers()));
    plan_->EmitKernel(node_, "rnn", run, args_);
    const int results[] = {y, h_n, c_n};
    const int outputs = std::min(node_.NumOutputs(), has_c ? 3 : 2);
    for (int i = 0; i < outputs; ++i) {
      const Tensor& result = args_[results[i]].second;
      const auto md = PlainDesc(result.dims(), node_.OutType(i));
      plan_->SetOutput(node_, plan_->InLayout(node_, result, md), i);
    }
  }

 private:
  using Type = dnnl::memory::data_type;

  int Add(int arg, const Tensor& tensor) {
    args_.emplace_back(arg, tensor);
    return static_cast<int>(args_.size()) - 1;
  }

  int AddFloats(int arg, int input) {
    return Add(arg, PlainFloats(node_, plan_, plan_->Input(node_, input)));
  }

  int AddPlain(int arg, int input) {
    return Add(arg, plan_->Plain(node_, plan_->Input(node_, input)));
  }

  int AddResult(int arg, int index) {
    const Dims state = {layer_.directions, layer_.batch, layer_.hidden};
    return Add(arg, plan_->NewTensor(PlainDesc(index == 0 ? node_.OutDims() : state, Type::f32)));
  }

  /*! \brief Weights or biases in panels. */
  Tensor Panels(int input, int64_t gates, int64_t columns) {
    const Tensor value = plan_->Input(node_, input);
    const Dims dims = {layer_.directions * gates, layer_.hidden, columns};
    const dnnl::memory::desc md(dims, value.dtype(), dnnl::memory::format_tag::aBc16b);
    return plan_->Weights(node_, plan_->Reshaped(node_, value, dims), md);
  }

  Tensor Weights(int input, int64_t gates, int64_t columns) {
    if (blocks_.type != WeightType::kInt8) return Panels(input, gates, columns);
    const int scale = layer_.scales_index() + 2 * (input - 1);
    const std::vector<char> packed =
        PackInt8(plan_->ValuesOf<int8_t>(node_, plan_->Input(node_, input)),
                 plan_->ValuesOf<float>(node_, plan_->Input(node_, scale)),
                 plan_->ValuesOf<int32_t>(node_, plan_->Input(node_, scale + 1)),
                 layer_.directions * gates, layer_.hidden, columns);
    const auto size = static_cast<int64_t>(packed.size());
    return plan_->ConstantOf(packed.data(), PlainDesc({size}, Type::s8));
  }

  const NodeReader& node_;
  PlanBuilder* plan_;
  const RecurrentLayer& layer_;
  const RecurrentBlocks blocks_;
  PlanBuilder::Args args_;
};

/*! \brief Have the node read float32 in the place of int8 weights. */
void DequantizeWeights(const NodeReader& node, PlanBuilder* plan, const RecurrentLayer& layer) {
  for (int input : {1, 2}) {
    const Tensor weight = plan->Input(node, input);
    const int scale = layer.scales_index() + 2 * (input - 1);
    const auto values = plan->ValuesOf<int8_t>(node, weight);
    const auto scales = plan->ValuesOf<float>(node, plan->Input(node, scale));
    const auto zero_points = plan->ValuesOf<int32_t>(node, plan->Input(node, scale + 1));
    const size_t columns = values.size() / scales.size();
    std::vector<float> floats(values.size());
    for (size_t i = 0; i < floats.size(); ++i) {
      const size_t row = i / columns;
      // Integers of a damaged artifact could overflow.
      floats[i] = (values[i] - static_cast<float>(zero_points[row])) * scales[row];
    }
    plan->SetInput(node, input, plan->NewConstant(floats).Reshaped(weight.dims()));
  }
}

}  // namespace

double RecurrentFlops(const NodeReader& node, const PlanBuilder& plan) {
  const RecurrentLayer layer = LayerOf(node, plan);
  const auto rows = static_cast<double>(layer.steps * layer.batch);
  const auto columns = static_cast<double>(layer.directions * layer.gates() * layer.hidden);
  return 2. * rows * columns * static_cast<double>(layer.inputs + layer.hidden);
}

void LowerRecurrent(const NodeReader& node, PlanBuilder* plan) {
  const RecurrentLayer layer = LayerOf(node, *plan);
  const int64_t weights = layer.gates() * layer.hidden * (layer.inputs + layer.hidden);
  const bool is_int8 = layer.is_int8 && HasInt8Products() && weights >= kFewestInt8Weights &&
                       std::max(layer.inputs, layer.hidden) <= kMostInt8Columns;
  if (layer.is_int8 && !is_int8) DequantizeWeights(node, plan, layer);
  if (IsFasterAsPrimitive(node, *plan, layer)) {
    EmitRecurrentPrimitive(node, plan, layer);
  } else {
    RecurrentKernel(node, plan, layer).Emit();
  }
  plan->SetVariant(is_int8 ? "rows quantized" : "", RecurrentFlops(node, *plan));
}

}  // namespace tvm::runtime::contrib::dnnl_backend
