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
 * \file src/runtime/contrib/dnnl/core/ops/conv.h
 * \brief Shared by the ways to lower a convolution.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_CONV_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_CONV_H_

#include <optional>
#include <vector>

#include "../fusion/int8.h"
#include "../node_reader.h"
#include "../plan/builder.h"
#include "../plan/tensor.h"
#include "window.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief The operands of a convolution in oneDNN's order of dimensions. */
struct ConvTensors {
  Tensor src;
  /*! \brief (O, I, ...), or (G, O/G, I/G, ...) with groups. */
  Tensor weights;
  Dims dst_dims;
  /*! \brief From the result in Relay's order to oneDNN's. */
  std::vector<int> dst_axes;
  Window window;
  /*! \brief Whether a signal is treated as an image of one row. */
  bool is_row{false};
  /*! \brief Whether it is a 1x1 convolution of patches. */
  bool has_patches{false};
  /*! \brief Whether height and width have changed places. */
  bool is_column{false};
  /*! \brief For a convolution in 8 bits. */
  std::optional<Int8Operands> int8;
};

/*! \brief A tensor in another type; constants are converted once. */
Tensor Converted(const NodeReader& node, PlanBuilder* plan, const Tensor& value,
                 dnnl::memory::data_type type);

/*!
 * \brief Make a convolution of few channels whose windows lie side by side, as in networks that cut
 * an image in patches, a 1x1 convolution of the patches.
 *
 * oneDNN's convolutions are slow where there are few input channels. Measured in µs on two cores,
 * from float32 in NCHW to rows in the precision, all primitives, before and after:
 *
 *                                     bfloat16, AMX  float32, AVX-512  float32, AVX2
 *   224x224,  2x2,  3 to  64             448  309        291  277         299  272
 *   224x224,  4x4,  3 to  96             163  133        180  165         221  207
 *   224x224,  4x4,  1 to  96             110   92        140   99         134  104
 *   224x224, 16x16, 3 to 192             150   84        232  209         369  320
 *   224x224, 16x16, 3 to 768             390  192        829  735        1353 1202
 *   224x224, 32x32, 3 to 768            1084  249        894  778        1390 1289
 *
 * With SSE4.1 alone it does not pay. A source with the channels last is left as it is.
 */
void ReadAsPatches(const NodeReader& node, PlanBuilder* plan, ConvTensors* conv);

/*!
 * \brief Emit a transposed convolution whose windows lie side by side as a 1x1 convolution, with an
 * output channel for each value of a window, and a reorder that takes these apart.
 *
 * oneDNN's deconvolutions compute a whole vector of channels where there are few. Measured in µs on
 * two cores, 2x2 windows, deconvolution and both primitives:
 *
 *                          bfloat16, AMX  float32, AVX-512  float32, AVX2  float32, SSE4.1
 *   320x320, 24 to  1       2279  564       2506  702        1962  546      16483 2392
 *   320x320, 24 to  4        837  297       1408  684        1092  697      42894 1482
 *   160x160, 32 to  8        227   97        456  322         359  386      21990  851
 *   160x160, 32 to 16        220  231        477  618         574  799      49666 1765
 *
 * \return False where there are more channels or oneDNN has nothing for it; nothing is emitted
 * then.
 */
bool EmitWindowsApart(const NodeReader& node, PlanBuilder* plan, const ConvTensors& conv,
                      double flops);

/*!
 * \brief Emit a depthwise convolution over three dimensions, for which oneDNN has no code but plain
 * loops and a small matrix multiplication for each channel, by a kernel of ours in float32.
 *
 * In ms on two cores with AVX2, 32 channels of 16x28x28 values, row-major, all steps, before and
 * after:
 *
 *                         float32       int8
 *   3x3x3                22.1  0.82   34.5  1.32
 *   5x5x5, stride of 2   21.8  0.27   17.9  0.56
 *
 * \return False for other convolutions, and where oneDNN has good code; nothing is emitted then.
 */
bool EmitDepthwise3D(const NodeReader& node, PlanBuilder* plan, const ConvTensors& conv,
                     double flops);

/*! \brief Whether oneDNN's int8 kernels for this CPU are inexact, and ours are there. */
bool HasInt8Convs();

/*!
 * \brief Emit a convolution of 8-bit numbers without groups by a kernel of ours, which is exact, if
 * oneDNN's is not.
 *
 * In ms on one busy core with AVX2, row-major images, all steps; before, they were dequantized:
 *
 *                                         before  after
 *   1x64x56x56, 64 filters of 3x3           5.3    2.1
 *   1x256x14x14, 256 filters of 3x3         4.6    2.2
 *   1x64x56x56, 256 filters of 1x1          4.3    1.9
 *   1x3x224x224, 64 filters of 7x7          5.8    4.3
 *   1x32x16x28x28, 64 filters of 3x3x3     24.5   11.3
 *   1x32x16x28x28, 64 filters of 1x1x1      4.1    1.3
 *
 * \return False for other convolutions; nothing is emitted then.
 */
bool EmitInt8Conv(const NodeReader& node, PlanBuilder* plan, const ConvTensors& conv, double flops);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_CONV_H_
