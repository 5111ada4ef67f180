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
 * \file src/runtime/contrib/dnnl/core/library.cc
 * \brief The oneDNN library that is loaded.
 */
#include "library.h"

#ifndef _WIN32
#include <dlfcn.h>
#endif
#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif

#include <sstream>
#include <string>

#include "desc.h"
#include "error.h"
#include "implementation.h"
#include "kernels/isa.h"

namespace tvm::runtime::contrib::dnnl_backend {

std::string LibraryVersion() {
  const dnnl_version_t* version = dnnl_version();
  std::ostringstream os;
  os << version->major << "." << version->minor << "." << version->patch;
  return os.str();
}

std::string LibraryAt(const void* address) {
#ifdef _WIN32
  return "";
#else
  Dl_info info;
  return dladdr(address, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
#endif
}

void ReleasePages(const char* begin, const char* end) {
#ifdef __linux__
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t first = (reinterpret_cast<size_t>(begin) + page - 1) / page * page;
  const size_t last = reinterpret_cast<size_t>(end) / page * page;
  // A mere hint: where it is not heeded, memory is used and nothing else.
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
#endif
}

void CheckVersion(int major, int minor) {
  const bool is_usable = major == DNNL_VERSION_MAJOR && minor >= DNNL_VERSION_MINOR;
  CORE_CHECK(is_usable)
      << "oneDNN " << major << "." << minor << " was loaded, but the DNNL backend was built with "
      << "the headers of " << DNNL_VERSION_MAJOR << "." << DNNL_VERSION_MINOR << ", and runs on "
      << "that version or a newer " << DNNL_VERSION_MAJOR << ".x: "
      << (major > DNNL_VERSION_MAJOR ? "a new major version has another interface"
                                     : "an older one lacks functions")
      << ". Put such a libdnnl first on the library path, or build the backend again";
}

void CheckLibraryVersion() { CheckVersion(dnnl_version()->major, dnnl_version()->minor); }

bool HasISA(ISA wanted) {
  switch (wanted) {
    case ISA::kAVX2:
#if defined(__GNUC__) && defined(__x86_64__)
      return HasISA(dnnl::cpu_isa::avx2) && __builtin_cpu_supports("fma");
#else
      return false;
#endif
    case ISA::kAVX512:
      return HasISA(dnnl::cpu_isa::avx512_core);
    case ISA::kAVX512VNNI:
      return HasISA(dnnl::cpu_isa::avx512_core_vnni);
    case ISA::kAVX512BF16:
      return HasISA(dnnl::cpu_isa::avx512_core_bf16);
    default:
      // oneDNN has asked the kernel for the tile registers then.
      return HasISA(dnnl::cpu_isa::avx512_core_amx);
  }
}

bool Computes(DLDataType dtype) {
  const auto type = ToDNNLType(dtype, "the DNNL backend");
  const dnnl::memory::desc md({16, 16}, type, dnnl::memory::format_tag::any);
  // Matrix multiplications of a type are there if anything is.
  const dnnl::matmul::primitive_desc desc(dnnl::engine(dnnl::engine::kind::cpu, 0), md, md, md,
                                          dnnl::primitive_attr(), /*allow_empty=*/true);
  return desc && !IsReference(desc);
}

bool Prefers(DLDataType dtype) {
  switch (ToDNNLType(dtype, "the DNNL backend")) {
    case dnnl::memory::data_type::bf16:
      // With AVX512_BF16 alone, networks take 1.6 times as long as in float32 on an Intel CPU, and
      // 0.5 to 0.8 times on AMD's Zen 4.
      return HasISA(dnnl::cpu_isa::avx512_core_amx) ||
             (HasISA(dnnl::cpu_isa::avx512_core_bf16) && __builtin_cpu_is("amd"));
    case dnnl::memory::data_type::f16:
      // With AVX512_FP16 alone, convolutions take up to 1.6 times as long as in float32.
      return HasISA(dnnl::cpu_isa::avx512_core_amx_fp16);
    default:
      return true;
  }
}

}  // namespace tvm::runtime::contrib::dnnl_backend
