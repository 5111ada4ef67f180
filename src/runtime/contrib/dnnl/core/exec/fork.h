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

/*! \brief Call a function on a thread that OpenMP does not know yet, and wait for it. */
void CallOnNewThread(const std::function<void()>& function);

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
