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
 * \file src/runtime/contrib/dnnl/core/exec/threads.h
 * \brief How many threads oneDNN's primitives are made for and run on.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_EXEC_THREADS_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_EXEC_THREADS_H_

namespace tvm::runtime::contrib::dnnl_backend {

/*!
 * \brief The OpenMP library that oneDNN was linked with: GNU's, LLVM's or Intel's.
 *
 * A process may have two, each with a number of threads of its own, and TVM may have been compiled
 * with the other one or with none; `#pragma omp` would bring in the one of our compiler. So the
 * functions are looked up by way of oneDNN. All are null where it does not run on OpenMP.
 */
struct OpenMP {
  int (*get_max_threads)() = nullptr;
  void (*set_num_threads)(int) = nullptr;
  /*! \brief What compilers call for a parallel region, and in one: of our teams, if on those. */
  void (*parallel)(void (*)(void*), void*, unsigned, unsigned) = nullptr;
  void (*barrier)() = nullptr;
  int (*get_thread_num)() = nullptr;
  int (*get_num_threads)() = nullptr;
  /*! \brief Whether parallel regions run on teams of ours, and only the numbers are OpenMP's. */
  bool runs_on_teams = false;

  static const OpenMP& OfDNNL();
};

/*! \brief More threads than these are a mistake: OpenMP ends the process that cannot have them. */
constexpr int kMaxThreads = 4096;

/*!
 * \brief The number of threads for plans that are built from now on.
 *
 * Whoever runs a model knows the machine better than who compiled it. So it is what SetNumThreads
 * was given, or else the environment's TVM_DNNL_NUM_THREADS, or else what the model was compiled
 * for, or else what OpenMP gives a new thread: OMP_NUM_THREADS, or the CPUs that affinity and the
 * quota of the control group (CpuQuota) allow.
 * \param of_model What the model was compiled for; 0 if that was not said.
 */
int NumThreads(int of_model = 0);

/*! \brief Choose the number of threads for plans that are built from now on; 0 revokes the choice.
 */
void SetNumThreads(int num_threads);

/*! \brief The number of threads that oneDNN makes primitives for when called from this thread. */
int CurrentNumThreads();

/*!
 * \brief Whether the calling thread can run on so many threads.
 *
 * They are started if need be. OpenMP ends the process if it cannot start a thread, so this comes
 * before each run and each new plan.
 */
bool HasThreads(int num_threads);

/*! \brief The number of threads, or less if the limits of the system do not allow so many. */
int AvailableThreads(int num_threads);

/*! \brief Throw an error unless HasThreads, for what was made for that number of threads. */
void CheckThreads(int num_threads);

/*!
 * \brief Have the OpenMP regions of another library run on the threads that oneDNN's run on.
 * \param address Anything in the library, all relocations of which are looked through.
 * \return Whether they do.
 */
bool ShareThreads(const void* address);

/*!
 * \brief Has oneDNN run on so many threads when called from this thread, for as long as it lives.
 *
 * A primitive divides its work and its workspace among the threads that there are when it is
 * created. On more threads than these it would write outside of the workspace.
 */
class ThreadScope {
 public:
  explicit ThreadScope(int num_threads);
  /*! \brief Another number for the rest of its life. */
  void Change(int num_threads);
  ~ThreadScope();
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;

 private:
  int before_;
  int num_threads_;
};

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_EXEC_THREADS_H_
