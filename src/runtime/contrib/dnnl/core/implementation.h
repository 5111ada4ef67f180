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

/*!
 * \brief Describe a convolution; a 1x1 one without a stride by oneDNN's direct code for AVX2.
 *
 * oneDNN chooses batches of blocks, which until 3.10 are for a second-level cache of 2 MiB; CPUs
 * with AVX2 alone have 256 or 512 KiB. In GFLOP/s on two cores of an AMD EPYC (Zen 1), by blocks
 * and directly, both with the channels last:
 *
 *                           blocks direct                             blocks direct
 *   56x56,  64 to 256          66    73      128 rows, 3072 to 768       26    73
 *   28x28, 512 to 128          76    77      197 rows, 4096 to 1024      34    76
 *   14x14, 1024 to 2048        60    75      1500 rows, 768 to 3072      54    76
 *   14x14, 3072 to 768         24    74      128 rows, 768 to 768        75    78
 *    7x7, 2048 to 512          69    67      49 rows, 384 to 1536        76    68
 *
 * \param positions How many positions an image of a 1x1 convolution has, or 0.
 * \param create Returns the descriptor for these layouts of the source and the result.
 */
template <typename Create>
auto Describe1x1(int64_t positions, const dnnl::memory::desc& src, const dnnl::memory::desc& dst,
                 const Create& create) {
  constexpr int64_t kFewPositions = 64;
  auto desc = create(src, dst);
  if (!desc || positions < kFewPositions) return desc;
  if (std::string(desc.impl_info_str()) != "brgconv_1x1:avx2") return desc;
  // With layouts of its own choice, the direct code has blocks of channels.
  auto direct = create(desc.src_desc(), desc.dst_desc());
  do {
    if (std::string(direct.impl_info_str()) == "jit_1x1:avx2") return direct;
  } while (direct.next_impl());
  return desc;
}

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_IMPLEMENTATION_H_
