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
 * \file src/runtime/contrib/dnnl/core/exec/parallel.cc
 * \brief A parallel loop on the threads that run oneDNN's primitives.
 */
#include "parallel.h"

#ifndef _WIN32
#include <dlfcn.h>
#endif

#include <algorithm>
#include <string>

#include "../library.h"
#include "../onednn.h"
#include "openmp_calls.h"
#include "threads.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

// ThreadSanitizer does not see the barriers of an OpenMP that was compiled without it.
#ifdef __SANITIZE_THREAD__
constexpr bool kIsSerial = true;
#else
constexpr bool kIsSerial = false;
#endif

/*!
 * \brief What compilers call for a parallel region, of the OpenMP library that oneDNN runs on.
 *
 * `#pragma omp` would bring in the library of our compiler: a second pool of threads where oneDNN
 * was linked with another one. Those of GNU, LLVM and Intel all have these functions.
 */
struct OpenMPRegion {
  void (*parallel)(void (*)(void*), void*, unsigned, unsigned) = nullptr;
  int (*get_thread_num)() = nullptr;
  int (*get_num_threads)() = nullptr;

  static const OpenMPRegion& OfDNNL() {
    static const OpenMPRegion region = Find();
    return region;
  }

 private:
  static OpenMPRegion Find() {
    OpenMPRegion region;
#ifndef _WIN32
    const std::string path = LibraryAt(reinterpret_cast<const void*>(&dnnl_version));
    void* handle = path.empty() ? nullptr : dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (handle == nullptr) return region;
    const bool on_teams = RunOnTeams(reinterpret_cast<const void*>(&dnnl_version));
    const auto find = [&](const char* name) {
      return on_teams ? FunctionOfTeams(name) : dlsym(handle, name);
    };
    void* const parallel = find("GOMP_parallel");
    void* const thread = find("omp_get_thread_num");
    void* const threads = find("omp_get_num_threads");
    if (parallel != nullptr && thread != nullptr && threads != nullptr) {
      region.parallel = reinterpret_cast<decltype(region.parallel)>(parallel);
      region.get_thread_num = reinterpret_cast<int (*)()>(thread);
      region.get_num_threads = reinterpret_cast<int (*)()>(threads);
    }
#endif
    return region;
  }
};

struct Loop {
  int64_t count;
  void (*body)(const void*, int64_t, int64_t);
  const void* data;
};

/*! \brief The share of one thread: the first ones have one iteration more. */
void RunShare(void* data) {
  const Loop& loop = *static_cast<const Loop*>(data);
  const int64_t threads = OpenMPRegion::OfDNNL().get_num_threads();
  const int64_t thread = OpenMPRegion::OfDNNL().get_thread_num();
  const int64_t share = loop.count / threads, longer = loop.count % threads;
  const int64_t begin = thread * share + std::min(thread, longer);
  const int64_t end = begin + share + (thread < longer ? 1 : 0);
  if (begin < end) loop.body(loop.data, begin, end);
}

}  // namespace

void ParallelRanges(int64_t count, int64_t grain, void (*body)(const void*, int64_t, int64_t),
                    const void* data) {
  const int64_t useful = count / std::max<int64_t>(grain, 1);
  const int64_t threads = std::min<int64_t>(CurrentNumThreads(), useful);
  if (kIsSerial || threads <= 1 || OpenMPRegion::OfDNNL().parallel == nullptr)
    return body(data, 0, count);
  Loop loop{count, body, data};
  OpenMPRegion::OfDNNL().parallel(RunShare, &loop, static_cast<unsigned>(threads), 0);
}

}  // namespace tvm::runtime::contrib::dnnl_backend
