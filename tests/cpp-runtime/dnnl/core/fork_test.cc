// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/dnnl/core/fork_test.cc
 * \brief Threads that cannot be started, and processes that are forked while others are at work.
 */
#include "src/runtime/contrib/dnnl/core/exec/fork.h"

#ifdef __GLIBC__
#include <pthread.h>
#endif
#ifndef _WIN32
#include <sys/wait.h>
#include <unistd.h>
#endif

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "src/runtime/contrib/dnnl/core/build_cache.h"
#include "src/runtime/contrib/dnnl/core/lowering.h"
#include "tests/cpp-runtime/harness/test.h"

namespace dnnl_test::forked {

using namespace tvm::runtime::contrib::dnnl_backend;  // NOLINT(build/namespaces)

#ifdef __GLIBC__
TEST(DNNLThread, ThatCannotBeStartedIsAnErrorThatSaysWhy) {
  pthread_attr_t before, huge;
  pthread_getattr_default_np(&before);
  pthread_attr_init(&huge);
  // More than there are addresses.
  pthread_attr_setstacksize(&huge, size_t{1} << 47);
  pthread_setattr_default_np(&huge);
  EXPECT_THROWS(StartThread([]() {}), "a thread for oneDNN cannot be started", "ulimit -u");
  pthread_setattr_default_np(&before);
  pthread_attr_destroy(&huge);
  pthread_attr_destroy(&before);
  bool ran = false;
  StartThread([&ran]() { ran = true; }).join();
  EXPECT_TRUE(ran);
}
#endif

#ifndef _WIN32
/*! \brief Fork, and say whether a child gives back true in ten seconds. */
template <typename Function>
bool IsTrueInChild(const Function& function) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);
    _exit(function() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

using Cache = BuildCache<int, int>;

/*! \brief Whether a cache gives the value of a key, which is the key. */
bool Gives(Cache* cache, int key) {
  return *cache->Get(key, [key]() { return std::make_shared<int>(key); }) == key;
}

TEST(DNNLFork, AnotherThreadBuildsWhatTheChildWants) {
  Cache cache(4);
  Gives(&cache, 1);
  std::promise<void> is_building, may_end;
  std::thread builder([&]() {
    cache.Get(2, [&]() {
      is_building.set_value();
      may_end.get_future().wait();
      return std::make_shared<int>(2);
    });
  });
  is_building.get_future().wait();
  EXPECT_TRUE(IsTrueInChild([&]() {
    const bool is_there = Gives(&cache, 2) && Gives(&cache, 1);
    // It is built once, and what was there before the fork is there yet.
    return is_there && Gives(&cache, 2) && cache.counts().misses == 3;
  }));
  may_end.set_value();
  builder.join();
  EXPECT_TRUE(Gives(&cache, 2));
  EXPECT_EQ(cache.counts().misses, 2u);
}

TEST(DNNLFork, AnotherThreadIsAmidACache) {
  Cache cache(4);
  std::atomic<bool> is_over{false};
  std::vector<std::thread> others;
  for (int i = 0; i < 2; ++i) {
    others.emplace_back([&]() {
      for (int key = 0; !is_over; key = (key + 1) % 6) {
        Gives(&cache, key);
        cache.values();
      }
    });
  }
  int wrong = 0;
  for (int i = 0; i < 50 && wrong == 0; ++i) {
    wrong += !IsTrueInChild([&]() { return Gives(&cache, 1) && Gives(&cache, 7); });
  }
  is_over = true;
  for (std::thread& other : others) other.join();
  EXPECT_EQ(wrong, 0);
}

/*! \brief A convolution of so many channels, for which oneDNN has no code yet. */
Graph ConvGraph(int64_t channels) {
  Graph graph;
  graph.symbol = graph.name = "main";
  const DLDataType type{kDLFloat, 32, 1};
  const TensorType x{{1, channels, 14, 14}, type}, w{{channels, channels, 3, 3}, type};
  graph.inputs = {{{0, 0}, {"input x", x}}, {{1, 0}, {"input w", w}}};
  Node node{2, "nn.conv2d", {}, {{0, 0}, {1, 0}}, {x}};
  node.attrs["padding"] = std::vector<std::string>{"1", "1"};
  graph.nodes = {node};
  graph.outputs = {{{2, 0}, {"output 0", x}}};
  return graph;
}

TEST(DNNLFork, AnotherThreadMakesThePrimitiveThatTheChildWants) {
  std::atomic<bool> is_over{false};
  std::atomic<int> channels{1};
  std::thread builder([&]() {
    for (; !is_over; ++channels) MakePlan(ConvGraph(channels));
  });
  int wrong = 0;
  for (int i = 0; i < 20 && wrong == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::microseconds(700 * i));
    wrong += !IsTrueInChild([&]() {
      CallWithOpenMP([&]() { MakePlan(ConvGraph(channels)); });
      return true;
    });
  }
  is_over = true;
  builder.join();
  EXPECT_EQ(wrong, 0);
}
#endif

}  // namespace dnnl_test::forked
