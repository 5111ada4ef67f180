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
 * \file src/runtime/contrib/dnnl/core/post_ops.cc
 * \brief What a composite does to the result of its root op, as oneDNN's bias and post-ops.
 */
#include "post_ops.h"

#include <algorithm>

#include "op_table.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief The post-op's operand with the rank of the result, in Relay's order of dimensions. */
Tensor OperandInRelayOrder(const NodeReader& node, const NodeReader& post_op, PlanBuilder* plan) {
  CORE_CHECK(post_op.Operand() >= 0) << post_op.Where() << ": the second operand is missing";
  const Tensor operand = plan->Input(node, post_op.Operand());
  const size_t rank = node.OutDims().size();
  if (post_op.OpName() != "nn.bias_add") return AlignRank(node, plan, operand, rank);
  // nn.bias_add names the axis of its vector; numpy's rules would put it last.
  const int axis = post_op.Axis("axis", 1, static_cast<int>(rank));
  Dims dims(rank, 1);
  dims[axis] = operand.dims()[0];
  return plan->Plain(node, operand).Reshaped(dims);
}

/*! \brief Whether the operand has one value per channel and is one everywhere else. */
bool IsPerChannel(const Tensor& operand, const Dims& result, int channel_axis) {
  if (channel_axis < 0) return false;
  Dims expected(result.size(), 1);
  expected[channel_axis] = result[channel_axis];
  return operand.dims() == expected;
}

/*! \brief The post-ops, and the same with one addition done in the result's memory. */
struct Chain {
  dnnl::post_ops plain, in_place;

  void AppendEltwise(dnnl::algorithm algorithm, float alpha, float beta) {
    plain.append_eltwise(algorithm, alpha, beta);
    in_place.append_eltwise(algorithm, alpha, beta);
  }
  void AppendBinary(dnnl::algorithm algorithm, const dnnl::memory::desc& md, bool is_in_place) {
    plain.append_binary(algorithm, md);
    // The places of the others in the chain, and so their arguments, stay the same.
    if (is_in_place) {
      in_place.append_sum(1.f);
    } else {
      in_place.append_binary(algorithm, md);
    }
  }
};

/*! \brief Append `result op operand` or, where the operand comes first, `operand op result`. */
void AppendBinary(const NodeReader& post_op, const OpSpec& op, const Tensor& operand, Chain* chain,
                  FusedOps* fused) {
  dnnl::algorithm algorithm = op.algorithm;
  if (post_op.Get<bool>("operand_first", false) && algorithm == dnnl::algorithm::binary_sub) {
    // operand - result = -result + operand, to the last bit.
    chain->AppendEltwise(dnnl::algorithm::eltwise_linear, -1.f, 0.f);
    algorithm = dnnl::algorithm::binary_add;
  } else {
    CORE_CHECK(!post_op.Get<bool>("operand_first", false) || IsCommutative(algorithm))
        << post_op.Where() << ": cannot be fused with the result as its second operand";
  }
  // An operand of the result's shape takes the result's layout, which oneDNN has yet to choose.
  const bool is_small = NumElements(operand.dims()) < NumElements(fused->result_dims);
  const int arg = DNNL_ARG_ATTR_MULTIPLE_POST_OP(chain->plain.len()) | DNNL_ARG_SRC_1;
  fused->operands.emplace_back(arg, operand);
  const bool is_residual =
      !is_small && algorithm == dnnl::algorithm::binary_add && fused->residual.arg == 0;
  if (is_residual) {
    fused->residual.arg = arg;
    fused->residual.name = fused->names.size();
  }
  chain->AppendBinary(algorithm, is_small ? operand.md : AnyDesc(operand.md), is_residual);
  fused->names.push_back(AlgorithmName(algorithm));
}

}  // namespace

bool IsCommutative(dnnl::algorithm algorithm) {
  return algorithm == dnnl::algorithm::binary_add || algorithm == dnnl::algorithm::binary_mul ||
         algorithm == dnnl::algorithm::binary_max || algorithm == dnnl::algorithm::binary_min;
}

Tensor AlignRank(const NodeReader& node, PlanBuilder* plan, const Tensor& operand, size_t rank) {
  Dims dims = operand.dims();
  // Between a post-op and the result of the last one a reshape may have dropped dimensions of one.
  while (dims.size() > rank && dims.front() == 1) dims.erase(dims.begin());
  CORE_CHECK(dims.size() <= rank) << node.Where() << ": an operand of shape " << ToText(dims)
                                  << " does not broadcast to rank " << rank;
  dims.insert(dims.begin(), rank - dims.size(), 1);
  return plan->Reshaped(node, operand, dims);
}

PlanBuilder::Args FusedOps::AddTo(PlanBuilder::Args args, const NodeReader& node, PlanBuilder* plan,
                                  const dnnl::primitive_desc_base& desc) const {
  if (bias.defined()) args.emplace_back(DNNL_ARG_BIAS, bias);
  for (const auto& [arg, operand] : operands) {
    const dnnl::memory::desc want = desc.query_md(dnnl::query::exec_arg_md, arg);
    args.emplace_back(arg, plan->InLayout(node, operand, want));
  }
  return args;
}

FusedOps FusePostOps(const NodeReader& node, PlanBuilder* plan, const ResultView& view) {
  FusedOps fused;
  fused.attr = PlanBuilder::NewAttr();
  fused.result_dims = node.OutDims();
  Chain chain;
  if (view.is_negated) chain.AppendEltwise(dnnl::algorithm::eltwise_linear, -1.f, 0.f);
  for (int i = 0; i < node.NumPostOps(); ++i) {
    const NodeReader post_op = node.PostOp(i);
    const OpSpec* op = FindOp(post_op.OpName());
    // The primitive computes the elements in the same order, whatever their dimensions are.
    if (op != nullptr && op->lower == LowerReshape) continue;
    CORE_CHECK(op != nullptr && (op->IsEltwise() || op->IsBinary()))
        << post_op.Where() << ": cannot be fused";
    if (op->IsEltwise()) {
      const auto [alpha, beta] = op->AlphaBeta(post_op);
      chain.AppendEltwise(op->algorithm, alpha, beta);
      fused.names.push_back(AlgorithmName(op->algorithm));
      if (op->is_reciprocal) {
        chain.AppendEltwise(dnnl::algorithm::eltwise_pow, 1.f, -1.f);
        fused.names.push_back(AlgorithmName(dnnl::algorithm::eltwise_pow));
      }
      continue;
    }
    const Tensor operand = OperandInRelayOrder(node, post_op, plan);
    const bool is_first = chain.plain.len() == 0 && !fused.bias.defined();
    if (is_first && op->algorithm == dnnl::algorithm::binary_add &&
        IsPerChannel(operand, fused.result_dims, view.channel_axis)) {
      const Dims vector = {fused.result_dims[view.channel_axis]};
      fused.bias = plan->Plain(node, operand).Reshaped(vector);
      fused.names.push_back("bias");
      continue;
    }
    AppendBinary(post_op, *op, view.to_primitive(operand), &chain, &fused);
  }
  fused.attr.set_post_ops(chain.plain);
  if (fused.residual.arg != 0) {
    fused.residual.attr = PlanBuilder::NewAttr();
    fused.residual.attr.set_post_ops(chain.in_place);
  }
  return fused;
}

}  // namespace tvm::runtime::contrib::dnnl_backend
