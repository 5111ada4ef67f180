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
 * \file src/runtime/contrib/dnnl/core/plan/original.h
 * \brief The original of a constant, which may be in a library's file, at any address.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_PLAN_ORIGINAL_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_PLAN_ORIGINAL_H_

#include <cstddef>
#include <memory>

#include "../onednn.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief To note or release less than this costs more than it saves. */
constexpr size_t kFewBytes = 4096;

/*! \brief Whether elements are where C++ reads them; those in a library's file may not be. */
bool IsAligned(const void* data, const dnnl::memory::desc& md);

/*! \brief A copy that begins where vectors do. */
std::shared_ptr<void> AlignedCopy(const void* data, size_t bytes);

/*! \brief Let the system take back the pages of a library's file that a constant was read from. */
void ReleaseOriginal(const void* data, size_t bytes);

/*!
 * \brief Reorder a constant to another layout.
 *
 * A large matrix is reordered in parts, so that little of the original, and of the aligned copy
 * that it may need, is in memory at once.
 * \param may_release Whether the pages of a file that were read are not needed any more.
 */
void ReorderOriginal(const dnnl::memory::desc& from, const void* data, const dnnl::memory::desc& to,
                     void* packed, bool may_release, const dnnl::engine& engine,
                     dnnl::stream* stream);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_PLAN_ORIGINAL_H_
