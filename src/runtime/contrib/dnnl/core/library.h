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
 * \file src/runtime/contrib/dnnl/core/library.h
 * \brief The oneDNN library that is loaded.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_LIBRARY_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_LIBRARY_H_

#include <dlpack/dlpack.h>

#include <string>

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief "3.2.0": the version of the oneDNN library that is loaded. */
std::string LibraryVersion();

/*! \brief The path of the library that an address belongs to; empty if it is in none. */
std::string LibraryAt(const void* address);

/*! \brief Tell the system that bytes of a library's file are not needed for now; to look is safe.
 */
void ReleasePages(const char* begin, const char* end);

/*!
 * \brief Fails, with the reason, for a version of oneDNN that what was compiled with the headers
 * cannot run on: one of the same major version keeps what older ones had.
 */
void CheckVersion(int major, int minor);
/*! \brief The same for the library that is loaded. */
void CheckLibraryVersion();

/*! \brief Whether oneDNN has fast code for a floating-point type on this CPU. */
bool Computes(DLDataType dtype);

/*!
 * \brief Whether a floating-point type takes no longer than float32, as far as oneDNN may use the
 * CPU: bfloat16 with AMX, or AVX512_BF16 on AMD's CPUs; float16 with AMX_FP16.
 */
bool Prefers(DLDataType dtype);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_LIBRARY_H_
