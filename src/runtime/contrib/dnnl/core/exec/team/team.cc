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
 * \file src/runtime/contrib/dnnl/core/exec/team/team.cc
 * \brief The threads that compute a parallel region, of which none waits for one that does not run.
 */
#ifdef __linux__

#include "team.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <ctime>
#include <mutex>

#include "../fork.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

using Clock = std::chrono::steady_clock;

/*!
 * \brief How long a worker waits for the next region before it sleeps.
 *
 * To wake it takes a call of the system, and on a virtual machine some 50 microseconds until it
 * runs. Primitives of one thread between two regions seldom take longer than this.
 */
constexpr std::chrono::microseconds kWorkerSpin{300};
/*!
 * \brief The same where other processes need the CPUs.
 *
 * A worker that spins keeps a CPU from them, and they take turns with the primary thread instead:
 * beside one busy process that had its CPU for half of the time, and nearly all of it with this.
 */
constexpr std::chrono::microseconds kContendedWorkerSpin{20};
/*! \brief Preemptions are counted once in so many regions: it takes a call of the system. */
constexpr uint32_t kRegionsPerCount = 16;
/*!
 * \brief Two preemptions within so many counts mean that other processes need the CPUs; so many
 * counts without one, that they no longer do. A single one happens on quiet machines, too.
 */
constexpr int kCalmCounts = 64;
/*!
 * \brief How long a worker runs before it sleeps, and for how long, where another process computes.
 *
 * A worker that is preempted within a region delays the primary thread by a time slice of another
 * process. A worker that sleeps before its own time slice ends gives the CPU to that process, and
 * the primary thread computes the next regions alone.
 */
constexpr std::chrono::microseconds kBurst{500}, kRest{500};
/*!
 * \brief Workers sleep between bursts for `kRests` once others had their CPU for at least
 * `kLostShare` of `kWindow`, in which they ran or waited for the CPU; for twice as long each time
 * that this is so again soon afterwards, up to `kMostRests`.
 *
 * A process that computes takes half of it. The threads of another runtime that spin after a run,
 * for a millisecond or two, take less, and so does work that takes little time.
 */
constexpr std::chrono::milliseconds kWindow{16}, kRests{200}, kMostRests{1600};
constexpr double kLostShare = 0.4;
/*!
 * \brief Two preemptions of the primary thread within `kCrowdedPeriod` mean that its CPU is shared
 * as well. It then needs the workers, which do not sleep between bursts for `kCrowded`.
 */
constexpr std::chrono::milliseconds kCrowdedPeriod{10}, kCrowded{50};
/*! \brief How long a thread waits for others to finish before it leaves its CPU to them. */
constexpr std::chrono::microseconds kFinishSpin{200};

/*! \brief In `Team::unfinished_`: the primary thread sleeps until the rest is 0. */
constexpr uint32_t kSleeps = 1u << 31;

void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

/*! \brief Wait actively until a condition is met; false if that takes longer than a time. */
template <typename Condition>
bool Spin(std::chrono::microseconds time, const Condition& condition) {
  // The clock is asked for seldom: it takes as long as some pauses.
  constexpr int kPauses = 16;
  Clock::time_point end{};
  do {
    for (int i = 0; i < kPauses; ++i) {
      if (condition()) return true;
      Pause();
    }
    if (end == Clock::time_point{}) end = Clock::now() + time;
  } while (Clock::now() < end);
  return false;
}

/*! \brief How long the calling thread has slept in its burst, see `Bursts`. */
thread_local std::chrono::nanoseconds slept{};

/*! \brief Sleep unless, or until, a word is another one than `value`; may return at any time. */
void Sleep(std::atomic<uint32_t>* word, uint32_t value) {
  const Clock::time_point begin = Clock::now();
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
  slept += Clock::now() - begin;
}

void Wake(std::atomic<uint32_t>* word) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

/*! \brief The CPUs that a worker may run on. */
class Affinity {
 public:
  /*! \brief If the calling thread runs on a CPU, move it to others that it may run on, if any. */
  void Leave(int cpu) {
    if (cpu < 0 || sched_getcpu() != cpu) return;
    cpu_set_t current;
    if (sched_getaffinity(0, sizeof(current), &current) != 0) return;
    // Not what was chosen here, so the user's choice.
    if (!CPU_EQUAL(&current, &chosen_)) allowed_ = current;
    chosen_ = allowed_;
    CPU_CLR(cpu, &chosen_);
    if (CPU_COUNT(&chosen_) == 0 || sched_setaffinity(0, sizeof(chosen_), &chosen_) != 0) {
      chosen_ = current;
    }
  }

 private:
  cpu_set_t allowed_{};
  cpu_set_t chosen_{};
};

/*! \brief The time that the calling thread was on a CPU. */
std::chrono::nanoseconds CPUTime() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

/*! \brief Decides when a worker sleeps to avoid being preempted. */
class Bursts {
 public:
  Bursts() { Begin(); }

  /*! \brief Begin a burst, in which the thread computes or spins. */
  void Begin() {
    begin_ = Clock::now();
    cpu_begin_ = CPUTime();
    slept = {};
  }

  /*!
   * \brief After a region, sleep if the burst is over and another process needs the CPU.
   * \param no_rest_before Until when the primary thread needs the workers.
   */
  void End(Clock::time_point no_rest_before) {
    const Clock::time_point now = Clock::now();
    if (now - begin_ < kBurst) return;
    if (now >= rests_until_) {
      const Seconds time = now - begin_ - slept;
      time_ += time;
      lost_ += time - (CPUTime() - cpu_begin_);
      if (time_ >= kWindow) {
        if (lost_ >= kLostShare * time_) {
          rests_ = now - rests_until_ < kMostRests ? std::min(2 * rests_, kMostRests) : kRests;
          rests_until_ = now + rests_;
        }
        // What was long ago counts less and less.
        time_ /= 2;
        lost_ /= 2;
      }
    }
    if (now < rests_until_ && now > no_rest_before) std::this_thread::sleep_for(kRest);
    Begin();
  }

 private:
  using Seconds = std::chrono::duration<double>;

  Clock::time_point begin_{}, rests_until_{};
  std::chrono::nanoseconds cpu_begin_{};
  std::chrono::milliseconds rests_{kRests};
  Seconds time_{}, lost_{};
};

}  // namespace

TeamPlace& TeamPlace::OfThread() {
  static thread_local TeamPlace place;
  return place;
}

Team::Team(int size) : slots_(size), calm_counts_(kCalmCounts) {
  try {
    for (int i = 1; i < size; ++i) {
      workers_.push_back(StartThread([this, i]() { Work(i); }));
    }
  } catch (...) {
    Stop();
    throw;
  }
}

Team::~Team() { Stop(); }

void Team::Stop() {
  stops_ = true;
  ++region_;
  Wake(&region_);
  for (std::thread& worker : workers_) worker.join();
}

void Team::Start(Function function, void* data, int size, int max_threads) {
  in_region_.lock();
  function_ = function;
  data_ = data;
  size_ = size;
  max_threads_ = max_threads;
  const uint32_t region = region_.load(std::memory_order_relaxed) + 1;
  if (region % kRegionsPerCount == 0) LookForPreemption();
  primary_cpu_.store(sched_getcpu(), std::memory_order_relaxed);
  unfinished_.store(size, std::memory_order_relaxed);
  // A worker that is late and still thinks of an earlier region finds no index of that one.
  for (int i = 1; i < size; ++i) slots_[i].state.store(2 * region, std::memory_order_release);
  region_.store(region);
  // After the store above, and a worker reads it after it has said that it sleeps.
  if (sleeps_.load() && sleeps_.exchange(false)) Wake(&region_);
  TeamPlace::OfThread() = {this, 0};
}

void Team::LookForPreemption() {
  rusage usage{};
  if (getrusage(RUSAGE_THREAD, &usage) != 0) return;
  if (usage.ru_nivcsw != preemptions_) {
    preemptions_ = usage.ru_nivcsw;
    const Clock::time_point now = Clock::now();
    if (now - preempted_at_ < kCrowdedPeriod) {
      crowded_until_.store(now + kCrowded, std::memory_order_relaxed);
    }
    preempted_at_ = now;
    if (calm_counts_ < kCalmCounts) is_contended_.store(true, std::memory_order_relaxed);
    calm_counts_ = 0;
  } else if (calm_counts_ < kCalmCounts && ++calm_counts_ == kCalmCounts) {
    is_contended_.store(false, std::memory_order_relaxed);
  }
}

void Team::Finish() {
  TeamPlace::OfThread() = {};
  CountDown();
  const uint32_t region = region_.load(std::memory_order_relaxed);
  for (int i = 1; i < size_; ++i) {
    if (Claim(i, region)) Compute(i);
  }
  const std::lock_guard<std::mutex> ends(in_region_, std::adopt_lock);
  if (Spin(kFinishSpin, [this]() { return unfinished_.load(std::memory_order_acquire) == 0; })) {
    return;
  }
  uint32_t left = unfinished_.fetch_or(kSleeps) | kSleeps;
  while (left != kSleeps) {
    Sleep(&unfinished_, left);
    left = unfinished_.load(std::memory_order_acquire);
  }
}

void Team::Barrier() {
  const uint32_t barrier = barrier_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<uint32_t>(size_)) {
    arrived_.store(0, std::memory_order_relaxed);
    barrier_.store(barrier + 1);
    Wake(&barrier_);
    return;
  }
  const auto is_over = [&]() { return barrier_.load(std::memory_order_acquire) != barrier; };
  if (Spin(kFinishSpin, is_over)) return;
  while (!is_over()) Sleep(&barrier_, barrier);
}

void Team::Work(int worker) {
  pthread_setname_np(pthread_self(), "dnnl-team");
  Affinity affinity;
  Bursts bursts;
  uint32_t region = 0;
  for (;;) {
    const auto is_new = [&]() { return region_.load(std::memory_order_acquire) != region; };
    const auto spin = [this]() {
      return is_contended_.load(std::memory_order_relaxed) ? kContendedWorkerSpin : kWorkerSpin;
    };
    while (!Spin(spin(), is_new)) {
      sleeps_.store(true);
      if (region_.load() == region) Sleep(&region_, region);
      bursts.Begin();
    }
    region = region_.load(std::memory_order_acquire);
    if (stops_.load()) return;
    affinity.Leave(primary_cpu_.load(std::memory_order_relaxed));
    // Its own index first, whose data its caches may have.
    const int size = max_size();
    for (int i = 0; i < size; ++i) {
      const int index = (worker + i) % size;
      if (index > 0 && Claim(index, region)) Compute(index);
    }
    bursts.End(crowded_until_.load(std::memory_order_relaxed));
  }
}

bool Team::Claim(int index, uint32_t region) {
  std::atomic<uint32_t>& state = slots_[index].state;
  uint32_t open = 2 * region;
  return state.load(std::memory_order_relaxed) == open &&
         state.compare_exchange_strong(open, open + 1, std::memory_order_acquire);
}

void Team::Compute(int index) {
  TeamPlace::OfThread() = {this, index};
  function_(data_);
  TeamPlace::OfThread() = {};
  CountDown();
}

void Team::CountDown() {
  if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) - 1 == kSleeps) Wake(&unfinished_);
}

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // __linux__
