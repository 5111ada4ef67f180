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
 * \file src/runtime/contrib/dnnl/core/exec/recorder.cc
 * \brief Takes down how long the primitives of runs take, for a profiler that watches them.
 */
#include "recorder.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

// All that a run reads. A shared pointer would have each thread that runs register a destructor.
thread_local Recorder* watcher = nullptr;
// Keeps it alive: a profiler that failed half-way may end its watch late, and on another thread.
thread_local std::shared_ptr<Recorder> keep_watcher;

}  // namespace

Recorder::Watch::Watch(std::shared_ptr<Recorder> recorder) : recorder_(std::move(recorder)) {
  ++recorder_->num_watches_;
  watcher = recorder_.get();
  keep_watcher = recorder_;
}

Recorder::Watch::~Watch() {
  if (--recorder_->num_watches_ > 0 || watcher != recorder_.get()) return;
  watcher = nullptr;
  keep_watcher.reset();
}

Recorder* Recorder::OfThread() {
  return watcher != nullptr && watcher->num_watches_ > 0 ? watcher : nullptr;
}

void Recorder::Announce(std::string caller) {
  std::lock_guard<std::mutex> lock(mutex_);
  caller_ = std::move(caller);
}

std::string Recorder::TakeCaller() {
  std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(caller_, {});
}

void Recorder::Add(RecordedStep step) {
  std::lock_guard<std::mutex> lock(mutex_);
  steps_.push_back(std::move(step));
}

void Recorder::Clear() {
  std::lock_guard<std::mutex> lock(mutex_);
  caller_.clear();
  steps_.clear();
}

size_t Recorder::size() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return steps_.size();
}

std::vector<RecordedStep> Recorder::Since(size_t first) const {
  std::lock_guard<std::mutex> lock(mutex_);
  if (first >= steps_.size()) return {};
  return std::vector<RecordedStep>(steps_.begin() + first, steps_.end());
}

}  // namespace tvm::runtime::contrib::dnnl_backend
