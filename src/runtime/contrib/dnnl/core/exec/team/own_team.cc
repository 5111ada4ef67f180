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
 * \file src/runtime/contrib/dnnl/core/exec/team/own_team.cc
 * \brief The team of each thread that begins parallel regions.
 */
#ifdef __linux__

#include "own_team.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "../fork.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief The teams of all threads. */
class Teams {
 public:
  static Teams* Global() {
    // Never destroyed: threads may end after static objects.
    static auto* teams = new Teams;
    return teams;
  }

  void Add(const std::shared_ptr<Team>& team) {
    const std::lock_guard<ForkSafeMutex> lock(mutex_);
    const auto is_gone = [](const Known& known) { return known.team.expired(); };
    known_.erase(std::remove_if(known_.begin(), known_.end(), is_gone), known_.end());
    known_.push_back({team, NumForks()});
  }

  /*! \brief A team of so many threads or more; null if there is none. */
  std::shared_ptr<Team> Find(int size) {
    std::vector<Known> known;
    {
      const std::lock_guard<ForkSafeMutex> lock(mutex_);
      known = known_;
    }
    for (const Known& each : known) {
      std::shared_ptr<Team> team = each.team.lock();
      if (team != nullptr && each.num_forks == NumForks() && team->max_size() >= size) return team;
    }
    return nullptr;
  }

 private:
  struct Known {
    std::weak_ptr<Team> team;
    /*! \brief In which process its workers are. */
    int num_forks;
  };

  ForkSafeMutex mutex_;
  std::vector<Known> known_;
};

/*! \brief The team of a thread, which ends with it. */
class OwnTeam {
 public:
  ~OwnTeam() { Leave(); }

  /*! \brief The team, of so many threads or more; null if there is none and none can be started. */
  Team* Of(int size) {
    // The workers did not come through a fork.
    if (team_ != nullptr && (team_->max_size() < size || num_forks_ != NumForks())) Leave();
    if (team_ == nullptr || (is_borrowed_ && Clock::now() >= retry_at_)) Start(size);
    return team_.get();
  }

 private:
  using Clock = std::chrono::steady_clock;
  /*! \brief How long a borrowed team is used before the next attempt to start one. */
  static constexpr std::chrono::seconds kRetry{1};

  void Start(int size) {
    num_forks_ = NumForks();
    try {
      auto team = std::make_shared<Team>(size);
      Teams::Global()->Add(team);
      team_ = std::move(team);
      is_borrowed_ = false;
    } catch (...) {
      if (team_ == nullptr) team_ = Teams::Global()->Find(size);
      is_borrowed_ = true;
      retry_at_ = Clock::now() + kRetry;
    }
  }

  void Leave() {
    if (num_forks_ != NumForks()) {
      // Workers do not survive a fork; leak the team instead of joining.
      static_cast<void>(new std::shared_ptr<Team>(std::move(team_)));
    }
    team_ = nullptr;
  }

  std::shared_ptr<Team> team_;
  int num_forks_{0};
  bool is_borrowed_{false};
  Clock::time_point retry_at_{};
};

}  // namespace

Team* TeamOfThread(int size) {
  static thread_local OwnTeam own;
  return own.Of(size);
}

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // __linux__
