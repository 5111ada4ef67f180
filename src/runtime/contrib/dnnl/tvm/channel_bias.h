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
 * \file src/runtime/contrib/dnnl/tvm/channel_bias.h
 * \brief Tells which operand is the bias argument of a primitive: for those who write graphs.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_TVM_CHANNEL_BIAS_H_
#define TVM_RUNTIME_CONTRIB_DNNL_TVM_CHANNEL_BIAS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "../../json/json_node.h"

namespace tvm {
namespace runtime {
namespace contrib {
namespace dnnl_backend {

/*!
 * \brief The axis of a root op's result that its primitive's bias lies along.
 * \param root The node, with the root op's attributes.
 * \param rank The rank of the result.
 * \return -1 for an op without weights, whose primitive has no bias argument.
 */
inline int BiasAxis(const json::JSONGraphNode& root, size_t rank) {
  // Convolutions have the layout of their weights, other ops with weights how they are multiplied.
  if (!root.HasAttr("kernel_layout")) {
    const bool is_product = root.HasAttr("units") || root.HasAttr("transpose_b");
    return is_product ? static_cast<int>(rank) - 1 : -1;
  }
  std::string layout;
  if (root.HasAttr("out_layout")) layout = root.GetAttr<std::string>("out_layout");
  if (layout.empty()) layout = root.GetAttr<std::string>("data_layout");
  return static_cast<int>(layout.find('C'));
}

/*! \brief Whether an operand, aligned as numpy does, has one value per item of `axis` only. */
inline bool LiesAlong(int axis, const std::vector<int64_t>& operand,
                      const std::vector<int64_t>& result) {
  if (axis < 0 || axis >= static_cast<int>(result.size())) return false;
  if (operand.size() > result.size()) return false;
  std::vector<int64_t> expected(result.size(), 1), aligned(result.size() - operand.size(), 1);
  expected[axis] = result[axis];
  aligned.insert(aligned.end(), operand.begin(), operand.end());
  return aligned == expected;
}

}  // namespace dnnl_backend
}  // namespace contrib
}  // namespace runtime
}  // namespace tvm

#endif  // TVM_RUNTIME_CONTRIB_DNNL_TVM_CHANNEL_BIAS_H_
