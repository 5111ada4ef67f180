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
 * \file src/runtime/contrib/dnnl/core/ops/recurrent_kernel.h
 * \brief A recurrent layer in float32 as one kernel of ours.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_RECURRENT_KERNEL_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_RECURRENT_KERNEL_H_

#include <cstdint>

#include "recurrent.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief Hidden units of a panel of weights: a panel is (columns, kLanes). */
constexpr int64_t kLanes = 16;

/*! \brief The most sequences that a thread computes at once, with each weight that it loads. */
constexpr int64_t kMaxRows = 6;

/*! \brief The tensors of a layer. Weights are in panels, biases are padded to those. */
struct RecurrentTensors {
  const float *data, *weights, *recurrent_weights, *bias;
  /*! \brief The initial states, or nullptr. */
  const float *h, *c;
  float *y, *h_n;
  /*! \brief Of an LSTM, else nullptr. */
  float* c_n;
  float* scratch;
};

/*! \brief A layer whose sequences are divided into blocks, which threads compute independently. */
struct RecurrentBlocks {
  RecurrentLayer layer;
  /*! \brief The blocks of each direction, and the sequences of a block. */
  int64_t blocks, rows;

  RecurrentBlocks(const RecurrentLayer& layer, int num_threads);
  /*! \brief The hidden units with those that pad the last panel. */
  int64_t padded() const { return (layer.hidden + kLanes - 1) / kLanes * kLanes; }
  /*! \brief The steps whose data is multiplied by the weights at once. */
  int64_t chunk() const;
  /*! \brief The floats that a block needs. */
  int64_t scratch() const;
};

/*! \brief Compute the layer on as many threads as `ThreadScope` says. */
void RunRecurrent(const RecurrentBlocks& blocks, const RecurrentTensors& tensors);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_RECURRENT_KERNEL_H_
