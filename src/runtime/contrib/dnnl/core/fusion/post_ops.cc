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
 * \file src/runtime/contrib/dnnl/core/fusion/post_ops.cc
 * \brief Turns the ops after a composite's root op into oneDNN's bias and post-ops.
 */
#include "post_ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "../op_table.h"
#include "quantization.h"
#include "second_operand.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief The post-ops, and the same with one addition done in the result's memory. */
struct PostOpChains {
  PostOpChain plain{false}, in_place{true};

  void AppendEltwise(dnnl::algorithm algorithm, double alpha, double beta) {
    plain.AppendEltwise(algorithm, alpha, beta);
    in_place.AppendEltwise(algorithm, alpha, beta);
  }
  void AppendLinear(double scale, double shift) {
    plain.AppendLinear(scale, shift);
    in_place.AppendLinear(scale, shift);
  }
  void AppendBinary(dnnl::algorithm algorithm, const Tensor& operand, bool is_residual) {
    plain.AppendBinary(algorithm, operand, is_residual);
    in_place.AppendBinary(algorithm, operand, is_residual);
  }
  void AppendPReLU(const Tensor& slopes) {
    plain.AppendPReLU(slopes);
    in_place.AppendPReLU(slopes);
  }
};

/*!
 * \brief The vector that the root op's primitive adds to each channel, if the graph says that the
 * post-op is this; undefined for any other operand, and where the primitive adds none.
 */
Tensor BiasOf(const NodeReader& node, const NodeReader& post_op, PlanBuilder* plan,
              const Tensor& operand, int channel_axis) {
  if (channel_axis < 0 || !post_op.Get<bool>("is_bias", false)) return {};
  const Dims dims = node.RootDims();
  const int64_t channels = dims[channel_axis];
  // The rank of the operand is that after a reshape, which keeps the last dimensions.
  const size_t from_end = dims.size() - channel_axis;
  CORE_CHECK(NumElements(operand.dims()) == channels &&
             operand.dims()[operand.dims().size() - from_end] == channels)
      << post_op.Where() << ": a bias of shape " << ToText(operand.dims()) << " does not fit "
      << channels << " channels";
  return plan->Plain(node, operand).Reshaped({channels});
}

/*! \brief Refuse a post-op that we have a function for, unless the result is then rounded anyway.
 */
void CheckFunction(const NodeReader& node, const NodeReader& post_op) {
  if (!FindOp(post_op.OpName())->OwnFunction(post_op)) return;
  const int last = node.NumPostOps() - 1;
  if (last < 0 || node.PostOp(last).OpName() != "qnn.quantize") {
    throw dnnl::error(dnnl_unimplemented, "oneDNN's function is less accurate or slower than ours");
  }
}

void AppendEltwise(const NodeReader& post_op, const OpSpec& op, PostOpChains* chain,
                   FusedOps* fused) {
  const auto [alpha, beta] = op.AlphaBeta(post_op);
  chain->AppendEltwise(op.algorithm, alpha, beta);
  fused->names.push_back(AlgorithmName(op.algorithm));
  if (!op.is_reciprocal) return;
  chain->AppendEltwise(dnnl::algorithm::eltwise_pow, 1.f, -1.f);
  fused->names.push_back(AlgorithmName(dnnl::algorithm::eltwise_pow));
}

/*!
 * \brief Append the op with a constant number, which is a linear function; false where it is none.
 *
 * The result is the same to the last bit, but for what is rounded once in the place of twice.
 */
bool AppendNumber(const NodeReader& post_op, dnnl::algorithm algorithm,
                  const PostOpOperand& operand, PlanBuilder* plan, PostOpChains* chain) {
  const Tensor& value = operand.value;
  if (NumElements(value.dims()) != 1 || !plan->IsConstant(value)) return false;
  float number = 0;
  if (value.dtype() == dnnl::memory::data_type::f32) {
    number = plan->ValuesOf<float>(post_op, value)[0];
  } else if (value.dtype() == dnnl::memory::data_type::bf16) {
    const uint32_t bits = plan->ValuesOf<uint16_t>(post_op, value)[0] << 16;
    std::memcpy(&number, &bits, sizeof(number));
  } else {
    return false;
  }
  int exponent = 0;
  switch (algorithm) {
    case dnnl::algorithm::binary_add:
      chain->AppendLinear(1, number);
      return true;
    case dnnl::algorithm::binary_sub:
      chain->AppendLinear(1, -number);
      return true;
    case dnnl::algorithm::binary_mul:
      chain->AppendLinear(number, 0);
      return true;
    case dnnl::algorithm::binary_div:
      // The inverse of other numbers is rounded.
      if (std::abs(std::frexp(number, &exponent)) != 0.5) return false;
      chain->AppendLinear(1. / number, 0);
      return true;
    default:
      return false;
  }
}

/*!
 * \brief Append `result op operand` or, where the operand comes first, `operand op result`.
 *
 * An operand q in 8 bits stands for s * (q - z): x + s * (q - z) is ((x / s - z) + q) * s.
 */
void AppendBinary(const NodeReader& post_op, const OpSpec& op, const PostOpOperand& operand,
                  PlanBuilder* plan, PostOpChains* chain, FusedOps* fused) {
  dnnl::algorithm algorithm = op.algorithm;
  if (post_op.Get<bool>("operand_first", false) && algorithm == dnnl::algorithm::binary_sub) {
    // operand - result = -result + operand, to the last bit.
    chain->AppendLinear(-1, 0);
    algorithm = dnnl::algorithm::binary_add;
  } else {
    if (post_op.Get<bool>("operand_first", false) && !IsCommutative(algorithm)) {
      throw dnnl::error(dnnl_unimplemented, "the result is the second operand of a post-op");
    }
  }
  if (AppendNumber(post_op, algorithm, operand, plan, chain)) {
    fused->names.push_back(AlgorithmName(algorithm));
    return;
  }
  const bool is_residual = NumElements(operand.value.dims()) >= fused->result_size &&
                           algorithm == dnnl::algorithm::binary_add && !fused->has_residual();
  if (is_residual) fused->residual.name = static_cast<int>(fused->names.size());
  const double sign = algorithm == dnnl::algorithm::binary_add ? -1 : 1;
  const bool is_product = algorithm == dnnl::algorithm::binary_mul;
  if (!is_product) chain->AppendLinear(1 / operand.scale, sign * operand.zero_point);
  chain->AppendBinary(algorithm, operand.value, is_residual);
  chain->AppendLinear(operand.scale, 0);
  fused->names.push_back(AlgorithmName(algorithm));
}

/*! \brief The values that a quantize followed by a dequantize can represent. */
void AppendFakeQuantization(const NodeReader& quantize, const NodeReader& dequantize,
                            PlanBuilder* plan, PostOpChains* chain, FusedOps* fused) {
  const Dims dims = quantize.OutDims();
  const auto [to_scale, to_zero] = Quantization::Read(quantize, plan, dims).Values(quantize, plan);
  const auto [from_scale, from_zero] =
      Quantization::Read(dequantize, plan, dims).Values(dequantize, plan);
  const auto [low, high] = RangeOf(quantize.OutType());
  fused->RoundTo(to_scale);
  // Zero points go while the numbers are integers: real zeros stay zeros.
  chain->AppendLinear(1 / to_scale, 0);
  chain->AppendEltwise(dnnl::algorithm::eltwise_round, 0, 0);
  chain->AppendEltwise(dnnl::algorithm::eltwise_clip, low - to_zero, high - to_zero);
  chain->AppendLinear(from_scale, from_scale * (to_zero - from_zero));
  for (const char* name : {"round", "clip"}) fused->names.push_back(name);
}

/*!
 * \brief Refuse to fuse a post-op after which the primitive would see its result otherwise.
 * \param kept How many of the last dimensions a reshape must leave.
 * \param dims Those of the result before the post-op; here they become those after it.
 */
void CheckKept(const NodeReader& post_op, size_t kept, Dims* dims) {
  const Dims before = std::exchange(*dims, post_op.OutDims());
  if (*dims == before) return;
  const bool is_view = FindOp(post_op.OpName())->family.as_post_op == PostOp::kView;
  if (!is_view || kept == 0 || before.size() < kept || dims->size() < kept ||
      !std::equal(before.end() - kept, before.end(), dims->end() - kept)) {
    throw dnnl::error(dnnl_unimplemented, "a post-op changes the shape of the result");
  }
}

/*! \brief The quantization at the end, unless it is appended as a post-op. */
Quantization AppendQuantization(const NodeReader& quantize, PlanBuilder* plan,
                                const ResultView& view, PostOpChains* chain, FusedOps* fused) {
  const Quantization destination = Quantization::Read(quantize, plan, quantize.OutDims());
  fused->names.push_back("quantize");
  if (!destination.IsPerTensor()) {
    throw dnnl::error(dnnl_unimplemented, "the result does not have a single scale");
  }
  if (destination.IsConstant(*plan)) fused->RoundTo(destination.Values(quantize, plan).first);
  // As a linear function it may become one with what the chain begins with.
  const bool is_absorbed = view.absorbs_linear && destination.IsConstant(*plan);
  if (view.has_destination_scale && !is_absorbed) return destination;
  const auto [scale, zero_point] = destination.Values(quantize, plan);
  chain->AppendLinear(1 / scale, zero_point);
  return {};
}

/*! \brief The common beginning of both chains: the one in the result's memory decides. */
LinearFunction TakeHead(bool has_residual, PostOpChains* chain) {
  const LinearFunction plain = chain->plain.TakeHead();
  if (!has_residual) return plain;
  const LinearFunction head = chain->in_place.TakeHead();
  const double scale = plain.scale / head.scale;
  chain->plain.Prepend(scale, plain.shift - scale * head.shift);
  return head;
}

}  // namespace

PlanBuilder::Args FusedOps::AddTo(PlanBuilder::Args args, const NodeReader& node, PlanBuilder* plan,
                                  const dnnl::primitive_desc_base& desc) const {
  if (bias.defined()) args.emplace_back(DNNL_ARG_BIAS, bias);
  for (const auto& [arg, operand] : operands) {
    const dnnl::memory::desc want = desc.query_md(dnnl::query::exec_arg_md, arg);
    // oneDNN does not say how it reads slopes: they are row-major.
    args.emplace_back(arg, want.is_zero() ? operand : plan->InLayout(node, operand, want));
  }
  args.insert(args.end(), scales.begin(), scales.end());
  return args;
}

void FusedOps::Quantize(const Quantization& quantization, int arg, int mask) {
  quantization.AddTo(arg, mask, &attr, &scales);
  if (!has_residual()) return;
  PlanBuilder::Args same;
  quantization.AddTo(arg, mask, &residual.attr, &same);
}

FusedOps FusePostOps(const NodeReader& node, PlanBuilder* plan, const ResultView& view) {
  FusedOps fused;
  fused.attr = PlanBuilder::NewAttr();
  fused.result_size = NumElements(node.OutDims());
  PostOpChains chain;
  if (view.is_negated) chain.AppendLinear(-1, 0);
  chain.AppendLinear(view.scale, view.shift);
  if (view.root) chain.AppendBinary(view.root->first, view.root->second, /*is_residual=*/false);
  if (view.is_post_op) {
    CheckFunction(node, node);
    AppendEltwise(node, *FindOp(node.OpName()), &chain, &fused);
  }
  Quantization destination;
  Dims dims = node.RootDims();
  const auto type = node.WithoutPostOps().OutType();
  for (int i = 0; i < node.NumPostOps(); ++i) {
    const NodeReader post_op = node.PostOp(i);
    CheckKept(post_op, view.kept_dims, &dims);
    if (post_op.IsQNN()) {
      const bool is_last = i + 1 == node.NumPostOps();
      if (post_op.OpName() != "qnn.quantize" ||
          (!is_last && node.PostOp(i + 1).OpName() != "qnn.dequantize")) {
        throw dnnl::error(dnnl_unimplemented, "an op computes with quantized values");
      }
      if (is_last) {
        destination = AppendQuantization(post_op, plan, view, &chain, &fused);
      } else {
        AppendFakeQuantization(post_op, node.PostOp(++i), plan, &chain, &fused);
      }
      continue;
    }
    if (post_op.OutType() != type) {
      throw dnnl::error(dnnl_unimplemented, "a post-op changes the type of the result");
    }
    const OpSpec* op = FindOp(post_op.OpName());
    switch (op->family.as_post_op) {
      case PostOp::kNone:
        throw dnnl::error(dnnl_unimplemented, "an op cannot be fused");
      case PostOp::kView:
        // The primitive computes the elements in the same order, whatever their dimensions are.
        break;
      case PostOp::kEltwise:
        CheckFunction(node, post_op);
        AppendEltwise(post_op, *op, &chain, &fused);
        break;
      case PostOp::kPReLU: {
        // Some primitives of oneDNN accept a PReLU, and then do not run.
        if (view.channel_axis < 0) throw dnnl::error(dnnl_unimplemented, "an op without weights");
        // oneDNN reads float32 slopes, whatever the type of the data is.
        Tensor slopes = ReadPostOpOperand(node, post_op, plan, dnnl::algorithm::undef).value;
        if (slopes.dtype() != dnnl::memory::data_type::f32) {
          slopes = Cast(node, plan, slopes, dnnl::memory::data_type::f32);
        }
        chain.AppendPReLU(plan->Plain(node, view.to_primitive(slopes)));
        fused.names.push_back("prelu");
        break;
      }
      case PostOp::kBinary:
        PostOpOperand operand = ReadPostOpOperand(node, post_op, plan, op->algorithm);
        const Tensor bias = BiasOf(node, post_op, plan, operand.value, view.channel_axis);
        if (!bias.defined()) {
          operand.value = view.to_primitive(operand.value);
          AppendBinary(post_op, *op, operand, plan, &chain, &fused);
          break;
        }
        CORE_CHECK(fused.names.empty() && op->algorithm == dnnl::algorithm::binary_add)
            << post_op.Where() << ": a bias must be added first";
        if (operand.is_quantized) throw dnnl::error(dnnl_unimplemented, "a computed 8-bit bias");
        fused.bias = bias;
        fused.names.push_back("bias");
    }
  }
  const bool absorbs =
      view.absorbs_linear && (!fused.bias.defined() || plan->IsConstant(fused.bias));
  if (absorbs) fused.head = TakeHead(fused.has_residual(), &chain);
  fused.attr.set_post_ops(
      chain.plain.Finish(fused.result_size, &fused.operands, &fused.residual.arg));
  if (fused.has_residual()) {
    PlanBuilder::Args renumbered;
    int none = 0;
    fused.residual.attr = PlanBuilder::NewAttr();
    fused.residual.attr.set_post_ops(chain.in_place.Finish(fused.result_size, &renumbered, &none));
    auto it = renumbered.begin();
    for (const auto& [arg, operand] : fused.operands) {
      if (arg != fused.residual.arg) fused.residual.renumbered[arg] = (it++)->first;
    }
  }
  if (destination.scale.defined()) fused.Quantize(destination, DNNL_ARG_DST, /*mask=*/0);
  return fused;
}

}  // namespace tvm::runtime::contrib::dnnl_backend
