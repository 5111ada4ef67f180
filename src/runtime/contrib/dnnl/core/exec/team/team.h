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
 * \file src/runtime/contrib/dnnl/core/exec/team/team.h
 * \brief The threads that compute a parallel region, of which none waits for one that does not run.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_EXEC_TEAM_TEAM_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_EXEC_TEAM_TEAM_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace tvm::runtime::contrib::dnnl_backend {

/*!
 * \brief A primary thread and its workers, which compute one parallel region after the other.
 *
 * A region is a function that is called once for each index below its size; oneDNN divides the work
 * of a primitive among the indices. An OpenMP library ties each index to a thread. Where other
 * processes need the CPUs, that thread may not run for milliseconds, and all others wait. Here an
 * index belongs to the first thread that comes for it: its own worker as a rule, or one that is
 * done with its own, the primary thread included. Each index computes the same on any thread, so
 * outputs do not depend on it, bit by bit.
 *
 * A worker stays off the CPU of the primary thread: there it could only take turns with it. Where
 * the primary thread is preempted again and again, workers sleep at once, and the scheduler moves
 * other processes to the CPUs that this leaves idle. Where a worker is, it sleeps now and then, so
 * that other processes have its CPU between regions and not within one.
 *
 * Indices may wait for each other in a barrier: there are as many threads as indices, so one that
 * nobody has come for yet finds a thread.
 */
class Team {
 public:
  using Function = void (*)(void*);

  /*! \param size The indices that a region has at most. */
  explicit Team(int size);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  /*! \brief The indices that a region has at most. */
  int max_size() const { return static_cast<int>(slots_.size()); }
  /*! \brief The indices of the region that is computed. */
  int size() const { return size_; }
  /*! \brief How many threads OpenMP would give the primary thread. */
  int max_threads() const { return max_threads_; }

  /*!
   * \brief Begin a region. The calling thread is its primary thread until Finish; others wait
   * until then. The primary thread then calls the function for index 0 itself.
   * \param size From 2 to max_size().
   * \param max_threads What max_threads() is in the region.
   */
  void Start(Function function, void* data, int size, int max_threads);
  /*! \brief Compute what no worker has come for, and wait until all is done. */
  void Finish();
  /*! \brief Wait until the function has come here for all indices. */
  void Barrier();

 private:
  /*! \brief Each in a cache line, and not in the neighbour that is fetched with it, of its own. */
  struct alignas(128) Slot {
    /*! \brief Twice the number of the region; one more once a thread has come for the index. */
    std::atomic<uint32_t> state{0};
  };

  void Work(int worker);
  void LookForPreemption();
  void Stop();
  bool Claim(int index, uint32_t region);
  void Compute(int index);
  void CountDown();

  /*! \brief Held by the primary thread of a region: threads may share a team. */
  std::mutex in_region_;
  std::vector<Slot> slots_;
  alignas(128) std::atomic<uint32_t> region_{0};
  /*! \brief Whether a worker sleeps, or is about to. */
  std::atomic<bool> sleeps_{false};
  std::atomic<bool> stops_{false};
  Function function_{nullptr};
  void* data_{nullptr};
  int size_{0};
  int max_threads_{1};
  /*! \brief The CPU that the primary thread began the region on. */
  std::atomic<int> primary_cpu_{-1};
  /*! \brief Whether other processes need the CPUs: the primary thread was preempted repeatedly. */
  std::atomic<bool> is_contended_{false};
  /*! \brief How often it was preempted, by the last count, and the counts since it last was. */
  int64_t preemptions_{0};
  int calm_counts_;
  /*! \brief When it was, by the last count that said so. */
  std::chrono::steady_clock::time_point preempted_at_{};
  /*! \brief Until when the workers do not sleep between bursts. */
  std::atomic<std::chrono::steady_clock::time_point> crowded_until_{};
  /*! \brief Indices that are not done, and a bit that is set when the primary thread sleeps. */
  alignas(128) std::atomic<uint32_t> unfinished_{0};
  alignas(128) std::atomic<uint32_t> arrived_{0};
  std::atomic<uint32_t> barrier_{0};
  std::vector<std::thread> workers_;
};

/*! \brief Which index of which region the calling thread computes. */
struct TeamPlace {
  Team* team{nullptr};
  int index{0};

  static TeamPlace& OfThread();
};

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_EXEC_TEAM_TEAM_H_
