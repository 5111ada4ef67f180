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
 * \file src/runtime/contrib/dnnl/core/lowering.cc
 * \brief From a graph to a plan: each node in the way that oneDNN runs best.
 */
#include "lowering.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "error.h"
#include "exec/fork.h"
#include "exec/threads.h"
#include "fusion/quantization.h"
#include "infer.h"
#include "library.h"
#include "op_table.h"
#include "plan/builder.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief Lower a node with all that is fused to it. */
void LowerFused(const NodeReader& node, PlanBuilder* plan) {
  const Family& family = SpecOf(node).family;
  if (node.IsQuantized() && family.fuses != Fuses::kQuantizations) {
    throw dnnl::error(dnnl_unimplemented, "the op cannot be fused with quantization");
  }
  if (node.NumPostOps() > 0 && family.fuses == Fuses::kNothing) {
    throw dnnl::error(dnnl_unimplemented, "the op does not support post-ops");
  }
  family.lower(node, plan);
}

/*!
 * \brief Whether a layout is one that tensors of networks have: row-major, channels last or in
 * blocks, without gaps. Some primitives of oneDNN 3.2 mistake others, of views, for one of these.
 */
bool IsCommonLayout(const dnnl::memory::desc& md) {
  if (IsPlain(md)) return true;
  if (md.get_format_kind() != dnnl::memory::format_kind::blocked) return false;
  const Dims padded = md.get_padded_dims(), strides = md.get_strides();
  const Dims blocks = md.get_inner_blks(), blocked = md.get_inner_idxs();
  if (padded.size() < 3 || blocked.size() > 1) return false;
  // The order of the dimensions in memory: with blocks the channels are second, else last.
  const int channel = blocked.empty() ? 1 : static_cast<int>(blocked[0]);
  std::vector<int> order = {0};
  if (!blocked.empty() && channel != 0) order.push_back(channel);
  for (int i = 1; i < static_cast<int>(padded.size()); ++i) {
    if (i != channel) order.push_back(i);
  }
  if (blocked.empty()) order.push_back(channel);
  int64_t expected = blocked.empty() ? 1 : blocks[0];
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    // Those of dimensions of size one too: they make oneDNN take one order for another.
    if (strides[*it] != expected) return false;
    expected *= !blocked.empty() && *it == channel ? padded[*it] / blocks[0] : padded[*it];
  }
  return true;
}

/*! \brief Whether the lowering of an op copes with any layout of the op's own inputs. */
bool ReadsAnyLayout(const NodeReader& node) {
  const Reads reads = SpecOf(node).family.reads;
  return reads == Reads::kAnyLayout || (reads == Reads::kAnyWhenAlone && node.NumPostOps() == 0);
}

/*! \brief The layout to read a tensor in: its own, unless that might be read wrongly. */
dnnl::memory::desc AsCommonLayout(const dnnl::memory::desc& md) {
  if (IsCommonLayout(md)) return md;
  // A part of a tensor keeps the order of the dimensions: the next op wants that, too.
  const bool has_order = md.get_format_kind() == dnnl::memory::format_kind::blocked &&
                         md.get_inner_blks().empty() && md.get_ndims() >= 3;
  if (has_order && md.get_dims()[1] > 1 && md.get_strides()[1] == 1) return ChannelsLast(md);
  return PlainDesc(md.get_dims(), md.get_data_type());
}

/*! \brief Bring the inputs of a node into layouts that its lowering reads rightly. */
void SetCommonLayouts(const NodeReader& node, PlanBuilder* plan) {
  plan->SetInputLayouts(node, ReadsAnyLayout(node) ? node.NumRootInputs() : 0, AsCommonLayout);
}

/*! \brief The node with its inputs in float32, which they become here. */
NodeReader DequantizeInputs(const NodeReader& node, PlanBuilder* plan) {
  const NodeReader result = node.InFloat32();
  for (int i = 0; i < static_cast<int>(node.Inputs().size()); ++i) {
    if (!node.IsDequantized(i)) continue;
    plan->SetInput(result, i, Dequantized(node.Dequantization(i), plan));
  }
  return result;
}

/*! \brief Lower a post-op by itself; what it reads, the ops before it may have made a view. */
void LowerPostOp(const NodeReader& node, int index, PlanBuilder* plan) {
  const NodeReader op = node.PostOp(index);
  SetCommonLayouts(op, plan);
  LowerFused(op, plan);
}

/*!
 * \brief Lower a quantized node as one in float32 between other steps.
 * \param reason Why it is not one primitive.
 */
void LowerInFloat32(const NodeReader& node, PlanBuilder* plan, const std::string& reason) {
  const NodeReader ops = DequantizeInputs(node, plan);
  const NodeReader in_float = ops.WithoutQuantization();
  LowerFused(in_float, plan);
  plan->AddToVariant("in float32: " + reason);
  if (in_float.NumPostOps() < ops.NumPostOps()) LowerPostOp(ops, ops.NumPostOps() - 1, plan);
}

/*! \brief Lower the ops of a node one by one. */
void LowerOneByOne(const NodeReader& node, PlanBuilder* plan) {
  const NodeReader ops = DequantizeInputs(node, plan);
  LowerFused(ops.WithoutPostOps(), plan);
  for (int i = 0; i < ops.NumPostOps(); ++i) LowerPostOp(ops, i, plan);
}

/*! \brief Fuse what comes before the first function of ours, then lower the ops one by one. */
void LowerUpToFunction(const NodeReader& node, PlanBuilder* plan) {
  int count = 0;
  const auto has_own = [&node](int index) {
    const NodeReader op = node.PostOp(index);
    return static_cast<bool>(SpecOf(op).OwnFunction(op));
  };
  while (count < node.NumPostOps() && !has_own(count)) ++count;
  if (count == 0 || count == node.NumPostOps() || node.IsQuantized()) {
    throw dnnl::error(dnnl_unimplemented, "no post-op precedes the first of our functions");
  }
  LowerFused(node.WithFirstPostOps(count), plan);
  for (int i = count; i < node.NumPostOps(); ++i) LowerPostOp(node, i, plan);
}

dnnl::memory::desc AsPlain(const dnnl::memory::desc& md) {
  return IsPlain(md) ? md : PlainDesc(md.get_dims(), md.get_data_type());
}

/*!
 * \brief Whether one thread does a node in less time than to wake the others.
 *
 * Measured on two cores: matmuls below 0.4 million multiplications and additions, 3 to 6 µs, and
 * other ops on 128 kB of float32 take up to three times as long on both, which also have to fetch
 * from each other what they wrote before.
 */
bool IsSmall(const NodeReader& node, const OpSpec& op, const PlanBuilder& plan) {
  constexpr double kFlops = 4e5;
  constexpr int64_t kElements = 32768;
  if (op.family.flops != nullptr) return op.family.flops(node, plan) < kFlops;
  int64_t elements = NumElements(node.OutDims());
  for (int i = 0; i < node.NumRootInputs(); ++i) {
    elements = std::max(elements, NumElements(plan.Input(node, i).dims()));
  }
  return elements < kElements;
}

/*!
 * \brief Lower a node in a way; false where oneDNN has no good code for that.
 * \param reason What is said of it then, unless it is nullptr.
 */
template <typename Lower>
bool Try(const NodeReader& node, PlanBuilder* plan, const Lower& lower,
         std::string* reason = nullptr) {
  const PlanBuilder::Mark mark = plan->Here();
  std::string why = "oneDNN has only slow reference code";
  try {
    lower(node, plan);
    if (!plan->HasReferenceSince(mark)) return true;
  } catch (const dnnl::error& error) {
    // A mistake of the op itself shows again when it is lowered in the last way.
    why = error.what();
  }
  if (reason != nullptr) *reason = why;
  plan->BackTo(mark);
  return false;
}

/*! \brief Lower a node with its post-ops fused or, where that is not good, one by one. */
bool TryAll(const NodeReader& node, PlanBuilder* plan) {
  std::string reason;
  if (Try(node, plan, LowerFused, &reason)) return true;
  const auto in_float = [&reason](const NodeReader& node, PlanBuilder* plan) {
    LowerInFloat32(node, plan, reason);
  };
  return (node.IsQuantized() && Try(node, plan, in_float)) ||
         (node.NumPostOps() > 0 &&
          (Try(node, plan, LowerUpToFunction) || Try(node, plan, LowerOneByOne)));
}

/*!
 * \brief Operands of post-ops in float32 in the type of the post-op, as long as this exists.
 *
 * Fused, oneDNN reads them in float32. An op alone has one type, and not each primitive reads two.
 */
class NarrowOperands {
 public:
  NarrowOperands(const NodeReader& node, PlanBuilder* plan) : node_(node), plan_(plan) {
    for (const auto& [index, type] : Wide(node, *plan)) {
      wide_.emplace_back(index, plan->Input(node, index));
      plan->SetInput(node, index, Cast(node, plan, wide_.back().second, type));
    }
  }
  ~NarrowOperands() {
    // Two may be the same value of the graph: the first has what was there before.
    for (auto it = wide_.rbegin(); it != wide_.rend(); ++it) {
      plan_->SetInput(node_, it->first, it->second);
    }
  }
  NarrowOperands(const NarrowOperands&) = delete;
  NarrowOperands& operator=(const NarrowOperands&) = delete;

  /*! \brief The operands in float32 of post-ops of another type, and that type. */
  static std::vector<std::pair<int, dnnl::memory::data_type>> Wide(const NodeReader& node,
                                                                   const PlanBuilder& plan) {
    std::vector<std::pair<int, dnnl::memory::data_type>> wide;
    // A scale is float32.
    if (node.IsQuantized()) return wide;
    for (int i = 0; i < node.NumPostOps(); ++i) {
      const NodeReader post_op = node.PostOp(i);
      const auto type = post_op.OutType();
      const bool is_narrow =
          type == dnnl::memory::data_type::bf16 || type == dnnl::memory::data_type::f16;
      if (!is_narrow || post_op.Operand() < 0 || IsOfRoot(node, post_op.Operand())) continue;
      const bool is_float32 =
          plan.Input(node, post_op.Operand()).dtype() == dnnl::memory::data_type::f32;
      if (is_float32) wide.emplace_back(post_op.Operand(), type);
    }
    return wide;
  }

 private:
  /*! \brief Whether the root reads the same value, perhaps as float32. */
  static bool IsOfRoot(const NodeReader& node, int index) {
    const auto begin = node.Inputs().begin(), end = begin + node.NumRootInputs();
    const Entry& operand = node.Inputs()[index];
    return std::any_of(begin, end, [&operand](const Entry& each) {
      return each.node == operand.node && each.index == operand.index;
    });
  }

  const NodeReader& node_;
  PlanBuilder* plan_;
  std::vector<std::pair<int, Tensor>> wide_;
};

/*! \brief Say of what oneDNN has thrown where that was. */
[[noreturn]] void FailWith(const dnnl::error& error, const std::string& where) {
  CORE_FAIL() << where << ": oneDNN " << LibraryVersion() << " cannot run this: " << error.what()
              << " (status " << static_cast<int>(error.status)
              << "). Set ONEDNN_VERBOSE=all to see oneDNN's reason";
}

/*! \brief Append the steps of a node to the plan; every error names the node. */
void LowerNode(const NodeReader& node, PlanBuilder* plan) {
  const ThreadScope threads(IsSmall(node, SpecOf(node), *plan) ? 1 : CurrentNumThreads());
  try {
    SetCommonLayouts(node, plan);
    if (!NarrowOperands::Wide(node, *plan).empty() && Try(node, plan, LowerFused)) return;
    const NarrowOperands narrow(node, plan);
    if (TryAll(node, plan)) return;
    // A view may be in a layout that oneDNN has no good code for.
    const PlanBuilder::Mark mark = plan->Here();
    if (plan->SetInputLayouts(node, 0, AsPlain) && TryAll(node, plan)) return;
    plan->BackTo(mark);
    LowerOneByOne(node, plan);
  } catch (const dnnl::error& error) {
    FailWith(error, node.Where());
  }
}

}  // namespace

int NumThreadsOf(const Graph& graph) {
  return graph.nodes.empty() ? 0 : NodeReader(graph.nodes[0], graph.symbol).NumThreads();
}

std::shared_ptr<const Plan> MakePlan(const Graph& given,
                                     const std::vector<std::vector<int64_t>>& input_shapes,
                                     bool sizes_change) {
  CheckLibraryVersion();
  const NoForkScope no_fork;
  const Graph graph = Infer(given, input_shapes);
  PlanBuilder builder(graph, NumThreadsOf(graph), sizes_change);
  try {
    for (const Edge& input : graph.inputs) builder.AddInput(input);
    for (const Constant& constant : graph.constants) builder.AddConstant(constant);
    for (const Edge& output : graph.outputs) builder.AddOutput(output);
    for (const Node& node : graph.nodes) LowerNode(NodeReader(node, graph.symbol), &builder);
    return builder.Finish();
  } catch (const dnnl::error& error) {
    FailWith(error, graph.symbol);
  }
}

void CheckOps(const Graph& graph) {
  CheckLibraryVersion();
  for (const Edge& input : graph.inputs) {
    ToDNNLType(input.argument.type.dtype, graph.symbol + ": " + input.argument.name);
  }
  for (const Node& node : graph.nodes) {
    const NodeReader reader(node, graph.symbol);
    SpecOf(reader);
    for (const TensorType& type : node.outputs) ToDNNLType(type.dtype, reader.Where());
  }
}

std::shared_ptr<const Plan> MakePlan(const Graph& graph) {
  return MakePlan(graph, InputShapes(graph));
}

}  // namespace tvm::runtime::contrib::dnnl_backend
