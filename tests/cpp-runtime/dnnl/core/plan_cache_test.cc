// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/dnnl/core/plan_cache_test.cc
 * \brief The cache of plans: which stay, what threads wait for, and what a plan is made for.
 */
#include "src/runtime/contrib/dnnl/core/plan/plan_cache.h"

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "src/runtime/contrib/dnnl/core/exec/profile.h"
#include "tests/cpp-runtime/harness/test.h"

namespace dnnl_test::plan_cache {

using namespace tvm::runtime::contrib::dnnl_backend;  // NOLINT(build/namespaces)

using Cache = BuildCache<int, int>;

/*! \brief What a cache holds, the one that was used last first. */
std::vector<int> Held(const Cache& cache) {
  std::vector<int> held;
  for (const auto& value : cache.values()) held.push_back(*value);
  return held;
}

/*! \brief The value of a key, which is the key. */
std::shared_ptr<int> Get(Cache* cache, int key) {
  return cache->Get(key, [key]() { return std::make_shared<int>(key); });
}

/*! \brief A gate that threads wait at. */
class Gate {
 public:
  void Open() {
    std::lock_guard<std::mutex> lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }
  void Pass() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this]() { return is_open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_{false};
};

TEST(DNNLBuildCache, DropsWhatWasUsedLongestAgo) {
  Cache cache(3);
  for (int key : {1, 2, 3, 1, 4}) Get(&cache, key);
  EXPECT_EQ(Held(cache), (std::vector<int>{4, 1, 3}));
  Get(&cache, 3);
  Get(&cache, 2);
  EXPECT_EQ(Held(cache), (std::vector<int>{2, 3, 4}));
  EXPECT_EQ(cache.counts().hits, 2u);
  EXPECT_EQ(cache.counts().misses, 5u);
}

TEST(DNNLBuildCache, TakesAnotherSize) {
  Cache cache(4);
  for (int key : {1, 2, 3, 4}) Get(&cache, key);
  cache.SetCapacity(2);
  EXPECT_EQ(Held(cache), (std::vector<int>{4, 3}));
  cache.SetCapacity(3);
  Get(&cache, 5);
  EXPECT_EQ(Held(cache), (std::vector<int>{5, 4, 3}));
  EXPECT_EQ(cache.capacity(), 3u);
}

TEST(DNNLBuildCache, DropsWhatHasTooManyBytes) {
  Cache cache(100, 10, [](const int& value) { return static_cast<size_t>(value); });
  for (int key : {1, 2, 3, 4}) Get(&cache, key);
  EXPECT_EQ(Held(cache), (std::vector<int>{4, 3, 2, 1}));
  Get(&cache, 5);
  EXPECT_EQ(Held(cache), (std::vector<int>{5, 4}));
  // The last one stays, however large.
  Get(&cache, 11);
  EXPECT_EQ(Held(cache), std::vector<int>{11});
  Get(&cache, 1);
  EXPECT_EQ(Held(cache), std::vector<int>{1});
}

TEST(DNNLBuildCache, LeavesWhatIsInUseAlive) {
  Cache cache(1);
  const std::shared_ptr<int> first = Get(&cache, 1);
  Get(&cache, 2);
  EXPECT_EQ(first.use_count(), 1);
  EXPECT_EQ(*first, 1);
  EXPECT_TRUE(Get(&cache, 1) != first);
}

TEST(DNNLBuildCache, KeepsNoFailureAndDropsNothingForOne) {
  Cache cache(2);
  Get(&cache, 1);
  Get(&cache, 2);
  const auto fail = []() -> std::shared_ptr<int> { throw std::runtime_error("no memory"); };
  for (int key = 3; key < 9; ++key) EXPECT_THROWS(cache.Get(key, fail), "no memory");
  EXPECT_EQ(Held(cache), (std::vector<int>{2, 1}));
  EXPECT_EQ(*Get(&cache, 3), 3);
  EXPECT_EQ(cache.counts().misses, 9u);
}

TEST(DNNLBuildCache, BuildsOnceForManyThreads) {
  Cache cache(2);
  Gate gate;
  std::atomic<int> builds{0}, right{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&]() {
      const auto value = cache.Get(7, [&]() {
        ++builds;
        gate.Pass();
        return std::make_shared<int>(7);
      });
      if (*value == 7) ++right;
    });
  }
  // All but one wait for that one.
  while (cache.counts().hits < 7) std::this_thread::yield();
  EXPECT_EQ(Held(cache), std::vector<int>{});
  gate.Open();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(builds, 1);
  EXPECT_EQ(right, 8);
}

TEST(DNNLBuildCache, TellsAllWhoWaitOfAFailure) {
  Cache cache(2);
  Gate gate;
  std::atomic<int> told{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&]() {
      try {
        cache.Get(7, [&]() -> std::shared_ptr<int> {
          gate.Pass();
          throw std::runtime_error("no memory");
        });
      } catch (const std::runtime_error&) {
        ++told;
      }
    });
  }
  while (cache.counts().hits < 3) std::this_thread::yield();
  gate.Open();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(told, 4);
  EXPECT_EQ(*Get(&cache, 7), 7);
}

TEST(DNNLBuildCache, ServesOthersDuringABuild) {
  Cache cache(1);
  Get(&cache, 1);
  Gate gate;
  std::thread builder([&]() {
    cache.Get(2, [&]() {
      gate.Pass();
      return std::make_shared<int>(2);
    });
  });
  while (cache.counts().misses < 2) std::this_thread::yield();
  for (int i = 0; i < 100; ++i) EXPECT_EQ(*Get(&cache, 1), 1);
  // Another one is built meanwhile, and takes no place of what is not there yet.
  EXPECT_EQ(*Get(&cache, 3), 3);
  EXPECT_EQ(cache.counts().misses, 3u);
  gate.Open();
  builder.join();
  EXPECT_EQ(Held(cache).size(), 1u);
}

TEST(DNNLBuildCache, StaysRightUnderManyThreads) {
  Cache cache(4);
  std::atomic<int> wrong{0}, failures{0};
  std::vector<std::thread> threads;
  for (int seed = 0; seed < 8; ++seed) {
    threads.emplace_back([&cache, &wrong, &failures, seed]() {
      std::mt19937 random(seed);
      for (int i = 0; i < 2000; ++i) {
        const int key = static_cast<int>(random() % 9);
        if (key == 8 && i % 50 == 0) cache.SetCapacity(1 + random() % 6);
        try {
          const auto value = cache.Get(key, [key, &random]() {
            if (random() % 10 == 0) throw std::runtime_error("no memory");
            return std::make_shared<int>(key);
          });
          if (*value != key) ++wrong;
        } catch (const std::runtime_error&) {
          ++failures;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(failures > 0);
  EXPECT_TRUE(cache.values().size() <= cache.capacity());
  EXPECT_EQ(cache.counts().hits + cache.counts().misses, 16000u);
}

constexpr DLDataType kFloat{kDLFloat, 32, 1};

/*! \brief y = x + w, x of shape (?, 4, ?) and w of shape (?, 4, 1). */
Graph AddGraph() {
  Graph graph;
  graph.symbol = graph.name = "main";
  const TensorType x{{kOpen, 4, kOpen}, kFloat}, w{{kOpen, 4, 1}, kFloat};
  graph.inputs = {{{0, 0}, {"input x", x}}, {{1, 0}, {"input w", w}}};
  graph.nodes = {{2, "add", {}, {{0, 0}, {1, 0}}, {x}}};
  graph.outputs = {{{2, 0}, {"output 0", x}}};
  return graph;
}

TEST(DNNLPlanCache, MakesPlansForTheOpenDimensions) {
  const auto plan = MakePlanFor(AddGraph(), {2, 3, 2});
  ASSERT_EQ(plan->arguments.size(), 3u);
  EXPECT_EQ(plan->arguments[0].type.shape, (std::vector<int64_t>{2, 4, 3}));
  EXPECT_EQ(plan->arguments[1].type.shape, (std::vector<int64_t>{2, 4, 1}));
  EXPECT_EQ(plan->arguments[2].type.shape, (std::vector<int64_t>{2, 4, 3}));
  EXPECT_THROWS(MakePlanFor(AddGraph(), {2, 3, 2, 9}), "3 dimensions are open", "4 sizes");
  // Two batches that differ cannot be added.
  EXPECT_THROWS(MakePlanFor(AddGraph(), {2, 3, 5}), "main, node 2 add");
  EXPECT_THROWS(MakePlanFor(AddGraph(), {0, 3, 0}), "main: input x", "size zero");
}

TEST(DNNLPlanCache, IsDescribedAsJSON) {
  const Graph graph = AddGraph();
  PlanCache plans(5);
  for (int64_t batch : {1, 2, 1}) {
    const auto ready = plans.Get({batch, 3, batch}, [&]() {
      return std::make_shared<ReadyPlan>(MakePlanFor(graph, {batch, 3, batch}));
    });
    ready->contexts.Return(ready->contexts.Take());
  }
  const std::string text = DescribePlans(graph, plans);
  const size_t first = text.find("\"input_shapes\": [[1, 4, 3], [1, 4, 1]], \"contexts\": 1");
  const size_t second = text.find("\"input_shapes\": [[2, 4, 3], [2, 4, 1]]");
  EXPECT_TRUE(first != std::string::npos && second != std::string::npos && first < second);
  for (const char* part : {"{\"symbol\": \"main\", \"plan_cache_size\": 5, ",
                           "\"hits\": 1, \"misses\": 2, \"bytes\": ", "\"op\": \"add\""}) {
    if (!EXPECT_TRUE(text.find(part) != std::string::npos)) std::cerr << text << std::endl;
  }
}

/*! \brief A convolution of 16 channels, of an open batch. */
Graph ConvGraph(std::vector<float>* weights) {
  Graph graph;
  graph.symbol = graph.name = "main";
  const TensorType x{{kOpen, 16, 8, 8}, kFloat}, w{{16, 16, 3, 3}, kFloat};
  graph.inputs = {{{0, 0}, {"input x", x}}};
  graph.constants = {{{{1, 0}, {"w", w}}, {weights->data(), [](void*) {}}}};
  Node node{2, "nn.conv2d", {}, {{0, 0}, {1, 0}}, {x}};
  node.attrs["padding"] = std::vector<std::string>{"1", "1"};
  graph.nodes = {node};
  graph.outputs = {{{2, 0}, {"output 0", x}}};
  return graph;
}

/*! \brief The weights of a plan, the only constant that it keeps. */
std::shared_ptr<void> WeightsOf(const Plan& plan) {
  std::shared_ptr<void> constant;
  for (const Buffer& buffer : plan.buffers) {
    if (buffer.kind == BufferKind::kConstant && buffer.data != nullptr) constant = buffer.data;
  }
  return constant;
}

TEST(DNNLPlanCache, FindsPackedWeightsBeforeTheyArePacked) {
  std::vector<float> weights(16 * 16 * 9, 1);
  const Graph graph = ConvGraph(&weights), of_other_module = ConvGraph(&weights);
  auto one = MakePlanFor(graph, {1});
  const void* packed = WeightsOf(*one).get();
  if (packed == weights.data()) return;  // This CPU's code reads them as they are.
  // Who looked at the numbers would find others.
  weights.assign(weights.size(), 2);
  auto two = MakePlanFor(graph, {2});
  EXPECT_TRUE(WeightsOf(*two).get() == packed);
  EXPECT_EQ(static_cast<const float*>(packed)[0], 1);
  EXPECT_EQ(two->constant_bytes_shared, two->constant_bytes);
  // The same memory, which was written to before that module was there.
  const auto other = MakePlanFor(of_other_module, {2});
  EXPECT_EQ(static_cast<const float*>(WeightsOf(*other).get())[0], 2);
  // What no plan has any more is packed again.
  one.reset();
  two.reset();
  const auto again = MakePlanFor(graph, {1});
  EXPECT_EQ(static_cast<const float*>(WeightsOf(*again).get())[0], 2);
}

/*! \brief Rows of an open number by a constant matrix that begins at an odd address. */
TEST(DNNLPlanCache, OneRowAndManyShareWeightsOfAnyAddress) {
  constexpr int64_t kInputs = 48, kColumns = 128;
  std::vector<char> bytes(kInputs * kColumns * sizeof(float) + 1);
  void* unaligned = bytes.data() + 1;
  for (int64_t i = 0; i < kInputs * kColumns; ++i) {
    const auto value = static_cast<float>(i % 7 - 3);
    std::memcpy(static_cast<char*>(unaligned) + i * sizeof(float), &value, sizeof(float));
  }
  Graph graph;
  graph.symbol = graph.name = "main";
  graph.has_other_shapes = true;
  const TensorType x{{kOpen, kInputs}, kFloat}, w{{kColumns, kInputs}, kFloat};
  const TensorType y{{kOpen, kColumns}, kFloat};
  graph.inputs = {{{0, 0}, {"input x", x}}};
  graph.constants = {{{{1, 0}, {"w", w}}, {unaligned, [](void*) {}}}};
  graph.nodes = {{2, "nn.dense", {}, {{0, 0}, {1, 0}}, {y}}};
  graph.outputs = {{{2, 0}, {"output 0", y}}};
  std::vector<std::shared_ptr<const Plan>> plans;
  for (int64_t rows : {50, 1, 200}) {
    plans.push_back(MakePlanFor(graph, {rows}));
    std::vector<float> data(rows * kInputs, 1.f), result(rows * kColumns);
    Context(plans.back()).Run({data.data(), result.data()}, nullptr);
    for (int64_t i = 0; i < rows * kColumns; ++i) {
      float expected = 0;
      for (int64_t k = 0; k < kInputs; ++k) {
        expected += static_cast<float>((i % kColumns * kInputs + k) % 7 - 3);
      }
      // Sums of small integers are exact.
      if (!EXPECT_EQ(result[i], expected)) return;
    }
  }
  const bool is_blocked = plans[0]->steps[0].info.impl.rfind("brg", 0) == 0;
  if (!is_blocked || dnnl_get_effective_cpu_isa() < dnnl_cpu_isa_avx512_core) return;
  for (const auto& plan : plans) EXPECT_TRUE(WeightsOf(*plan) == WeightsOf(*plans[0]));
}

TEST(DNNLPlanCache, IsAsLargeAsTheEnvironmentSays) {
  EXPECT_EQ(DefaultPlanCacheLimits().plans, 16u);
  EXPECT_EQ(DefaultPlanCacheLimits().bytes, 1u << 30);
  setenv("TVM_DNNL_PLAN_CACHE_SIZE", "3", 1);
  setenv("TVM_DNNL_PLAN_CACHE_MB", "20", 1);
  EXPECT_EQ(DefaultPlanCacheLimits().plans, 3u);
  EXPECT_EQ(DefaultPlanCacheLimits().bytes, 20u << 20);
  setenv("TVM_DNNL_PLAN_CACHE_SIZE", "many", 1);
  EXPECT_THROWS(DefaultPlanCacheLimits(), "TVM_DNNL_PLAN_CACHE_SIZE must be a number of plans");
  unsetenv("TVM_DNNL_PLAN_CACHE_SIZE");
  setenv("TVM_DNNL_PLAN_CACHE_MB", "0", 1);
  EXPECT_THROWS(DefaultPlanCacheLimits(), "TVM_DNNL_PLAN_CACHE_MB must be a number of megabytes");
  unsetenv("TVM_DNNL_PLAN_CACHE_MB");
}

TEST(DNNLPlanCache, CountsWhatRunsWrite) {
  std::vector<float> weights(16 * 16 * 9, 1);
  ReadyPlan ready(MakePlanFor(ConvGraph(&weights), {4}));
  const size_t unused = BytesOf(ready);
  const size_t of_a_run = ready.plan->arena_bytes + ready.plan->scratchpad_bytes;
  EXPECT_TRUE(unused > 0 && of_a_run > 0);
  auto one = ready.contexts.Take();
  auto two = ready.contexts.Take();
  EXPECT_EQ(BytesOf(ready), unused + 2 * of_a_run);
  ready.contexts.Return(std::move(one));
  ready.contexts.Return(std::move(two));
  ready.contexts.Return(ready.contexts.Take());
  EXPECT_EQ(BytesOf(ready), unused + 2 * of_a_run);
}

}  // namespace dnnl_test::plan_cache
