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
 * \file src/runtime/contrib/dnnl/core/exec/fork.h
 * \brief Running in a process that was forked from one whose threads had computed.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_EXEC_FORK_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_EXEC_FORK_H_

#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>

namespace tvm::runtime::contrib::dnnl_backend {

/*!
 * \brief Whether the calling thread came through a fork.
 *
 * It is the only one that did. GNU's OpenMP keeps the threads that help one in a list of that one,
 * does not notice that they are gone, and waits for them forever.
 */
bool IsForked();

/*! \brief How many forks lie between the first process and this one. */
int NumForks();

/*!
 * \brief A mutex that nobody holds in a process that was just forked: who forks waits until it is
 * free, with all others of its kind.
 *
 * It is for moments. Who holds one must not want another one, nor make or destroy one.
 */
class ForkSafeMutex {
 public:
  ForkSafeMutex();
  ~ForkSafeMutex();
  ForkSafeMutex(const ForkSafeMutex&) = delete;
  ForkSafeMutex& operator=(const ForkSafeMutex&) = delete;
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

/*!
 * \brief As long as one lives, no process is forked: who wants to waits.
 *
 * Primitives are made so. oneDNN keeps them in a cache, whose lock a child would find held for
 * ever, and in which it would wait for the primitive that another thread was making.
 */
class NoForkScope {
 public:
  NoForkScope();
  ~NoForkScope();
  NoForkScope(const NoForkScope&) = delete;
  NoForkScope& operator=(const NoForkScope&) = delete;
};

/*! \brief Call a function on a thread that OpenMP does not know yet, and wait for it. */
void CallOnNewThread(const std::function<void()>& function);

/*! \brief What to look at where no more threads can be started. */
inline constexpr const char* kLimitsOnThreads =
    "The limits on threads (ulimit -u, the container's pids) and on memory (ulimit -v) are those "
    "to look at";

/*! \brief Start a thread; an error that says what may be in the way where there can be none. */
std::thread StartThread(const std::function<void()>& function);

/*!
 * \brief Call a function that runs or makes primitives.
 *
 * Servers that load a model and then fork their workers depend on it. What the function throws
 * comes through.
 */
template <typename Function>
auto CallWithOpenMP(const Function& function) -> decltype(function()) {
  using Result = decltype(function());
  if (!IsForked()) return function();
  if constexpr (std::is_void_v<Result>) {
    CallOnNewThread(function);
  } else {
    std::optional<Result> result;
    CallOnNewThread([&]() { result = function(); });
    return *std::move(result);
  }
}

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_EXEC_FORK_H_
