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

#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace tvm::runtime::contrib::dnnl_backend {

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

/*! \brief For ops that accept any number of inputs. */
constexpr int kAnyNumber = std::numeric_limits<int>::max();

constexpr Reads kAny = Reads::kAnyLayout, kCommon = Reads::kCommonLayouts;

constexpr Family kConv = {InferConv,     LowerConv, kAny, Fuses::kQuantizations,
                          PostOp::kNone, ConvFlops};
constexpr Family kConvTranspose = {InferConvTranspose,    LowerConvTranspose, kAny,
                                   Fuses::kQuantizations, PostOp::kNone,      ConvTransposeFlops};
constexpr Family kMatMul = {InferMatMul,           LowerMatMul,   kAny,
                            Fuses::kQuantizations, PostOp::kNone, MatMulFlops};
constexpr Family kRecurrent = {InferRecurrent,  LowerRecurrent, kAny,
                               Fuses::kNothing, PostOp::kNone,  RecurrentFlops};
/*! \brief Reads the transposed views of heads, too. */
constexpr Family kAttention = {InferAttention,  LowerAttention, kAny,
                               Fuses::kNothing, PostOp::kNone,  AttentionFlops};
constexpr Family kDynamicFakeQuantize = {InferDynamicFakeQuantize, LowerDynamicFakeQuantize, kAny};
constexpr Family kDynamicQuantizeScale = {InferDynamicQuantizeScale, LowerDynamicQuantizeScale,
                                          kAny};
constexpr Family kDynamicQuantizedDense = {InferDynamicQuantizedDense,
                                           LowerDynamicQuantizedDense,
                                           kAny,
                                           Fuses::kRealOps,
                                           PostOp::kNone,
                                           MatMulFlops};
constexpr Family kBlockQuantizedDense = {
    InferBlockQuantizedDense, LowerBlockQuantizedDense, kAny, Fuses::kNothing, PostOp::kNone,
    BlockQuantizedFlops};
constexpr Family kExpertDense = {InferExpertDense, LowerExpertDense, kAny,
                                 Fuses::kNothing,  PostOp::kNone,    ExpertFlops};
constexpr Family kPool = {InferPool, LowerPool, kCommon, Fuses::kQuantizations};
constexpr Family kGlobalPool = {InferGlobalPool, LowerPool, kCommon, Fuses::kQuantizations};
constexpr Family kGridSample = {InferGridSample, LowerGridSample};
constexpr Family kResize = {InferResize, LowerResize, kCommon, Fuses::kRealOps};
constexpr Family kSoftmax = {InferSoftmax, LowerSoftmax};
constexpr Family kReduce = {InferReduce, LowerReduce, kAny, Fuses::kRealOps};
constexpr Family kEltwise = {InferEltwise, LowerEltwise, Reads::kAnyWhenAlone,
                             Fuses::kQuantizations, PostOp::kEltwise};
/*! \brief Unary functions that oneDNN lacks. */
constexpr Family kFunction = {InferEltwise, LowerEltwise, kAny, Fuses::kQuantizations};
constexpr Family kBinary = {InferBinary, LowerBinary, kCommon, Fuses::kQuantizations,
                            PostOp::kBinary};
/*! \brief Extrema that are NaN where an operand is. */
constexpr Family kExtremum = {InferExtremum, LowerExtremum, kAny};
constexpr Family kComparison = {InferComparison, LowerComparison, kAny};
constexpr Family kPReLU = {InferPReLU, LowerPReLU, kCommon, Fuses::kNothing, PostOp::kPReLU};
constexpr Family kDequantize = {InferDequantize, LowerDequantize, kCommon, Fuses::kQuantizations};
constexpr Family kBatchNorm = {InferBatchNorm, LowerBatchNorm, kCommon, Fuses::kRealOps};

/*! \brief Ops that give the same elements in the same order other dimensions. */
constexpr Family Reshape(Types (*infer)(const NodeReader&, const Types&)) {
  return {infer, LowerReshape, kAny, Fuses::kNothing, PostOp::kView};
}

// Keep in step with the rows of python/tvm/contrib/onednn/ops/table.py; a test
// compares the two. Columns: name, inputs (min, max), family, algorithm, its parameters.
const OpSpec kOps[] = {
    {"nn.conv1d", 2, 2, kConv},
    {"nn.conv2d", 2, 2, kConv},
    {"nn.conv3d", 2, 2, kConv},
    {"nn.conv1d_transpose", 2, 2, kConvTranspose},
    {"nn.conv2d_transpose", 2, 2, kConvTranspose},
    {"nn.conv3d_transpose", 2, 2, kConvTranspose},
    {"nn.dense", 2, 2, kMatMul},
    {"nn.matmul", 2, 2, kMatMul},
    {"nn.batch_matmul", 2, 2, kMatMul},
    {"dnnl.expert_dense", 3, 3, kExpertDense},
    {"dnnl.attention", 3, 5, kAttention},
    {"dnnl.dynamic_fake_quantize", 1, 1, kDynamicFakeQuantize},
    {"dnnl.dynamic_quantize_scale", 1, 1, kDynamicQuantizeScale},
    {"dnnl.dynamic_quantized_dense", 4, 4, kDynamicQuantizedDense},
    {"dnnl.block_quantized_dense", 3, 4, kBlockQuantizedDense},
    {"nn.max_pool1d", 1, 1, kPool, algorithm::pooling_max},
    {"nn.max_pool2d", 1, 1, kPool, algorithm::pooling_max},
    {"nn.max_pool3d", 1, 1, kPool, algorithm::pooling_max},
    {"nn.avg_pool1d", 1, 1, kPool, algorithm::pooling_avg_exclude_padding},
    {"nn.avg_pool2d", 1, 1, kPool, algorithm::pooling_avg_exclude_padding},
    {"nn.avg_pool3d", 1, 1, kPool, algorithm::pooling_avg_exclude_padding},
    {"nn.global_max_pool2d", 1, 1, kGlobalPool, algorithm::pooling_max},
    {"nn.global_avg_pool2d", 1, 1, kGlobalPool, algorithm::pooling_avg_exclude_padding},
    {"nn.adaptive_max_pool1d", 1, 1, kPool, algorithm::pooling_max},
    {"nn.adaptive_max_pool2d", 1, 1, kPool, algorithm::pooling_max},
    {"nn.adaptive_max_pool3d", 1, 1, kPool, algorithm::pooling_max},
    {"nn.adaptive_avg_pool1d", 1, 1, kPool, algorithm::pooling_avg_exclude_padding},
    {"nn.adaptive_avg_pool2d", 1, 1, kPool, algorithm::pooling_avg_exclude_padding},
    {"nn.adaptive_avg_pool3d", 1, 1, kPool, algorithm::pooling_avg_exclude_padding},
    {"nn.batch_norm", 5, 5, kBatchNorm},
    {"nn.group_norm", 3, 3, {InferGroupNorm, LowerGroupNorm}},
    {"nn.instance_norm", 3, 3, {InferInstanceNorm, LowerInstanceNorm}},
    {"nn.l2_normalize", 1, 1, {InferL2Normalize, LowerL2Normalize}},
    {"nn.layer_norm", 3, 3, {InferLayerNorm, LowerLayerNorm}},
    {"nn.lrn", 1, 1, {InferLRN, LowerLRN}},
    {"dnnl.gru", 4, 6, kRecurrent},
    {"dnnl.lstm", 4, 11, kRecurrent},
    {"dnnl.rnn", 4, 6, kRecurrent},
    {"dnnl.rms_norm", 1, 2, {InferRMSNorm, LowerRMSNorm}},
    {"dnnl.masked_softmax", 1, 1, kSoftmax, algorithm::softmax_accurate},
    {"dnnl.nan_safe_softmax", 1, 1, kSoftmax, algorithm::softmax_accurate},
    {"nn.fast_softmax", 1, 1, kSoftmax, algorithm::softmax_accurate},
    {"nn.log_softmax", 1, 1, kSoftmax, algorithm::softmax_log},
    {"nn.softmax", 1, 1, kSoftmax, algorithm::softmax_accurate},

    {"max", 1, 1, kReduce, algorithm::reduction_max},
    {"mean", 1, 1, kReduce, algorithm::reduction_mean},
    {"min", 1, 1, kReduce, algorithm::reduction_min},
    {"prod", 1, 1, kReduce, algorithm::reduction_mul},
    {"sum", 1, 1, kReduce, algorithm::reduction_sum},

    {"image.resize1d", 1, 1, kResize},
    {"image.resize2d", 1, 1, kResize},
    {"image.resize3d", 1, 1, kResize},
    {"image.grid_sample", 2, 2, kGridSample},
    {"nn.upsampling", 1, 1, kResize},
    {"nn.upsampling3d", 1, 1, kResize},

    {"cast", 1, 1, {InferCast, LowerCast, kAny}},

    {"qnn.dequantize", 3, 3, kDequantize},
    {"qnn.quantize", 3, 3, {InferQuantize, LowerQuantize}},

    {"concatenate", 1, kAnyNumber, {InferConcat, LowerConcat, kAny}},
    {"broadcast_to", 1, 1, {InferBroadcastTo, LowerBroadcastTo, kAny}},
    {"take", 2, 2, {InferTake, LowerTake, kAny}},
    {"nn.pad", 1, 2, {InferPad, LowerPad, kAny}},
    {"split", 1, 1, {InferSplit, LowerSplit, kAny}},
    {"stack", 1, kAnyNumber, {InferStack, LowerStack, kAny}},
    {"strided_slice", 1, 1, {InferStridedSlice, LowerStridedSlice, kAny}},
    {"contrib_reverse_reshape", 1, 1, Reshape(InferReverseReshape)},
    {"expand_dims", 1, 1, Reshape(InferExpandDims)},
    {"layout_transform", 1, 1, {InferLayoutTransform, LowerLayoutTransform, kAny}},
    {"nn.batch_flatten", 1, 1, Reshape(InferBatchFlatten)},
    {"reshape", 1, 1, Reshape(InferReshape)},
    {"dnnl.open_reshape", 2, 2, {InferOpenReshape, LowerReshape, kAny}},
    {"squeeze", 1, 1, Reshape(InferSqueeze)},
    {"transpose", 1, 1, {InferTranspose, LowerTranspose, kAny}},

    {"nn.relu", 1, 1, kEltwise, algorithm::eltwise_relu},
    {"nn.leaky_relu", 1, 1, kEltwise, algorithm::eltwise_relu, SameNames},
    {"abs", 1, 1, kEltwise, algorithm::eltwise_abs},
    {"clip", 1, 1, kEltwise, algorithm::eltwise_clip, ClipBounds},
    {"exp", 1, 1, kEltwise, algorithm::eltwise_exp, nullptr, false, Exp},
    {"log", 1, 1, kEltwise, algorithm::eltwise_log, nullptr, false, Log},
    {"negative", 1, 1, kEltwise, algorithm::eltwise_linear, Negation},
    // oneDNN's power of -1/2 calls powf for each element, a hundred times slower than this.
    {"rsqrt", 1, 1, kEltwise, algorithm::eltwise_sqrt, nullptr, /*is_reciprocal=*/true},
    {"sigmoid", 1, 1, kEltwise, algorithm::eltwise_logistic},
    {"sqrt", 1, 1, kEltwise, algorithm::eltwise_sqrt},
    {"tanh", 1, 1, kEltwise, algorithm::eltwise_tanh, nullptr, false, Tanh},
    {"ceil", 1, 1, kFunction, algorithm::undef, nullptr, false, Ceil},
    {"cos", 1, 1, kFunction, algorithm::undef, nullptr, false, Cos},
    {"erf", 1, 1, kFunction, algorithm::undef, nullptr, false, Erf},
    {"floor", 1, 1, kFunction, algorithm::undef, nullptr, false, Floor},
    {"sign", 1, 1, kFunction, algorithm::undef, nullptr, false, Sign},
    {"sin", 1, 1, kFunction, algorithm::undef, nullptr, false, Sin},
    {"trunc", 1, 1, kFunction, algorithm::undef, nullptr, false, Trunc},
    {"nn.prelu", 2, 2, kPReLU},

    // Virtual ops: functions that Relay writes as several ops.
    {"dnnl.elu", 1, 1, kEltwise, algorithm::eltwise_elu, SameNames},
    {"dnnl.gelu_erf", 1, 1, kEltwise, algorithm::eltwise_gelu_erf},
    {"dnnl.gelu_tanh", 1, 1, kEltwise, algorithm::eltwise_gelu_tanh, nullptr, false, GeluTanh},
    {"dnnl.hard_sigmoid", 1, 1, kEltwise, algorithm::eltwise_hardsigmoid, SameNames},
    {"dnnl.hard_swish", 1, 1, kEltwise, algorithm::eltwise_hardswish, SameNames},
    {"dnnl.linear", 1, 1, kEltwise, algorithm::eltwise_linear, SameNames},
    {"dnnl.mish", 1, 1, kEltwise, algorithm::eltwise_mish},
    {"dnnl.pow", 1, 1, kEltwise, algorithm::eltwise_pow, SameNames},
    {"dnnl.round", 1, 1, kFunction, algorithm::undef, nullptr, false, Round},
    {"dnnl.rsqrt", 1, 1, kEltwise, algorithm::eltwise_sqrt, nullptr, /*is_reciprocal=*/true},
    {"dnnl.softplus", 1, 1, kEltwise, algorithm::eltwise_soft_relu, UnitSlope, false, Softplus},
    {"dnnl.swish", 1, 1, kEltwise, algorithm::eltwise_swish, SameNames},

    {"dnnl.nan_maximum", 2, 2, kExtremum, algorithm::binary_max},
    {"dnnl.nan_minimum", 2, 2, kExtremum, algorithm::binary_min},

    {"nn.bias_add", 2, 2, kBinary, algorithm::binary_add},
    {"add", 2, 2, kBinary, algorithm::binary_add},
    {"subtract", 2, 2, kBinary, algorithm::binary_sub},
    {"multiply", 2, 2, kBinary, algorithm::binary_mul},
    {"divide", 2, 2, kBinary, algorithm::binary_div},
    {"maximum", 2, 2, kBinary, algorithm::binary_max},
    {"minimum", 2, 2, kBinary, algorithm::binary_min},
    {"equal", 2, 2, kComparison, algorithm::binary_eq},
    {"not_equal", 2, 2, kComparison, algorithm::binary_ne},
    {"less", 2, 2, kComparison, algorithm::binary_lt},
    {"less_equal", 2, 2, kComparison, algorithm::binary_le},
    {"greater", 2, 2, kComparison, algorithm::binary_gt},
    {"greater_equal", 2, 2, kComparison, algorithm::binary_ge},
    {"where", 3, 3, {InferWhere, LowerWhere, kAny}},
};

}  // namespace

bool OpSpec::IsSlow(const NodeReader& node) const {
  switch (algorithm) {
    case algorithm::eltwise_tanh:
    case algorithm::eltwise_gelu_tanh:
      return !HasISA(dnnl::cpu_isa::avx512_core);
    case algorithm::eltwise_pow: {
      const float exponent = AlphaBeta(node).second;
      return exponent != -1 && exponent != 0 && exponent != 0.5 && exponent != 1 && exponent != 2;
    }
    default:
      return false;
  }
}

std::function<void(const float*, float*, int64_t)> OpSpec::OwnFunction(
    const NodeReader& node) const {
  const bool is_pow = algorithm == algorithm::eltwise_pow;
  const bool is_tanh =
      algorithm == algorithm::eltwise_tanh || algorithm == algorithm::eltwise_gelu_tanh;
  if ((is_pow || is_tanh) && !IsSlow(node)) return nullptr;
  if (!is_pow) return function;
  return [factors = AlphaBeta(node)](const float* src, float* dst, int64_t count) {
    Pow(factors.first, factors.second, src, dst, count);
  };
}

const OpSpec* FindOp(const std::string& name) {
  for (const OpSpec& op : kOps) {
    if (name == op.name) return &op;
  }
  return nullptr;
}

const OpSpec& SpecOf(const NodeReader& node) {
  const OpSpec* op = FindOp(node.OpName());
  CORE_CHECK(op != nullptr) << node.Where() << ": the DNNL runtime has no op " << node.OpName()
                            << ". Was the library made by a newer version?";
  const int inputs = node.NumRootInputs();
  CORE_CHECK(inputs >= op->min_inputs && inputs <= op->max_inputs)
      << node.Where() << ": has " << inputs << " inputs, but " << op->min_inputs << " to "
      << op->max_inputs << " are expected";
  return *op;
}

std::string AlgorithmName(dnnl::algorithm algorithm) {
  return dnnl_alg_kind2str(dnnl::convert_to_c(algorithm));
}

std::vector<std::string> OpNames() {
  std::vector<std::string> names;
  for (const OpSpec& op : kOps) names.push_back(op.name);
  return names;
}

}  // namespace tvm::runtime::contrib::dnnl_backend
