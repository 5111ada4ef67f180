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
 * \file src/runtime/contrib/dnnl/core/desc.h
 * \brief Dims, data types and memory descriptors.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_DESC_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_DESC_H_

#include <dlpack/dlpack.h>

#include <string>
#include <utility>
#include <vector>

#include "graph.h"
#include "onednn.h"

namespace tvm::runtime::contrib::dnnl_backend {

using Dims = dnnl::memory::dims;

/*!
 * \brief The oneDNN data type of an element type.
 * \param where Names the tensor in the error for a type that oneDNN lacks.
 */
dnnl::memory::data_type ToDNNLType(DLDataType dtype, const std::string& where);

/*!
 * \brief The dims of a Relay shape. oneDNN has no tensors of rank 0, so a scalar becomes {1}.
 * \param may_be_empty Whether a dimension may be zero.
 */
Dims ToDims(const std::vector<int64_t>& shape, const std::string& where, bool may_be_empty = false);

/*!
 * \brief Refuse a tensor that cannot be: of an open dimension or one of size zero, of a data type
 * that oneDNN lacks, or of 2^31 elements or more.
 * \param may_be_empty Whether a dimension may be zero.
 */
void CheckType(const TensorType& type, const std::string& where, bool may_be_empty = false);

/*! \brief The descriptor of a dense row-major tensor. */
dnnl::memory::desc PlainDesc(const Dims& dims, dnnl::memory::data_type dtype);

/*! \brief The same dims and type, with the layout left to oneDNN (format_tag::any). */
dnnl::memory::desc AnyDesc(const dnnl::memory::desc& md);

/*! \brief Whether the descriptor is a dense row-major tensor, as TVM's tensors are. */
bool IsPlain(const dnnl::memory::desc& md);

/*!
 * \brief The same layout with the strides that oneDNN gives dimensions of size one, if it is
 * row-major, channels last or in blocks of channels. No element is anywhere else, but kernels look
 * for a layout with these strides, and refuse one that is the same but for them.
 */
dnnl::memory::desc WithUsualStrides(const dnnl::memory::desc& md);

/*! \brief The dense descriptor of the same dims with the channels innermost in memory. */
dnnl::memory::desc ChannelsLast(const dnnl::memory::desc& md);

/*!
 * \brief A dense descriptor of other dims in the same blocks of channels.
 * \return Empty where `md` has no such blocks, or others than of 8 or 16.
 */
dnnl::memory::desc InBlocksOf(const dnnl::memory::desc& md, const Dims& dims,
                              dnnl::memory::data_type dtype);

/*! \brief A dense descriptor of other dims with the dimensions in the same order in memory. */
dnnl::memory::desc InOrderOf(const dnnl::memory::desc& md, const Dims& dims);

/*! \brief Part of a tensor: where each dimension begins, how many it has and how far apart. */
struct Slice {
  Dims begin;
  Dims dims;
  Dims steps;
};

/*!
 * \brief The descriptor of a part of `md`, from its own first element, and where in the memory of
 * `md` that is, in bytes. The descriptor is empty where the part splits a block. A part that is not
 * in the tensor is an error.
 */
std::pair<dnnl::memory::desc, size_t> SlicedDesc(const dnnl::memory::desc& md, const Slice& slice);

/*! \brief Whether two descriptors put every element at the same offset. */
bool IsSameInMemory(const dnnl::memory::desc& a, const dnnl::memory::desc& b);

/*! \brief The descriptor of `md` with dimension i being its dimension axes[i]. */
dnnl::memory::desc PermutedDesc(const dnnl::memory::desc& md, const std::vector<int>& axes);

/*! \brief The dims with dimension i being dims[axes[i]]. */
Dims PermutedDims(const Dims& dims, const std::vector<int>& axes);

/*! \brief The permutation that undoes `axes`. */
std::vector<int> InversePermutation(const std::vector<int>& axes);

/*! \brief The dimensions in the order of their strides, the largest first. */
std::vector<int> OrderByStride(const Dims& strides);

/*! \brief The product of the dims. */
int64_t NumElements(const Dims& dims);

/*! \brief "[1, 3, 224, 224]". */
std::string ToText(const Dims& dims);

/*!
 * \brief The type as the core has it: a bool is an unsigned integer of one bit here, as in TVM's
 * releases with Relay. Those after it give it a code of its own, and eight bits.
 */
DLDataType WithOneBool(DLDataType dtype);

/*! \brief "float32", "uint8x4": an element type as TVM writes it. */
std::string ToText(DLDataType dtype);

/*! \brief "float32 [1, 3, 224, 224]". */
std::string ToText(const TensorType& type);

/*! \brief A layout in the notation of oneDNN's format tags, such as "aBcd16b". */
std::string LayoutText(const dnnl::memory::desc& md);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_DESC_H_
