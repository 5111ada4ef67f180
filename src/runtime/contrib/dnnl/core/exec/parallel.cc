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

#include <algorithm>

#include "threads.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

// ThreadSanitizer does not see the barriers of an OpenMP that was compiled without it.
#ifdef __SANITIZE_THREAD__
constexpr bool kIsSerial = true;
#else
constexpr bool kIsSerial = false;
#endif

struct Loop {
  int64_t count;
  void (*body)(const void*, int64_t, int64_t);
  const void* data;
};

/*! \brief The share of one thread: the first ones have one iteration more. */
void RunShare(void* data) {
  const Loop& loop = *static_cast<const Loop*>(data);
  const int64_t threads = OpenMP::OfDNNL().get_num_threads();
  const int64_t thread = OpenMP::OfDNNL().get_thread_num();
  const int64_t share = loop.count / threads, longer = loop.count % threads;
  const int64_t begin = thread * share + std::min(thread, longer);
  const int64_t end = begin + share + (thread < longer ? 1 : 0);
  if (begin < end) loop.body(loop.data, begin, end);
}

struct Region {
  void (*body)(const void*, int, int);
  const void* data;
};

void RunThread(void* data) {
  const Region& region = *static_cast<const Region*>(data);
  region.body(region.data, OpenMP::OfDNNL().get_thread_num(), OpenMP::OfDNNL().get_num_threads());
}

}  // namespace

void ParallelRanges(int64_t count, int64_t grain, void (*body)(const void*, int64_t, int64_t),
                    const void* data) {
  const int64_t useful = count / std::max<int64_t>(grain, 1);
  const int64_t threads = std::min<int64_t>(CurrentNumThreads(), useful);
  if (kIsSerial || threads <= 1 || OpenMP::OfDNNL().parallel == nullptr)
    return body(data, 0, count);
  Loop loop{count, body, data};
  OpenMP::OfDNNL().parallel(RunShare, &loop, static_cast<unsigned>(threads), 0);
}

void ParallelThreads(int threads, void (*body)(const void*, int, int), const void* data) {
  threads = std::min(threads, CurrentNumThreads());
  if (kIsSerial || threads <= 1 || OpenMP::OfDNNL().parallel == nullptr) return body(data, 0, 1);
  Region region{body, data};
  OpenMP::OfDNNL().parallel(RunThread, &region, static_cast<unsigned>(threads), 0);
}

void ParallelBarrier() { OpenMP::OfDNNL().barrier(); }

}  // namespace tvm::runtime::contrib::dnnl_backend
