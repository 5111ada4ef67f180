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
 * \file src/runtime/contrib/dnnl/core/op_table.cc
 * \brief One row per Relay op that the runtime can run.
 */
#include "op_table.h"

#include <tvm/runtime/logging.h>

#include <algorithm>
#include <initializer_list>
#include <limits>

#include "dnnl_debug.h"
#include "exec/threads.h"
#include "ops/window.h"

namespace tvm {
namespace runtime {
namespace contrib {
namespace dnnl_backend {

namespace {

using dnnl::algorithm;

using AlphaBeta = std::pair<float, float>;

/*! \brief Attributes that are named as oneDNN names them: those of most ops. */
AlphaBeta SameNames(const NodeReader& node) {
  return {node.Get<double>("alpha", 0), node.Get<double>("beta", 0)};
}

AlphaBeta ClipBounds(const NodeReader& node) {
  return {node.Get<double>("a_min"), node.Get<double>("a_max")};
}

/*! \brief -1 * x + -0, which is -x also for zeros. */
AlphaBeta Negation(const NodeReader&) { return {-1.f, -0.f}; }

/*! \brief log(1 + exp(1 * x)) / 1. */
AlphaBeta UnitSlope(const NodeReader&) { return {1.f, 0.f}; }

/*! \brief For ops that take as many inputs as there are. */
constexpr int kAnyNumber = std::numeric_limits<int>::max();

// Keep in step with the rows in python/tvm/relay/op/contrib/dnnl.py; a test compares the two.
const OpSpec kOps[] = {
    // name, inputs (min, max), lowering, algorithm, its parameters, whether 1/x comes after it
    {"nn.conv1d", 2, 2, LowerConv, algorithm::undef},
    {"nn.conv2d", 2, 2, LowerConv, algorithm::undef},
    {"nn.conv3d", 2, 2, LowerConv, algorithm::undef},
    {"nn.conv1d_transpose", 2, 2, LowerConvTranspose, algorithm::undef},
    {"nn.conv2d_transpose", 2, 2, LowerConvTranspose, algorithm::undef},
    {"nn.conv3d_transpose", 2, 2, LowerConvTranspose, algorithm::undef},
    {"nn.dense", 2, 2, LowerDense, algorithm::undef},
    {"nn.matmul", 2, 2, LowerMatMul, algorithm::undef},
    {"nn.batch_matmul", 2, 2, LowerMatMul, algorithm::undef},
    {"nn.max_pool1d", 1, 1, LowerPool, algorithm::pooling_max},
    {"nn.max_pool2d", 1, 1, LowerPool, algorithm::pooling_max},
    {"nn.max_pool3d", 1, 1, LowerPool, algorithm::pooling_max},
    {"nn.avg_pool1d", 1, 1, LowerPool, algorithm::pooling_avg_exclude_padding},
    {"nn.avg_pool2d", 1, 1, LowerPool, algorithm::pooling_avg_exclude_padding},
    {"nn.avg_pool3d", 1, 1, LowerPool, algorithm::pooling_avg_exclude_padding},
    {"nn.global_max_pool2d", 1, 1, LowerPool, algorithm::pooling_max},
    {"nn.global_avg_pool2d", 1, 1, LowerPool, algorithm::pooling_avg_exclude_padding},
    {"nn.adaptive_max_pool1d", 1, 1, LowerPool, algorithm::pooling_max},
    {"nn.adaptive_max_pool2d", 1, 1, LowerPool, algorithm::pooling_max},
    {"nn.adaptive_max_pool3d", 1, 1, LowerPool, algorithm::pooling_max},
    {"nn.adaptive_avg_pool1d", 1, 1, LowerPool, algorithm::pooling_avg_exclude_padding},
    {"nn.adaptive_avg_pool2d", 1, 1, LowerPool, algorithm::pooling_avg_exclude_padding},
    {"nn.adaptive_avg_pool3d", 1, 1, LowerPool, algorithm::pooling_avg_exclude_padding},
    {"nn.batch_norm", 5, 5, LowerBatchNorm, algorithm::undef},
    {"nn.group_norm", 3, 3, LowerGroupNorm, algorithm::undef},
    {"nn.instance_norm", 3, 3, LowerInstanceNorm, algorithm::undef},
    {"nn.l2_normalize", 1, 1, LowerL2Normalize, algorithm::undef},
    {"nn.layer_norm", 3, 3, LowerLayerNorm, algorithm::undef},
    {"nn.lrn", 1, 1, LowerLRN, algorithm::undef},
    {"dnnl.rms_norm", 1, 2, LowerRMSNorm, algorithm::undef},
    {"nn.fast_softmax", 1, 1, LowerSoftmax, algorithm::softmax_accurate},
    {"nn.log_softmax", 1, 1, LowerSoftmax, algorithm::softmax_log},
    {"nn.softmax", 1, 1, LowerSoftmax, algorithm::softmax_accurate},

    {"max", 1, 1, LowerReduce, algorithm::reduction_max},
    {"mean", 1, 1, LowerReduce, algorithm::reduction_mean},
    {"min", 1, 1, LowerReduce, algorithm::reduction_min},
    {"prod", 1, 1, LowerReduce, algorithm::reduction_mul},
    {"sum", 1, 1, LowerReduce, algorithm::reduction_sum},

    {"image.resize1d", 1, 1, LowerResize, algorithm::undef},
    {"image.resize2d", 1, 1, LowerResize, algorithm::undef},
    {"image.resize3d", 1, 1, LowerResize, algorithm::undef},
    {"nn.upsampling", 1, 1, LowerResize, algorithm::undef},
    {"nn.upsampling3d", 1, 1, LowerResize, algorithm::undef},

    {"cast", 1, 1, LowerCast, algorithm::undef},

    {"concatenate", 1, kAnyNumber, LowerConcat, algorithm::undef},
    {"split", 1, 1, LowerSplit, algorithm::undef},
    {"stack", 1, kAnyNumber, LowerStack, algorithm::undef},
    {"strided_slice", 1, 1, LowerStridedSlice, algorithm::undef},
    {"contrib_reverse_reshape", 1, 1, LowerReshape, algorithm::undef},
    {"expand_dims", 1, 1, LowerReshape, algorithm::undef},
    {"layout_transform", 1, 1, LowerLayoutTransform, algorithm::undef},
    {"nn.batch_flatten", 1, 1, LowerReshape, algorithm::undef},
    {"reshape", 1, 1, LowerReshape, algorithm::undef},
    {"squeeze", 1, 1, LowerReshape, algorithm::undef},
    {"transpose", 1, 1, LowerTranspose, algorithm::undef},

    {"nn.relu", 1, 1, LowerEltwise, algorithm::eltwise_relu},
    {"nn.leaky_relu", 1, 1, LowerEltwise, algorithm::eltwise_relu, SameNames},
    {"abs", 1, 1, LowerEltwise, algorithm::eltwise_abs},
    {"clip", 1, 1, LowerEltwise, algorithm::eltwise_clip, ClipBounds},
    {"exp", 1, 1, LowerEltwise, algorithm::eltwise_exp},
    {"negative", 1, 1, LowerEltwise, algorithm::eltwise_linear, Negation},
    // oneDNN's power of -1/2 calls powf for each element, a hundred times slower than this.
    {"rsqrt", 1, 1, LowerEltwise, algorithm::eltwise_sqrt, nullptr, true},
    {"sigmoid", 1, 1, LowerEltwise, algorithm::eltwise_logistic},
    {"sqrt", 1, 1, LowerEltwise, algorithm::eltwise_sqrt},
    {"tanh", 1, 1, LowerEltwise, algorithm::eltwise_tanh},
    {"nn.prelu", 2, 2, LowerPReLU, algorithm::undef},

    // Virtual ops: functions that Relay writes as several ops.
    {"dnnl.elu", 1, 1, LowerEltwise, algorithm::eltwise_elu, SameNames},
    {"dnnl.gelu_erf", 1, 1, LowerEltwise, algorithm::eltwise_gelu_erf},
    {"dnnl.gelu_tanh", 1, 1, LowerEltwise, algorithm::eltwise_gelu_tanh},
    {"dnnl.hard_sigmoid", 1, 1, LowerEltwise, algorithm::eltwise_hardsigmoid, SameNames},
    {"dnnl.hard_swish", 1, 1, LowerEltwise, algorithm::eltwise_hardswish, SameNames},
    {"dnnl.linear", 1, 1, LowerEltwise, algorithm::eltwise_linear, SameNames},
    {"dnnl.mish", 1, 1, LowerEltwise, algorithm::eltwise_mish},
    {"dnnl.pow", 1, 1, LowerEltwise, algorithm::eltwise_pow, SameNames},
    {"dnnl.rsqrt", 1, 1, LowerEltwise, algorithm::eltwise_sqrt, nullptr, true},
    {"dnnl.softplus", 1, 1, LowerEltwise, algorithm::eltwise_soft_relu, UnitSlope},
    {"dnnl.swish", 1, 1, LowerEltwise, algorithm::eltwise_swish, SameNames},

    {"nn.bias_add", 2, 2, LowerBinary, algorithm::binary_add},
    {"add", 2, 2, LowerBinary, algorithm::binary_add},
    {"subtract", 2, 2, LowerBinary, algorithm::binary_sub},
    {"multiply", 2, 2, LowerBinary, algorithm::binary_mul},
    {"divide", 2, 2, LowerBinary, algorithm::binary_div},
    {"maximum", 2, 2, LowerBinary, algorithm::binary_max},
    {"minimum", 2, 2, LowerBinary, algorithm::binary_min},
    {"equal", 2, 2, LowerBinary, algorithm::binary_eq},
    {"not_equal", 2, 2, LowerBinary, algorithm::binary_ne},
    {"less", 2, 2, LowerBinary, algorithm::binary_lt},
    {"less_equal", 2, 2, LowerBinary, algorithm::binary_le},
    {"greater", 2, 2, LowerBinary, algorithm::binary_gt},
    {"greater_equal", 2, 2, LowerBinary, algorithm::binary_ge},
};

}  // namespace

const OpSpec* FindOp(const std::string& name) {
  for (const OpSpec& op : kOps) {
    if (name == op.name) return &op;
  }
  return nullptr;
}

std::string AlgorithmName(dnnl::algorithm algorithm) {
  return dnnl_alg_kind2str(dnnl::convert_to_c(algorithm));
}

std::vector<std::string> OpNames() {
  std::vector<std::string> names;
  for (const OpSpec& op : kOps) names.push_back(op.name);
  return names;
}

namespace {

/*! \brief Lower a node as it is. */
void LowerWhole(const NodeReader& node, PlanBuilder* plan) {
  const OpSpec* op = FindOp(node.OpName());
  ICHECK(op != nullptr) << node.Where() << ": the DNNL runtime has no op " << node.OpName()
                        << ". Was the library made by a newer version?";
  const int inputs = node.NumRootInputs();
  ICHECK(inputs >= op->min_inputs && inputs <= op->max_inputs)
      << node.Where() << ": has " << inputs << " inputs, but " << op->min_inputs << " to "
      << op->max_inputs << " are expected";
  op->lower(node, plan);
}

/*! \brief Lower the ops of a node one by one. */
void LowerParts(const NodeReader& node, PlanBuilder* plan) {
  LowerWhole(node.WithoutPostOps(), plan);
  for (int i = 0; i < node.NumPostOps(); ++i) LowerWhole(node.PostOp(i), plan);
}

/*!
 * \brief Whether a layout is one that tensors of networks have: row-major, channels last or in
 * blocks, without gaps. Some primitives of oneDNN 3.2 take others, of views, for one of these.
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
  const OpSpec* op = FindOp(node.OpName());
  if (op == nullptr || (op->IsEltwise() && node.NumPostOps() == 0)) return true;
  for (const auto lower : {LowerCast, LowerConcat, LowerConv, LowerConvTranspose, LowerDense,
                           LowerLayoutTransform, LowerMatMul, LowerReduce, LowerReshape, LowerSplit,
                           LowerStack, LowerStridedSlice, LowerTranspose}) {
    if (op->lower == lower) return true;
  }
  return false;
}

/*! \brief The layout to read a tensor in: its own, unless that might be read wrongly. */
dnnl::memory::desc AsCommonLayout(const dnnl::memory::desc& md) {
  if (IsCommonLayout(md)) return md;
  // Of a part of a tensor, the order of the dimensions is kept: what comes next wants that, too.
  const bool has_order = md.get_format_kind() == dnnl::memory::format_kind::blocked &&
                         md.get_inner_blks().empty() && md.get_ndims() >= 3;
  if (has_order && md.get_dims()[1] > 1 && md.get_strides()[1] == 1) return ChannelsLast(md);
  return PlainDesc(md.get_dims(), md.get_data_type());
}

dnnl::memory::desc AsPlain(const dnnl::memory::desc& md) {
  return IsPlain(md) ? md : PlainDesc(md.get_dims(), md.get_data_type());
}

using Lowering = void (*)(const NodeReader& node, PlanBuilder* plan);

/*!
 * \brief Whether one thread does a node in less time than it takes to wake the others.
 *
 * Measured on two cores: products below 0.4 million multiplications and additions, 3 to 6 µs, and
 * other ops on 128 kB of float32 take up to three times as long on both, which also have to fetch
 * from each other what they wrote before.
 */
bool IsSmall(const NodeReader& node, const PlanBuilder& plan) {
  constexpr double kFlops = 4e5, kElements = 32768;
  const OpSpec* op = FindOp(node.OpName());
  const auto size = [](const Dims& dims) { return static_cast<double>(NumElements(dims)); };
  const double results = size(node.OutDims());
  const auto is_lowered_by = [op](std::initializer_list<Lowering> lowerings) {
    return op != nullptr &&
           std::find(lowerings.begin(), lowerings.end(), op->lower) != lowerings.end();
  };
  if (is_lowered_by({LowerConv, LowerConvTranspose})) {
    // Of a transposed one this counts what is multiplied for each result, on the average.
    const size_t channel = node.Get<std::string>("data_layout", "NCHW").find('C');
    if (channel >= node.OutDims().size()) return false;
    return 2 * results * size(plan.Input(node, 1).dims()) / node.OutDims()[channel] < kFlops;
  }
  double elements = results;
  for (int i = 0; i < node.NumRootInputs(); ++i) {
    elements = std::max(elements, size(plan.Input(node, i).dims()));
  }
  if (is_lowered_by({LowerDense, LowerMatMul})) {
    const double rows = results / node.OutDims().back();
    return 2 * results * size(plan.Input(node, 0).dims()) / rows < kFlops;
  }
  return elements < kElements;
}

/*! \brief Lower a node in a way; false where oneDNN has no good code for that. */
bool LowerWell(const NodeReader& node, PlanBuilder* plan, Lowering lower) {
  const PlanBuilder::Mark mark = plan->Here();
  try {
    lower(node, plan);
    if (!plan->HasReferenceSince(mark)) return true;
  } catch (const dnnl::error&) {
    // What is wrong with an op itself shows again when it is lowered in the last way.
  }
  plan->BackTo(mark);
  return false;
}

/*! \brief Lower a node with its post-ops fused or, where that is not good, one by one. */
bool LowerWell(const NodeReader& node, PlanBuilder* plan) {
  return LowerWell(node, plan, LowerWhole) ||
         (node.NumPostOps() > 0 && LowerWell(node, plan, LowerParts));
}

}  // namespace

void LowerNode(const NodeReader& node, PlanBuilder* plan) {
  const ThreadScope threads(IsSmall(node, *plan) ? 1 : CurrentNumThreads());
  try {
    plan->SetInputLayouts(node, ReadsAnyLayout(node) ? node.NumRootInputs() : 0, AsCommonLayout);
    if (LowerWell(node, plan)) return;
    // A view may be in a layout that oneDNN has no good code for.
    const PlanBuilder::Mark mark = plan->Here();
    if (plan->SetInputLayouts(node, 0, AsPlain) && LowerWell(node, plan)) return;
    plan->BackTo(mark);
    LowerParts(node, plan);
  } catch (const dnnl::error& e) {
    LOG(FATAL) << node.Where() << ": oneDNN " << LibraryVersion()
               << " cannot run this: " << e.what() << " (status " << static_cast<int>(e.status)
               << "). Set ONEDNN_VERBOSE=all to see oneDNN's reason";
  }
}

}  // namespace dnnl_backend
}  // namespace contrib
}  // namespace runtime
}  // namespace tvm
