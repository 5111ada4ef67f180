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
 * \file src/runtime/contrib/dnnl/core/implementation.h
 * \brief How good oneDNN's code for a primitive is, by the name that oneDNN gives it.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_IMPLEMENTATION_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_IMPLEMENTATION_H_

#include <string>
#include <vector>

#include "onednn.h"

namespace tvm::runtime::contrib::dnnl_backend {

enum class Implementation {
  kReference, /*!< one element after the other: far slower than all else */
  kPortable,  /*!< C++ that runs on any CPU */
  kNative,    /*!< written for this CPU */
};

/*!
 * \brief Judge an implementation by its name, as oneDNN 3.2 to 3.13 give them.
 *
 * A name is "<how>:<CPU>", such as "jit:avx512_core", with "any" for all CPUs. Where a primitive
 * delegates to another one, the other's name follows a plus: "conv:any+jit:avx512_core".
 */
Implementation Judge(const std::string& name);

/*!
 * \brief Judge an implementation together with what is fused to the primitive.
 * \param name The implementation's name.
 * \param kind oneDNN's name of the primitive kind, such as "convolution".
 * \param post_ops oneDNN's names of the post-ops, such as "binary_add"; "bias" for a bias.
 */
Implementation Judge(const std::string& name, const std::string& kind,
                     const std::vector<std::string>& post_ops);

/*! \brief The judgement of what oneDNN chose for a primitive. */
inline Implementation Judge(const dnnl::primitive_desc_base& desc) {
  return Judge(std::string(desc.impl_info_str()));
}

inline bool IsReference(const dnnl::primitive_desc_base& desc) {
  return Judge(desc) == Implementation::kReference;
}

inline bool IsNative(const dnnl::primitive_desc_base& desc) {
  return Judge(desc) == Implementation::kNative;
}

/*! \brief Whether it is one of oneDNN's multiplications of batches of blocks, its fastest. */
bool IsBlockGemm(const dnnl::primitive_desc_base& desc);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_IMPLEMENTATION_H_
