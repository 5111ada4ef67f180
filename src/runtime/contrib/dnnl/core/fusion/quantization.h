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
 * \file src/runtime/contrib/dnnl/core/fusion/quantization.h
 * \brief Tensors that are quantized with a scale and a zero point.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_FUSION_QUANTIZATION_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_FUSION_QUANTIZATION_H_

#include <utility>

#include "../node_reader.h"
#include "../plan/builder.h"
#include "../plan/tensor.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*!
 * \brief How a tensor is quantized: its values are scale * (element - zero_point).
 *
 * Scale and zero point are vectors, of one element or of one for each coordinate along `axis`.
 */
struct Quantization {
  /*! \brief In float32; undefined where it is one. */
  Tensor scale;
  /*! \brief In int32; undefined where it is constant zero. */
  Tensor zero_point;
  int axis{0};

  /*!
   * \brief Read a qnn.quantize or qnn.dequantize, whose second and third inputs these are.
   * \param dims Those of the tensor that is quantized.
   */
  static Quantization Read(const NodeReader& op, PlanBuilder* plan, const Dims& dims);

  /*! \brief A vector of zero points; one element for equal ones, undefined for zeros. */
  static Tensor WithoutZero(const NodeReader& op, PlanBuilder* plan, const Tensor& zero_point);

  bool HasZeroPoint() const { return zero_point.defined(); }
  bool IsConstant(const PlanBuilder& plan) const {
    return (!scale.defined() || plan.IsConstant(scale)) &&
           (!HasZeroPoint() || plan.IsConstant(zero_point));
  }
  /*! \brief Whether one scale and one zero point are those of all elements. */
  bool IsPerTensor() const { return !IsAlongAxis(scale) && !IsAlongAxis(zero_point); }
  /*! \brief Whether the scale or the zero point has an element for each coordinate. */
  static bool IsAlongAxis(const Tensor& part) {
    return part.defined() && NumElements(part.dims()) > 1;
  }
  /*!
   * \brief The same as the numbers that they are: scale and zero point of all elements.
   *
   * Values that are computed, or that differ along the axis, are an error of oneDNN's kind:
   * there is no primitive with that.
   */
  std::pair<double, double> Values(const NodeReader& node, PlanBuilder* plan) const;

  /*!
   * \brief Have a primitive read an argument without dequantizing it.
   * \param mask oneDNN's, of the dimensions of the argument that the axis is.
   */
  void AddTo(int arg, int mask, dnnl::primitive_attr* attr, PlanBuilder::Args* args) const;
};

/*! \brief Whether elements are integers of 8 bits. */
inline bool IsByte(dnnl::memory::data_type type) {
  return type == dnnl::memory::data_type::u8 || type == dnnl::memory::data_type::s8;
}

/*! \brief The smallest and the largest element of an integral type. */
std::pair<double, double> RangeOf(dnnl::memory::data_type type);

/*! \brief The layout with other elements. Blocks, which depend on the type, become channels last.
 */
dnnl::memory::desc WithType(const dnnl::memory::desc& md, dnnl::memory::data_type type);

/*! \brief A copy with the same numbers in another type. */
Tensor Cast(const NodeReader& node, PlanBuilder* plan, const Tensor& value,
            dnnl::memory::data_type type);

/*!
 * \brief A copy with elements of another type.
 * \param from, to How both are quantized; nullptr for not at all.
 */
Tensor Requantized(const NodeReader& node, PlanBuilder* plan, const Tensor& src,
                   dnnl::memory::data_type type, const Quantization* from, const Quantization* to);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_FUSION_QUANTIZATION_H_
