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
 * \file src/runtime/contrib/dnnl/core/op_table.h
 * \brief One row per Relay op that the runtime can run.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_OP_TABLE_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_OP_TABLE_H_

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/functions.h"
#include "node_reader.h"
#include "onednn.h"
#include "plan/builder.h"

namespace tvm::runtime::contrib::dnnl_backend {

// For each op the types of its results from those of its inputs, which they check, and its
// attributes; one file per family in ops/, beside the lowerings, which rely on it.
Types InferAttention(const NodeReader& node, const Types& inputs);
Types InferBatchFlatten(const NodeReader& node, const Types& inputs);
Types InferBatchNorm(const NodeReader& node, const Types& inputs);
Types InferBinary(const NodeReader& node, const Types& inputs);
Types InferBlockQuantizedDense(const NodeReader& node, const Types& inputs);
Types InferBroadcastTo(const NodeReader& node, const Types& inputs);
Types InferCast(const NodeReader& node, const Types& inputs);
Types InferConcat(const NodeReader& node, const Types& inputs);
Types InferConv(const NodeReader& node, const Types& inputs);
Types InferConvTranspose(const NodeReader& node, const Types& inputs);
Types InferDequantize(const NodeReader& node, const Types& inputs);
Types InferDynamicFakeQuantize(const NodeReader& node, const Types& inputs);
Types InferDynamicQuantizeScale(const NodeReader& node, const Types& inputs);
Types InferDynamicQuantizedDense(const NodeReader& node, const Types& inputs);
Types InferEltwise(const NodeReader& node, const Types& inputs);
Types InferExpandDims(const NodeReader& node, const Types& inputs);
Types InferExpertDense(const NodeReader& node, const Types& inputs);
Types InferGlobalPool(const NodeReader& node, const Types& inputs);
Types InferGridSample(const NodeReader& node, const Types& inputs);
Types InferGroupNorm(const NodeReader& node, const Types& inputs);
Types InferInstanceNorm(const NodeReader& node, const Types& inputs);
Types InferL2Normalize(const NodeReader& node, const Types& inputs);
Types InferLayerNorm(const NodeReader& node, const Types& inputs);
Types InferLayoutTransform(const NodeReader& node, const Types& inputs);
Types InferLRN(const NodeReader& node, const Types& inputs);
Types InferMatMul(const NodeReader& node, const Types& inputs);
Types InferOpenReshape(const NodeReader& node, const Types& inputs);
Types InferPad(const NodeReader& node, const Types& inputs);
Types InferPool(const NodeReader& node, const Types& inputs);
Types InferPReLU(const NodeReader& node, const Types& inputs);
Types InferQuantize(const NodeReader& node, const Types& inputs);
Types InferRecurrent(const NodeReader& node, const Types& inputs);
Types InferReduce(const NodeReader& node, const Types& inputs);
Types InferReshape(const NodeReader& node, const Types& inputs);
Types InferResize(const NodeReader& node, const Types& inputs);
Types InferReverseReshape(const NodeReader& node, const Types& inputs);
Types InferRMSNorm(const NodeReader& node, const Types& inputs);
Types InferSoftmax(const NodeReader& node, const Types& inputs);
Types InferSplit(const NodeReader& node, const Types& inputs);
Types InferSqueeze(const NodeReader& node, const Types& inputs);
Types InferStack(const NodeReader& node, const Types& inputs);
Types InferStridedSlice(const NodeReader& node, const Types& inputs);
Types InferTake(const NodeReader& node, const Types& inputs);
Types InferTranspose(const NodeReader& node, const Types& inputs);
Types InferComparison(const NodeReader& node, const Types& inputs);
Types InferExtremum(const NodeReader& node, const Types& inputs);
Types InferWhere(const NodeReader& node, const Types& inputs);

// The lowerings.
void LowerAttention(const NodeReader& node, PlanBuilder* plan);
void LowerBatchNorm(const NodeReader& node, PlanBuilder* plan);
void LowerBinary(const NodeReader& node, PlanBuilder* plan);
void LowerBlockQuantizedDense(const NodeReader& node, PlanBuilder* plan);
void LowerBroadcastTo(const NodeReader& node, PlanBuilder* plan);
void LowerCast(const NodeReader& node, PlanBuilder* plan);
void LowerConcat(const NodeReader& node, PlanBuilder* plan);
void LowerConv(const NodeReader& node, PlanBuilder* plan);
void LowerConvTranspose(const NodeReader& node, PlanBuilder* plan);
void LowerDequantize(const NodeReader& node, PlanBuilder* plan);
void LowerDynamicFakeQuantize(const NodeReader& node, PlanBuilder* plan);
void LowerDynamicQuantizeScale(const NodeReader& node, PlanBuilder* plan);
void LowerDynamicQuantizedDense(const NodeReader& node, PlanBuilder* plan);
void LowerEltwise(const NodeReader& node, PlanBuilder* plan);
void LowerExpertDense(const NodeReader& node, PlanBuilder* plan);
void LowerGridSample(const NodeReader& node, PlanBuilder* plan);
void LowerGroupNorm(const NodeReader& node, PlanBuilder* plan);
void LowerInstanceNorm(const NodeReader& node, PlanBuilder* plan);
void LowerL2Normalize(const NodeReader& node, PlanBuilder* plan);
void LowerLayerNorm(const NodeReader& node, PlanBuilder* plan);
void LowerLayoutTransform(const NodeReader& node, PlanBuilder* plan);
void LowerLRN(const NodeReader& node, PlanBuilder* plan);
void LowerMatMul(const NodeReader& node, PlanBuilder* plan);
void LowerPad(const NodeReader& node, PlanBuilder* plan);
void LowerPool(const NodeReader& node, PlanBuilder* plan);
void LowerPReLU(const NodeReader& node, PlanBuilder* plan);
void LowerQuantize(const NodeReader& node, PlanBuilder* plan);
void LowerRMSNorm(const NodeReader& node, PlanBuilder* plan);
void LowerRecurrent(const NodeReader& node, PlanBuilder* plan);
void LowerReduce(const NodeReader& node, PlanBuilder* plan);
void LowerReshape(const NodeReader& node, PlanBuilder* plan);
void LowerResize(const NodeReader& node, PlanBuilder* plan);
void LowerSoftmax(const NodeReader& node, PlanBuilder* plan);
void LowerSplit(const NodeReader& node, PlanBuilder* plan);
void LowerStack(const NodeReader& node, PlanBuilder* plan);
void LowerStridedSlice(const NodeReader& node, PlanBuilder* plan);
void LowerTake(const NodeReader& node, PlanBuilder* plan);
void LowerTranspose(const NodeReader& node, PlanBuilder* plan);
void LowerComparison(const NodeReader& node, PlanBuilder* plan);
void LowerExtremum(const NodeReader& node, PlanBuilder* plan);
void LowerWhere(const NodeReader& node, PlanBuilder* plan);

/*! \brief The result of a qnn.dequantize; of constants, computed at once. */
Tensor Dequantized(const NodeReader& op, PlanBuilder* plan);

// The multiplications and additions of a node, those with padding among them.
double AttentionFlops(const NodeReader& node, const PlanBuilder& plan);
double BlockQuantizedFlops(const NodeReader& node, const PlanBuilder& plan);
double ConvFlops(const NodeReader& node, const PlanBuilder& plan);
double ConvTransposeFlops(const NodeReader& node, const PlanBuilder& plan);
double ExpertFlops(const NodeReader& node, const PlanBuilder& plan);
double MatMulFlops(const NodeReader& node, const PlanBuilder& plan);
double RecurrentFlops(const NodeReader& node, const PlanBuilder& plan);

/*! \brief In which layouts a lowering reads the inputs of its op; lowering.cc brings others in. */
enum class Reads {
  kCommonLayouts, /*!< row-major, channels last, or in blocks of channels */
  kAnyLayout,     /*!< strides of any order and with gaps, too, which views have */
  kAnyWhenAlone,  /*!< any as well, if nothing is fused to the op */
};

/*! \brief The fused ops that a lowering supports. */
enum class Fuses {
  kNothing,
  kRealOps,       /*!< post-ops on dequantized values */
  kQuantizations, /*!< quantized inputs and results, too */
};

/*! \brief The kind of an op that is fused to another. */
enum class PostOp { kNone, kEltwise, kBinary, kPReLU, kView };

/*! \brief A pointer that cannot be left out: a row without it does not compile. */
template <typename Function>
class Required {
 public:
  constexpr Required(Function* function) : function_(function) {}  // NOLINT(runtime/explicit)
  Required(std::nullptr_t) = delete;

  template <typename... Args>
  auto operator()(Args&&... args) const {
    return function_(std::forward<Args>(args)...);
  }

 private:
  Function* function_;
};

/*! \brief Shared by ops that are lowered by one function. */
struct Family {
  Required<Types(const NodeReader& node, const Types& inputs)> infer;
  Required<void(const NodeReader& node, PlanBuilder* plan)> lower;
  Reads reads{Reads::kCommonLayouts};
  Fuses fuses{Fuses::kNothing};
  PostOp as_post_op{PostOp::kNone};
  /*! \brief nullptr where the time goes with the number of elements. */
  double (*flops)(const NodeReader& node, const PlanBuilder& plan){nullptr};
};

/*! \brief All that the runtime knows about one op. */
struct OpSpec {
  const char* name;
  int min_inputs;
  int max_inputs;
  Family family;
  dnnl::algorithm algorithm{dnnl::algorithm::undef};
  /*! \brief For an eltwise op with parameters: oneDNN's alpha and beta from the attributes. */
  std::pair<float, float> (*alpha_beta)(const NodeReader& node){nullptr};
  /*! \brief For an eltwise op: one divided by what the algorithm computes. */
  bool is_reciprocal{false};
  /*! \brief For an eltwise op: our function, unless the result becomes one in 8 bits; or nullptr.
   */
  FloatFunction function{nullptr};

  /*!
   * \brief For an eltwise op: whether oneDNN calls a function of the C library for each element, or
   * reads a table from memory.
   */
  bool IsSlow(const NodeReader& node) const;
  /*! \brief Our function of a call; empty where oneDNN's code is as fast and accurate. */
  std::function<void(const float* src, float* dst, int64_t count)> OwnFunction(
      const NodeReader& node) const;

  /*! \brief alpha and beta of a call; zeros where the op has no parameters. */
  std::pair<float, float> AlphaBeta(const NodeReader& node) const {
    return alpha_beta ? alpha_beta(node) : std::make_pair(0.f, 0.f);
  }
};

/*! \brief The row of an op, or nullptr. */
const OpSpec* FindOp(const std::string& name);

/*! \brief The row of a node's op, or of its root op; it has inputs as the row says. */
const OpSpec& SpecOf(const NodeReader& node);

/*! \brief oneDNN's name of an algorithm, such as "eltwise_relu". */
std::string AlgorithmName(dnnl::algorithm algorithm);

/*! \brief The names of all ops, in the order of the table. */
std::vector<std::string> OpNames();

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_OP_TABLE_H_
