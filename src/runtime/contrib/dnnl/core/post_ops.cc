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

/*! \brief The post-ops, and the same with one addition done in the result's memory. */
struct PostOpChain {
  dnnl::post_ops plain, in_place;

  void AppendEltwise(dnnl::algorithm algorithm, float alpha, float beta) {
    plain.append_eltwise(algorithm, alpha, beta);
    in_place.append_eltwise(algorithm, alpha, beta);
  }
  void AppendBinary(dnnl::algorithm algorithm, const dnnl::memory::desc& md, bool is_in_place) {
    plain.append_binary(algorithm, md);
    // The indices of the others, and so their arguments, stay the same.
    if (is_in_place) {
      in_place.append_sum(1.f);
    } else {
      in_place.append_binary(algorithm, md);
    }
  }
};

/*!
 * \brief The vector that the root op's primitive adds to each channel, if the graph says that the
 * post-op is this; undefined for any other operand, and where the primitive adds none.
 */
Tensor BiasOf(const NodeReader& node, const NodeReader& post_op, PlanBuilder* plan,
              const Tensor& operand, int channel_axis) {
  if (channel_axis < 0 || !post_op.Get<bool>("is_bias", false)) return {};
  const int64_t channels = node.OutDims()[channel_axis];
  CORE_CHECK(NumElements(operand.dims()) == channels)
      << post_op.Where() << ": a bias of shape " << ToText(operand.dims()) << " does not fit "
      << channels << " channels";
  return plan->Plain(node, operand).Reshaped({channels});
}

void AppendEltwise(const NodeReader& post_op, const OpSpec& op, PostOpChain* chain,
                   FusedOps* fused) {
  const auto [alpha, beta] = op.AlphaBeta(post_op);
  chain->AppendEltwise(op.algorithm, alpha, beta);
  fused->names.push_back(AlgorithmName(op.algorithm));
  if (!op.is_reciprocal) return;
  chain->AppendEltwise(dnnl::algorithm::eltwise_pow, 1.f, -1.f);
  fused->names.push_back(AlgorithmName(dnnl::algorithm::eltwise_pow));
}

/*! \brief Append `result op operand` or, where the operand comes first, `operand op result`. */
void AppendBinary(const NodeReader& post_op, const OpSpec& op, const Tensor& operand,
                  PostOpChain* chain, FusedOps* fused) {
  dnnl::algorithm algorithm = op.algorithm;
  if (post_op.Get<bool>("operand_first", false) && algorithm == dnnl::algorithm::binary_sub) {
    // operand - result = -result + operand, to the last bit.
    chain->AppendEltwise(dnnl::algorithm::eltwise_linear, -1.f, 0.f);
    algorithm = dnnl::algorithm::binary_add;
  } else {
    CORE_CHECK(!post_op.Get<bool>("operand_first", false) || IsCommutative(algorithm))
        << post_op.Where() << ": cannot be fused with the result as its second operand";
  }
  // An operand of the result's shape has the result's layout, which oneDNN has yet to choose.
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
  PostOpChain chain;
  if (view.is_negated) chain.AppendEltwise(dnnl::algorithm::eltwise_linear, -1.f, 0.f);
  for (int i = 0; i < node.NumPostOps(); ++i) {
    const NodeReader post_op = node.PostOp(i);
    if (post_op.IsQNN()) throw dnnl::error(dnnl_unimplemented, "quantizations are not fused");
    const OpSpec* op = FindOp(post_op.OpName());
    switch (op == nullptr ? PostOp::kNone : op->family.as_post_op) {
      case PostOp::kNone:
        CORE_FAIL() << post_op.Where() << ": cannot be fused";
      case PostOp::kView:
        // The primitive computes the elements in the same order, whatever their dimensions are.
        break;
      case PostOp::kEltwise:
        AppendEltwise(post_op, *op, &chain, &fused);
        break;
      case PostOp::kBinary:
        const Tensor operand = OperandInRelayOrder(node, post_op, plan);
        const Tensor bias = BiasOf(node, post_op, plan, operand, view.channel_axis);
        if (!bias.defined()) {
          AppendBinary(post_op, *op, view.to_primitive(operand), &chain, &fused);
          break;
        }
        CORE_CHECK(fused.names.empty() && op->algorithm == dnnl::algorithm::binary_add)
            << post_op.Where() << ": a bias must be added first";
        fused.bias = bias;
        fused.names.push_back("bias");
    }
  }
  fused.attr.set_post_ops(chain.plain);
  if (fused.residual.arg != 0) {
    fused.residual.attr = PlanBuilder::NewAttr();
    fused.residual.attr.set_post_ops(chain.in_place);
  }
  return fused;
}

}  // namespace tvm::runtime::contrib::dnnl_backend
