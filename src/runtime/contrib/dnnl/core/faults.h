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
 * \file src/runtime/contrib/dnnl/core/faults.h
 * \brief The known faults of oneDNN: which primitives are wrong, in which versions, and the
 * workaround.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_FAULTS_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_FAULTS_H_

#include <string>
#include <vector>

#include "desc.h"
#include "onednn.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief The implementation of a primitive, and what decides whether it is wrong. */
struct Kernel {
  using Type = dnnl::memory::data_type;

  /*! \brief oneDNN's name of the implementation. */
  std::string name;
  dnnl::primitive::kind kind{dnnl::primitive::kind::undef};
  Type src_type{Type::f32}, dst_type{Type::f32};
  /*! \brief Dims in oneDNN's order. The weights have a dimension for the groups if there are any.
   */
  Dims src, weights, dst;
  /*! \brief Of a window, by spatial dimension; `dilation` is 0 for adjacent taps. */
  Dims strides, dilation, pad_begin;
  bool has_bias{false};
  int num_post_ops{0};
  /*! \brief How many of the post-ops read a tensor. */
  int num_operands{0};
  bool has_sigmoid{false};
  bool src_zero_point{false}, weights_zero_point{false};

  /*! \brief Read a descriptor, all but the zero points, which cannot be queried. */
  static Kernel Read(const dnnl::primitive_desc& desc);

  bool IsConv() const { return kind == dnnl::primitive::kind::convolution; }
  bool IsInt8() const { return src_type == Type::s8 || src_type == Type::u8; }
  bool StartsWith(const char* start) const { return name.rfind(start, 0) == 0; }
  bool Has(const char* part) const { return name.find(part) != std::string::npos; }
  size_t Spatial() const { return strides.size(); }
  bool HasGroups() const { return weights.size() > src.size(); }
  bool IsDepthwise() const { return HasGroups() && weights[1] == 1 && weights[2] == 1; }
  int64_t Taps(size_t dimension) const { return weights[weights.size() - Spatial() + dimension]; }
  int64_t Channels() const { return weights[HasGroups() ? 2 : 1]; }
  int64_t OutChannels() const { return weights[HasGroups() ? 1 : 0]; }
  /*! \brief How far the last window of a convolution reaches beyond the end of the source. */
  int64_t PadEnd(size_t dimension) const;
  /*! \brief Whether sums at the border are of fewer products. */
  bool IsPadded() const;
  bool IsDilated() const;
};

/*! \brief A row of the table of faults. */
struct Fault {
  const char* description;
  /*! \brief The first version that has the fault, and the first later one without it, as 30200 for
   * 3.2.0; 0 for an open end. */
  int from, until;
  const char* workaround;
  /*! \brief Where the fault was last observed, or how it is known. */
  const char* evidence;
  /*! \brief Whether it affects a primitive; nullptr if the lowering avoids it in any case. */
  bool (*affects)(const Kernel& kernel);

  bool IsIn(int version) const { return version >= from && (until == 0 || version < until); }
  /*! \brief "3.2.0 to 3.3" or the like. */
  std::string Versions() const;
};

/*! \brief All faults that are known. */
const std::vector<Fault>& Faults();

/*! \brief The first fault that affects a primitive in a version of oneDNN, or nullptr. */
const Fault* FindFault(const Kernel& kernel, int version);

/*! \brief The version of the library that is loaded: 30200 for 3.2.0. */
int LibraryVersionNumber();

/*! \brief Zero points of the operands, which a descriptor cannot be asked for. */
struct ZeroPoints {
  bool src{false}, weights{false};
};

/*!
 * \brief Advance to oneDNN's next implementation while the current one is faulty.
 * \return Whether one is left.
 */
bool SkipFaulty(dnnl::primitive_desc* desc, const ZeroPoints& zero_points = {});

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_FAULTS_H_
