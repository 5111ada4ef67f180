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
 * \file src/runtime/contrib/dnnl/core/exec/recorder.h
 * \brief Takes down how long the primitives of runs take, for a profiler that watches them.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_EXEC_RECORDER_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_EXEC_RECORDER_H_

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "../plan/plan.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief One primitive that ran. */
struct RecordedStep {
  std::shared_ptr<const Plan> plan;
  size_t index;
  /*! \brief Whose plan it is, where the node of the step does not tell. */
  std::string caller;
  double microseconds;

  const Step& step() const { return plan->steps[index]; }
};

/*!
 * \brief Takes down the primitives that run on the threads that it watches.
 *
 * Threads that nobody watches look at a pointer of their own at each run, and no more.
 */
class Recorder {
 public:
  /*! \brief Watches the thread that makes it, until it goes. The watch that began last counts. */
  class Watch {
   public:
    explicit Watch(std::shared_ptr<Recorder> recorder);
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

   private:
    std::shared_ptr<Recorder> recorder_;
  };

  /*! \brief Who watches the calling thread; nullptr for nobody. */
  static Recorder* OfThread();

  /*! \brief Whose plan runs next: ops of C source with one description share a plan. */
  void Announce(std::string caller);
  /*! \brief Who was announced; empty for nobody. It is of one run. */
  std::string TakeCaller();
  void Add(RecordedStep step);
  void Clear();
  /*! \brief How many primitives there are so far. */
  size_t size() const;
  /*! \brief The primitives from an index on. */
  std::vector<RecordedStep> Since(size_t first) const;

 private:
  std::atomic<int> num_watches_{0};
  /*! \brief Watched threads may be more than one. */
  mutable std::mutex mutex_;
  std::string caller_;
  std::vector<RecordedStep> steps_;
};

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_EXEC_RECORDER_H_
