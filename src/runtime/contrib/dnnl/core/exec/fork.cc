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

#include <condition_variable>
#include <exception>
#include <mutex>
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

#ifndef _WIN32
void NoteFork() {
  is_forked = true;
  // That of the parent process, if there was one, did not come along.
  worker = nullptr;
}

const int registered = pthread_atfork(nullptr, nullptr, NoteFork);
#endif

}  // namespace

std::thread StartThread(const std::function<void()>& function) {
  try {
    return std::thread(function);
  } catch (const std::system_error& error) {
    CORE_FAIL() << "a thread for oneDNN cannot be started: " << error.what()
                << ". The limits on threads (ulimit -u, the container's pids) and on memory "
                << "(ulimit -v) are those to look at";
  }
}

bool IsForked() { return is_forked; }

void CallOnNewThread(const std::function<void()>& function) {
  // Never deleted: it may have to outlive all else.
  if (worker == nullptr) worker = new Worker;
  worker->Call(function);
}

}  // namespace tvm::runtime::contrib::dnnl_backend
