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
 * \file src/runtime/contrib/dnnl/core/exec/fork.cc
 * \brief Running in a process that was forked from one whose threads had computed.
 */
#include "fork.h"

#ifndef _WIN32
#include <pthread.h>
#endif

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <set>
#include <system_error>
#include <utility>

#include "../error.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief A thread that does what another one asks for. It ends with the process. */
class Worker {
 public:
  Worker() {
    StartThread([this]() { Work(); }).detach();
  }

  void Call(const std::function<void()>& function) {
    std::unique_lock<std::mutex> lock(mutex_);
    task_ = &function;
    changed_.notify_all();
    changed_.wait(lock, [this]() { return task_ == nullptr; });
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  void Work() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this]() { return task_ != nullptr; });
      try {
        (*task_)();
      } catch (...) {
        error_ = std::current_exception();
      }
      task_ = nullptr;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void()>* task_{nullptr};
  std::exception_ptr error_;
};

thread_local bool is_forked = false;
/*! \brief Always the same one, so that OpenMP's threads stay. */
thread_local Worker* worker = nullptr;

std::atomic<int> num_forks{0};

/*! \brief All that a fork waits for. */
struct Forking {
  /*! \brief Held during a fork, and to begin what is not to be forked. */
  std::mutex begin;
  /*! \brief How many scopes there are. Nobody waits for a condition, which would count him in a
   * child. */
  std::atomic<int> num_scopes{0};
  /*! \brief The locks of those below. */
  std::mutex mutex;
  std::set<ForkSafeMutex*> mutexes;

  static Forking* Global() {
    // Never destroyed: static objects may have such mutexes.
    static auto* forking = new Forking;
    return forking;
  }
};

#ifndef _WIN32
void BeforeFork() {
  Forking* forking = Forking::Global();
  forking->begin.lock();
  // Builds under way need the mutexes.
  while (forking->num_scopes > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  forking->mutex.lock();
  for (ForkSafeMutex* mutex : forking->mutexes) mutex->lock();
}

void AfterFork() {
  Forking* forking = Forking::Global();
  for (ForkSafeMutex* mutex : forking->mutexes) mutex->unlock();
  forking->mutex.unlock();
  forking->begin.unlock();
}

void AfterForkInChild() {
  is_forked = true;
  // That of the parent process, if there was one, did not come along.
  worker = nullptr;
  ++num_forks;
  AfterFork();
}

const int registered = pthread_atfork(BeforeFork, AfterFork, AfterForkInChild);
#endif

}  // namespace

std::thread StartThread(const std::function<void()>& function) {
  try {
    return std::thread(function);
  } catch (const std::system_error& error) {
    CORE_FAIL() << "a thread for oneDNN cannot be started: " << error.what() << ". "
                << kLimitsOnThreads;
  }
}

bool IsForked() { return is_forked; }

int NumForks() { return num_forks; }

ForkSafeMutex::ForkSafeMutex() {
  std::lock_guard<std::mutex> lock(Forking::Global()->mutex);
  Forking::Global()->mutexes.insert(this);
}

ForkSafeMutex::~ForkSafeMutex() {
  std::lock_guard<std::mutex> lock(Forking::Global()->mutex);
  Forking::Global()->mutexes.erase(this);
}

NoForkScope::NoForkScope() {
  std::lock_guard<std::mutex> lock(Forking::Global()->begin);
  ++Forking::Global()->num_scopes;
}

NoForkScope::~NoForkScope() { --Forking::Global()->num_scopes; }

void CallOnNewThread(const std::function<void()>& function) {
  // Never deleted: it may have to outlive all else.
  if (worker == nullptr) worker = new Worker;
  worker->Call(function);
}

}  // namespace tvm::runtime::contrib::dnnl_backend
