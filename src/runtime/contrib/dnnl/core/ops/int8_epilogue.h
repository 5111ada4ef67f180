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
 * \file src/runtime/contrib/dnnl/core/ops/int8_epilogue.h
 * \brief What our kernels of 8-bit integers do to sums of products as they store them.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_INT8_EPILOGUE_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_INT8_EPILOGUE_H_

#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "../kernels/int8_matrices.h"
#include "../node_reader.h"
#include "../plan/builder.h"
#include "../plan/tensor.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief The post-ops that the kernels do as they store a result. */
struct Int8Epilogue {
  static constexpr float kInfinity = std::numeric_limits<float>::infinity();

  /*! \brief Of each column, or empty. */
  std::vector<float> bias;
  float low{-kInfinity}, high{kInfinity};
  /*! \brief Of a result in 8 bits. */
  std::optional<std::pair<double, double>> quantization;

  /*!
   * \brief Those of a node; nothing where the kernels lack one.
   * \param axis The dimension of the root op's result that is the columns, from the end.
   */
  static std::optional<Int8Epilogue> Read(const NodeReader& node, PlanBuilder* plan,
                                          int64_t axis = 1);

  /*!
   * \brief The finish, but for its vectors.
   * \param src_scale The scale of the first operand.
   * \param scales Those of the second one; here they become those of the sums.
   */
  Int8Finish Finish(const NodeReader& node, double src_scale, std::vector<float>* scales) const;
  /*! \brief The vector of what is added, in steps of the result. */
  std::vector<float> ScaledBias() const;

 private:
  bool Add(const NodeReader& node, const NodeReader& op, PlanBuilder* plan, int64_t axis);
  double Step() const { return quantization ? quantization->first : 1; }
};

/*! \brief The packed matrices; those of constants are packed now. */
Tensor PackedInt8(const NodeReader& node, PlanBuilder* plan, const Tensor& weights,
                  const Int8Matrix& matrix, int64_t matrices);

/*! \brief A value of each column, with the padding of panels. */
Tensor OfColumns(PlanBuilder* plan, const Int8Matrix& matrix, std::vector<float> values);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_INT8_EPILOGUE_H_
