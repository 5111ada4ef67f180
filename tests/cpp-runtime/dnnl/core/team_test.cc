// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/dnnl/core/team_test.cc
 * \brief Teams: who computes an index, and that no region waits for a thread that does not run.
 */
#include "src/runtime/contrib/dnnl/core/exec/team/team.h"

#ifdef __linux__

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "tests/cpp-runtime/harness/test.h"

namespace dnnl_test::team {

using tvm::runtime::contrib::dnnl_backend::Team;
using tvm::runtime::contrib::dnnl_backend::TeamPlace;

using Body = std::function<void(int)>;

/*! \brief Compute a region as a compiler has it done. */
void Run(Team* team, int size, const Body& body) {
  const auto call = [](void* data) {
    (*static_cast<const Body*>(data))(TeamPlace::OfThread().index);
  };
  void* data = const_cast<Body*>(&body);
  team->Start(call, data, size, 7);
  call(data);
  team->Finish();
}

TEST(DNNLTeam, ComputesEachIndexOnce) {
  Team team(4);
  EXPECT_EQ(team.max_size(), 4);
  std::vector<std::atomic<int>> counts(4);
  int wrong = 0;
  for (int region = 0; region < 20000; ++region) {
    const int size = 2 + region % 3;
    Run(&team, size, [&](int index) { counts[index].fetch_add(1, std::memory_order_relaxed); });
    for (int i = 0; i < 4; ++i) {
      wrong += counts[i].exchange(0, std::memory_order_relaxed) != (i < size ? 1 : 0);
    }
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(TeamPlace::OfThread().team == nullptr);
}

TEST(DNNLTeam, KnowsItsRegion) {
  Team team(3);
  std::atomic<int> right{0};
  Run(&team, 3, [&](int) {
    right += TeamPlace::OfThread().team == &team && team.size() == 3 && team.max_threads() == 7;
  });
  EXPECT_EQ(right, 3);
}

TEST(DNNLTeam, MeetsInBarriers) {
  Team team(3);
  std::vector<int> written(3);
  std::atomic<int> wrong{0};
  for (int region = 1; region <= 200; ++region) {
    Run(&team, 3, [&](int index) {
      for (int round = 0; round < 5; ++round) {
        written[index] = 10 * region + round;
        team.Barrier();
        for (int value : written) wrong += value != 10 * region + round;
        team.Barrier();
      }
    });
  }
  EXPECT_EQ(wrong, 0);
}

TEST(DNNLTeam, WakesWorkersThatSleep) {
  Team team(2);
  for (int region = 0; region < 3; ++region) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::atomic<int> arrived{0};
    // Neither index is done before both have begun, so there must be two threads.
    Run(&team, 2, [&](int) {
      ++arrived;
      while (arrived < 2) std::this_thread::yield();
    });
    EXPECT_EQ(arrived, 2);
  }
}

TEST(DNNLTeam, DoesWithoutWorkersThatDoNotRun) {
  cpu_set_t all, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
  }
  // The workers inherit that they only run while nobody else wants the CPU.
  std::unique_ptr<Team> team;
  std::thread([&]() {
    const sched_param lowest{};
    pthread_setschedparam(pthread_self(), SCHED_IDLE, &lowest);
    sched_setaffinity(0, sizeof(one), &one);
    team = std::make_unique<Team>(8);
  }).join();
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  const std::thread::id primary = std::this_thread::get_id();
  int most = 0;
  for (int region = 0; region < 20; ++region) {
    std::atomic<int> by_primary{0};
    Run(team.get(), 8, [&](int) { by_primary += std::this_thread::get_id() == primary; });
    most = std::max(most, by_primary.load());
  }
  sched_setaffinity(0, sizeof(all), &all);
  EXPECT_TRUE(most > 1);
}

TEST(DNNLTeam, ServesAsManyPrimaryThreadsAsThereAreTeams) {
  std::atomic<int> sum{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&]() {
      Team team(3);
      for (int region = 0; region < 500; ++region) Run(&team, 3, [&](int) { ++sum; });
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sum, 4 * 500 * 3);
}

}  // namespace dnnl_test::team

#endif  // __linux__
