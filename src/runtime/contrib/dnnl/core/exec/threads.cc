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
 * \file src/runtime/contrib/dnnl/core/exec/threads.cc
 * \brief How many threads oneDNN's primitives are made for and run on.
 */
#include "threads.h"

#ifndef _WIN32
#include <dlfcn.h>
#endif

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "../environment.h"
#include "../error.h"
#include "../library.h"
#include "../onednn.h"
#include "cpu_quota.h"
#include "fork.h"
#include "team/openmp_calls.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

template <typename Function>
void Assign(void* address, Function** function) {
  *function = reinterpret_cast<Function*>(address);
}

OpenMP FindOpenMP() {
  OpenMP openmp;
#ifndef _WIN32
  const void* dnnl = reinterpret_cast<const void*>(&dnnl_version);
  const std::string path = LibraryAt(dnnl);
  void* handle = path.empty() ? nullptr : dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return openmp;
  // Looks into the libraries that this one was linked with, too.
  const auto find = [&](const char* name) { return dlsym(handle, name); };
  // All or none: with a part of them, threads that are set here would not be those of the regions.
  for (const char* name : {"omp_get_max_threads", "omp_set_num_threads", "GOMP_parallel",
                           "GOMP_barrier", "omp_get_thread_num", "omp_get_num_threads"}) {
    if (find(name) == nullptr) return openmp;
  }
  Assign(find("omp_get_max_threads"), &openmp.get_max_threads);
  Assign(find("omp_set_num_threads"), &openmp.set_num_threads);
  // Before the first primitive is made, which asks for the number of threads.
  openmp.runs_on_teams = RunOnTeams(dnnl);
  const auto find_region = [&](const char* name) {
    return openmp.runs_on_teams ? FunctionOfTeams(name) : find(name);
  };
  Assign(find_region("GOMP_parallel"), &openmp.parallel);
  Assign(find_region("GOMP_barrier"), &openmp.barrier);
  Assign(find_region("omp_get_thread_num"), &openmp.get_thread_num);
  Assign(find_region("omp_get_num_threads"), &openmp.get_num_threads);
#endif
  return openmp;
}

int FromEnvironment() {
  return NumberFromEnvironment("TVM_DNNL_NUM_THREADS", "threads", kMaxThreads);
}

/*!
 * \brief OpenMP's default number of threads: OMP_NUM_THREADS, or the CPUs that this process may
 * use.
 *
 * OpenMP knows the affinity, but no quota. The calling thread is of no use for it. TVM's kernels
 * tell OpenMP how many threads they want and leave it at that: after one with a single task,
 * constant folding's say, it is one thread.
 */
int FromOpenMP() {
  static std::atomic<int> known{0};
  if (known > 0) return known;
  int number = 1;
  try {
    StartThread([&number]() { number = OpenMP::OfDNNL().get_max_threads(); }).join();
  } catch (const Error&) {
    // There may be threads again later.
    return 1;
  }
  const char* said = std::getenv("OMP_NUM_THREADS");
  if (said != nullptr && *said != '\0') {
    CORE_CHECK(number <= kMaxThreads) << "OMP_NUM_THREADS must be a number of threads from 1 to "
                                      << kMaxThreads << ", but is \"" << said << "\"";
  } else if (const int quota = CpuQuota(); quota > 0) {
    number = std::min(number, quota);
  }
  known = number;
  return number;
}

/*! \brief Whether the calling thread and so many others can run at once. */
bool CanStart(int others) {
  std::promise<void> all;
  const std::shared_future<void> ended = all.get_future().share();
  std::vector<std::thread> threads;
  bool can = true;
  try {
    while (static_cast<int>(threads.size()) < others) {
      threads.push_back(StartThread([ended]() { ended.wait(); }));
    }
  } catch (...) {
    can = false;
  }
  all.set_value();
  for (std::thread& thread : threads) thread.join();
  return can;
}

std::atomic<int> chosen{0};

}  // namespace

const OpenMP& OpenMP::OfDNNL() {
  static const OpenMP openmp = FindOpenMP();
  return openmp;
}

int NumThreads(int of_model) {
  if (OpenMP::OfDNNL().get_max_threads == nullptr) return 1;
  const int wanted = chosen.load();
  if (wanted > 0) return wanted;
  const int from_environment = FromEnvironment();
  if (from_environment > 0) return from_environment;
  return of_model > 0 ? of_model : FromOpenMP();
}

void SetNumThreads(int num_threads) {
  CORE_CHECK(num_threads >= 0 && num_threads <= kMaxThreads)
      << "set_num_threads: the number of threads must be positive, or 0 for the default, and at "
      << "most " << kMaxThreads << ", but is " << num_threads;
  CORE_CHECK(num_threads == 0 || OpenMP::OfDNNL().set_num_threads != nullptr)
      << "set_num_threads: this oneDNN does not run on OpenMP, so its threads cannot be set here";
  chosen = num_threads;
}

int CurrentNumThreads() {
  const OpenMP& openmp = OpenMP::OfDNNL();
  return openmp.get_max_threads == nullptr ? 1 : openmp.get_max_threads();
}

bool HasThreads(int num_threads) {
  const OpenMP& openmp = OpenMP::OfDNNL();
  if (num_threads <= 1 || openmp.parallel == nullptr) return true;
  if (openmp.runs_on_teams) return HasTeam(num_threads);
  // OpenMP keeps the threads that it has started for this one.
  static thread_local int known = 1;
  if (num_threads > known && CanStart(num_threads - 1)) known = num_threads;
  return num_threads <= known;
}

int AvailableThreads(int num_threads) {
  while (!HasThreads(num_threads)) num_threads = (num_threads + 1) / 2;
  return num_threads;
}

void CheckThreads(int num_threads) {
  CORE_CHECK(HasThreads(num_threads)) << "the model was planned for " << num_threads
                                      << " threads, which cannot be started. " << kLimitsOnThreads;
}

bool ShareThreads(const void* address) {
  return OpenMP::OfDNNL().runs_on_teams && RunOnTeams(address);
}

ThreadScope::ThreadScope(int num_threads) : before_(CurrentNumThreads()), num_threads_(before_) {
  Change(num_threads);
}

void ThreadScope::Change(int num_threads) {
  const OpenMP& openmp = OpenMP::OfDNNL();
  if (num_threads == num_threads_ || openmp.set_num_threads == nullptr) return;
  openmp.set_num_threads(num_threads);
  num_threads_ = num_threads;
}

ThreadScope::~ThreadScope() { Change(before_); }

}  // namespace tvm::runtime::contrib::dnnl_backend
