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
 * \file src/runtime/contrib/dnnl/core/exec/parallel.h
 * \brief A parallel loop on the threads that run oneDNN's primitives.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_EXEC_PARALLEL_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_EXEC_PARALLEL_H_

#include <cstdint>

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief Calls `body(data, begin, end)` for ranges of a loop; see below. */
void ParallelRanges(int64_t count, int64_t grain, void (*body)(const void*, int64_t, int64_t),
                    const void* data);

/*!
 * \brief Call a function for consecutive ranges of [0, count), on as many threads as `ThreadScope`
 *        says.
 *
 * The ranges are those of oneDNN's own loops, so that a thread finds in its caches what it wrote
 * there. Serial where oneDNN does not run on OpenMP. Allocates nothing.
 *
 * \param grain A thread is used for so many iterations at least.
 * \param body Called with begin and end of a range; must not throw.
 */
template <typename Body>
void ParallelFor(int64_t count, int64_t grain, const Body& body) {
  const auto call = [](const void* data, int64_t begin, int64_t end) {
    (*static_cast<const Body*>(data))(begin, end);
  };
  ParallelRanges(count, grain, call, &body);
}

/*! \brief Calls `body(data, index, count)` on each thread of a region; see below. */
void ParallelThreads(int threads, void (*body)(const void*, int, int), const void* data);

/*!
 * \brief Call a function once on each of so many threads, which may wait for each other.
 *
 * There may be fewer threads than asked for, down to one.
 *
 * \param body Called with the index and the number of threads; must not throw.
 */
template <typename Body>
void ParallelTeam(int threads, const Body& body) {
  const auto call = [](const void* data, int index, int count) {
    (*static_cast<const Body*>(data))(index, count);
  };
  ParallelThreads(threads, call, &body);
}

/*! \brief Wait until all threads of a ParallelTeam of several have come here. */
void ParallelBarrier();

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_EXEC_PARALLEL_H_
