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
 * \file src/runtime/contrib/dnnl/core/plan/tensor.h
 * \brief Tensors of a plan: a piece of memory and the layout it is read with.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_PLAN_TENSOR_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_PLAN_TENSOR_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "../desc.h"
#include "../onednn.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief Who owns a buffer, and so where its address comes from. */
enum class BufferKind {
  kArgument,   /*!< an argument of the call: a new address at every run */
  kConstant,   /*!< filled before the first run, shared by all runs */
  kArena,      /*!< an intermediate, at an offset into the run's own arena */
  kScratchpad, /*!< the run's own workspace, reused by one primitive after the other */
  kPart,       /*!< a part of another buffer */
};

/*! \brief How a constant of the graph is packed, see PlanBuilder::Weights. */
struct PackingRecipe {
  dnnl::memory::desc from, to;
  /*! \brief Where it begins in its memory. */
  size_t offset;
  bool is_weight;
};

/*! \brief A piece of memory that a plan uses. */
struct Buffer {
  Buffer(BufferKind kind, size_t bytes) : kind(kind), bytes(bytes) {}

  BufferKind kind;
  size_t bytes;
  /*! \brief kArgument: the position in the call. */
  int argument{-1};
  /*! \brief kConstant: keeps the memory alive. */
  std::shared_ptr<void> data;
  /*! \brief kConstant: the memory serves another constant with the same bytes, too. */
  bool is_shared{false};
  /*! \brief kConstant: the graph's constant that it holds, packed or not; -1 for others. */
  int constant{-1};
  /*! \brief kConstant: how it was packed from that; nothing where it was not. */
  std::optional<PackingRecipe> packing;
  /*! \brief kConstant: a value of it has decided something. */
  bool is_read{false};
  /*! \brief kPart: the other buffer. */
  int parent{-1};
  /*! \brief kPart: the bytes before it in `parent`. kArena: in the arena, set when the plan is
   * finished. */
  size_t offset{0};
};

/*!
 * \brief A value of the graph: a buffer and the descriptor to read it with.
 *
 * The dims of the descriptor are those of the Relay tensor, in Relay's order, whatever the layout
 * in memory. Lowerings look at it in the order that their primitive wants by `Permuted`.
 */
struct Tensor {
  int buffer{-1};
  dnnl::memory::desc md;

  bool defined() const { return buffer >= 0; }
  Dims dims() const { return md.get_dims(); }
  dnnl::memory::data_type dtype() const { return md.get_data_type(); }

  /*! \brief The same memory with dimension i being this tensor's dimension axes[i]. */
  Tensor Permuted(const std::vector<int>& axes) const;

  /*! \brief The same memory with other dims, or an undefined tensor where the layout forbids. */
  Tensor Reshaped(const Dims& dims) const;
};

/*! \brief The data type of a tensor, as oneDNN calls it. */
inline std::string TypeText(const Tensor& tensor) {
  return dnnl_dt2str(dnnl::memory::convert_to_c(tensor.dtype()));
}

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_PLAN_TENSOR_H_
