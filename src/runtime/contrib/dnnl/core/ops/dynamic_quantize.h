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
 * \file src/runtime/contrib/dnnl/core/ops/dynamic_quantize.h
 * \brief Quantizes data as the model runs.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_DYNAMIC_QUANTIZE_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_DYNAMIC_QUANTIZE_H_

#include "../fusion/quantization.h"
#include "../node_reader.h"
#include "../plan/builder.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief A tensor in uint8, with the scale and the zero point that a kernel computes. */
struct DynamicallyQuantized {
  Tensor values;
  Quantization quantization;
};

/*!
 * \brief Emit ONNX's DynamicQuantizeLinear: one scale and zero point for all of a float32 tensor.
 *
 * Several readers of a tensor share its quantized form.
 */
DynamicallyQuantized QuantizeDynamically(const NodeReader& node, PlanBuilder* plan,
                                         const Tensor& value);

/*! \brief The float32 numbers that a quantized tensor stands for. */
Tensor Dequantized(const NodeReader& node, PlanBuilder* plan, const DynamicallyQuantized& value);

/*!
 * \brief How the weights of a dynamically quantized matmul stand for float32.
 * \param axis That of the output channels.
 */
Quantization DynamicWeights(const NodeReader& node, PlanBuilder* plan, int axis);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_DYNAMIC_QUANTIZE_H_
