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
 * \file src/runtime/contrib/dnnl/core/implementation.cc
 * \brief How good oneDNN's code for a primitive is, by the name that oneDNN gives it.
 */
#include "implementation.h"

#include <algorithm>
#include <string>
#include <vector>

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

bool StartsWith(const std::string& text, const std::string& start) {
  return text.rfind(start, 0) == 0;
}

}  // namespace

Implementation Judge(const std::string& name) {
  const std::string computing = name.substr(name.rfind('+') + 1);
  const std::string how = computing.substr(0, computing.find(':'));
  // "ref_int8" and the like, too, but not "gemm:ref", whose loops are blocked.
  if (how == "ref" || StartsWith(how, "ref_")) return Implementation::kReference;
  const size_t colon = computing.rfind(':');
  const bool is_any = colon != std::string::npos && computing.substr(colon) == ":any";
  return is_any || computing == "gemm:ref" ? Implementation::kPortable : Implementation::kNative;
}

Implementation Judge(const std::string& name, const std::string& kind,
                     const std::vector<std::string>& post_ops) {
  const auto is_binary = [](const std::string& post_op) { return StartsWith(post_op, "binary"); };
  // A deconvolution that runs as the gradient of a convolution has nothing better than plain loops
  // for a bias, post-ops and the scales and zero points of int8, and a convolution by matrix
  // multiplications for second operands.
  const bool is_gradient = StartsWith(name, "conv:");
  if (is_gradient && name.find("gemm_") != std::string::npos) return Implementation::kReference;
  const bool is_gemm = kind == "convolution" && name.find("gemm") != std::string::npos;
  if ((is_gradient && !post_ops.empty()) ||
      (is_gemm && std::any_of(post_ops.begin(), post_ops.end(), is_binary))) {
    return Implementation::kReference;
  }
  // "ref" of a recurrent layer calls oneDNN's matmuls, and compiles its gates for the CPU.
  if (kind == "rnn" && Judge(name) == Implementation::kReference) return Implementation::kPortable;
  return Judge(name);
}

bool IsBlockGemm(const dnnl::primitive_desc_base& desc) {
  return StartsWith(desc.impl_info_str(), "brg");
}

}  // namespace tvm::runtime::contrib::dnnl_backend
