// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/dnnl/tvm/json_runtime_test.cc
 * \brief The module of a subgraph: bad arguments, and several threads.
 */
#include <tvm/runtime/container/array.h>
#include <tvm/runtime/container/string.h>
#include <tvm/runtime/module.h>
#include <tvm/runtime/registry.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/cpp-runtime/harness/arrays.h"
#include "tests/cpp-runtime/harness/test.h"

namespace dnnl_test::json_runtime {

using namespace tvm::runtime;  // NOLINT(build/namespaces)
using tvm_test::Floats;
using tvm_test::Values;

/*! \brief y = relu(x + c) of four elements, or of any number. */
Module AddRelu(const std::string& size = "4") {
  const std::string type = R"("shape": [[[SIZE]]], "dtype": [["float32"]])";
  std::string text = R"({
  "nodes": [
    {"op": "input", "name": "x", "attrs": {TYPE}},
    {"op": "const", "name": "c", "attrs": {"shape": [[[1]]], "dtype": [["float32"]]}},
    {"op": "kernel", "name": "add", "inputs": [[0, 0, 0], [1, 0, 0]],
     "attrs": {"num_inputs": "2", "num_outputs": "1", TYPE}},
    {"op": "kernel", "name": "nn.relu", "inputs": [[2, 0, 0]],
     "attrs": {"num_inputs": "1", "num_outputs": "1", TYPE}}
  ],
  "arg_nodes": [0, 1], "heads": [[3, 0, 0]], "node_row_ptr": [0, 1, 2, 3, 4]
})";
  for (const auto& [word, value] :
       {std::make_pair(std::string("TYPE"), type), std::make_pair(std::string("SIZE"), size)}) {
    for (size_t at = text.find(word); at != std::string::npos; at = text.find(word)) {
      text.replace(at, word.size(), value);
    }
  }
  const PackedFunc* create = Registry::Get("runtime.DNNLJSONRuntimeCreate");
  return (*create)(String("sym"), String(text), Array<String>{"c"});
}

void Init(Module module) { module.GetFunction("__init_sym")(Array<NDArray>{Floats({1})}); }

TEST(DNNLJSONRuntime, ArgumentsThatAreDamaged) {
  Module module = AddRelu();
  Init(module);
  PackedFunc run = module.GetFunction("sym");
  NDArray x = Floats({-2, 0, 1, 2}), y = Floats({0, 0, 0, 0});
  DLTensor tensor = *x.operator->();
  tensor.ndim = -1;
  EXPECT_THROWS(run(&tensor, y), "sym: input x must be float32 [4], but is float32 of rank -1");
  tensor.ndim = 1 << 30;
  EXPECT_THROWS(run(&tensor, y), "but is float32 of rank 1073741824");
  tensor = *x.operator->();
  tensor.dtype.code = 77;
  EXPECT_THROWS(run(&tensor, y), "sym: input x must be float32 [4]", "[4], but is type77_32 [4]");
  tensor = *x.operator->();
  tensor.shape = nullptr;
  EXPECT_THROWS(run(&tensor, y), "but is float32 of rank 1");
  run(x, y);
  EXPECT_EQ(Values(y), (std::vector<float>{0, 1, 2, 3}));
}

/*! \brief Who looks at a plan while another thread makes it waits, or is told that there is none.
 */
TEST(DNNLJSONRuntime, IsLookedAtWhileItIsInitialised) {
  for (const std::string name : {"get_plan", "measure_primitives", "profile_primitives"}) {
    const bool is_plan = name == "get_plan";
    for (int round = 0; round < 20; ++round) {
      Module module = AddRelu();
      PackedFunc look = module.GetFunction(name);
      std::thread other([&look, is_plan]() {
        for (bool is_there = false; !is_there;) {
          try {
            const String text = is_plan ? look() : look(1);
            const char* expected = is_plan ? "\"symbol\": \"sym\"" : "\"microseconds\": ";
            EXPECT_TRUE(std::string(text).find(expected) != std::string::npos);
            is_there = true;
          } catch (const std::exception& error) {
            const std::string text = error.what();
            EXPECT_TRUE(text.find("after the first run or __init_sym") != std::string::npos);
          }
        }
      });
      Init(module);
      other.join();
    }
  }
}

/*! \brief The number after a name in a JSON text. */
int NumberOf(const std::string& text, const std::string& name) {
  const size_t at = text.find("\"" + name + "\": ");
  return at == std::string::npos ? -1 : std::stoi(text.substr(at + name.size() + 4));
}

/*! \brief Run y = relu(x + 1) on x = 0, 1, 2... and compare. */
bool IsRight(const PackedFunc& run, int size) {
  std::vector<float> values, expected;
  for (int i = 0; i < size; ++i) {
    values.push_back(static_cast<float>(i - 2));
    expected.push_back(static_cast<float>(i > 1 ? i - 1 : 0));
  }
  NDArray y = Floats(values);
  run(Floats(values), y);
  return Values(y) == expected;
}

TEST(DNNLDynamicModule, RunsAnyShape) {
  Module module = AddRelu("-1");
  EXPECT_THROWS(module.GetFunction("get_plan")(), "after the first run or __init_sym");
  Init(module);
  EXPECT_THROWS(module.GetFunction("measure_primitives")(1), "requires a run first");
  PackedFunc run = module.GetFunction("sym");
  for (int size : {4, 1, 100, 4, 7, 1}) EXPECT_TRUE(IsRight(run, size));
  const String plans = module.GetFunction("get_plan")();
  EXPECT_EQ(NumberOf(plans, "hits"), 2);
  EXPECT_EQ(NumberOf(plans, "misses"), 4);
  EXPECT_EQ(NumberOf(plans, "plan_cache_size"), 16);
  EXPECT_TRUE(std::string(plans).find("\"input_shapes\": [[1]]") <
              std::string(plans).find("\"input_shapes\": [[7]]"));
  const String measured = module.GetFunction("measure_primitives")(1);
  EXPECT_TRUE(std::string(measured).find("microseconds") != std::string::npos);
}

TEST(DNNLDynamicModule, RefusesWhatTheGraphCannotTake) {
  Module module = AddRelu("-1");
  Init(module);
  PackedFunc run = module.GetFunction("sym");
  NDArray x = Floats({1, 2}), y = Floats({0, 0});
  EXPECT_THROWS(run(NDArray::Empty({2, 1}, {kDLFloat, 32, 1}, {kDLCPU, 0}), y),
                "sym: input x must be float32 [?], but is float32 [2, 1]");
  EXPECT_THROWS(run(NDArray::Empty({2}, {kDLInt, 32, 1}, {kDLCPU, 0}), y),
                "sym: input x must be float32 [?], but is int32 [2]");
  EXPECT_THROWS(run(x), "sym: 2 inputs and outputs are expected, but 1 were passed");
  EXPECT_THROWS(run(x, Floats({0, 0, 0})), "sym: output 0 must be float32 [2]");
  EXPECT_THROWS(run(NDArray::Empty({0}, {kDLFloat, 32, 1}, {kDLCPU, 0}), y), "input x");
  EXPECT_THROWS(module.GetFunction("set_plan_cache_size")(0), "from 1 to 65536, but is 0");
  run(x, y);
  EXPECT_EQ(Values(y), (std::vector<float>{2, 3}));
}

TEST(DNNLDynamicModule, KeepsAsManyPlansAsItIsTold) {
  Module module = AddRelu("-1");
  // Before or after it is initialised.
  module.GetFunction("set_plan_cache_size")(3);
  Init(module);
  PackedFunc run = module.GetFunction("sym");
  for (int size = 1; size < 9; ++size) EXPECT_TRUE(IsRight(run, size));
  const String plans = module.GetFunction("get_plan")();
  EXPECT_TRUE(std::string(plans).find("[[6]]") != std::string::npos);
  EXPECT_TRUE(std::string(plans).find("[[5]]") == std::string::npos);
  module.GetFunction("set_plan_cache_size")(1);
  const String fewer = module.GetFunction("get_plan")();
  EXPECT_TRUE(std::string(fewer).find("[[7]]") == std::string::npos);
  EXPECT_TRUE(std::string(fewer).find("[[8]]") != std::string::npos);
  EXPECT_EQ(NumberOf(fewer, "plan_cache_size"), 1);
}

constexpr int kSummed = 64, kColumns = 48;

/*! \brief What a matrix of constants has in a place. */
float Weight(int column, int k) { return static_cast<float>(column % 3 - k % 5); }

/*! \brief Any number of rows by a constant matrix, which plans of several shapes share packed. */
Module Dense() {
  const std::string text = R"({
  "nodes": [
    {"op": "input", "name": "x", "attrs": {"shape": [[[-1, 64]]], "dtype": [["float32"]]}},
    {"op": "const", "name": "w", "attrs": {"shape": [[[48, 64]]], "dtype": [["float32"]]}},
    {"op": "kernel", "name": "nn.dense", "inputs": [[0, 0, 0], [1, 0, 0]],
     "attrs": {"num_inputs": "2", "num_outputs": "1", "shape": [[[-1, 48]]],
               "dtype": [["float32"]]}}
  ],
  "arg_nodes": [0, 1], "heads": [[2, 0, 0]], "node_row_ptr": [0, 1, 2, 3]
})";
  const PackedFunc* create = Registry::Get("runtime.DNNLJSONRuntimeCreate");
  Module module = (*create)(String("sym"), String(text), Array<String>{"w"});
  std::vector<float> weights;
  for (int i = 0; i < kColumns * kSummed; ++i) weights.push_back(Weight(i / kSummed, i % kSummed));
  module.GetFunction("__init_sym")(
      Array<NDArray>{Floats(weights).CreateView({kColumns, kSummed}, {kDLFloat, 32, 1})});
  return module;
}

/*! \brief Run it on rows of small integers and compare. */
bool IsDenseRight(const PackedFunc& run, int rows) {
  std::vector<float> values, expected;
  for (int i = 0; i < rows * kSummed; ++i) values.push_back(static_cast<float>(i % 7 - 3));
  for (int i = 0; i < rows * kColumns; ++i) {
    float sum = 0;
    for (int k = 0; k < kSummed; ++k) {
      sum += values[i / kColumns * kSummed + k] * Weight(i % kColumns, k);
    }
    expected.push_back(sum);
  }
  NDArray x = Floats(values), y = Floats(std::vector<float>(rows * kColumns));
  run(x.CreateView({rows, kSummed}, x->dtype), y.CreateView({rows, kColumns}, y->dtype));
  return Values(y) == expected;
}

/*! \brief Random shapes through a cache that is too small for them, and who looks on. */
TEST(DNNLDynamicModule, RunsOnManyThreads) {
  const char* seconds = std::getenv("DNNL_STRESS_SECONDS");
  const auto end = std::chrono::steady_clock::now() +
                   std::chrono::seconds(seconds == nullptr ? 0 : std::stoi(seconds));
  Module module = AddRelu("-1");
  module.GetFunction("set_plan_cache_size")(4);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  Init(module);
  Module dense = Dense();
  dense.GetFunction("set_plan_cache_size")(2);
  for (int seed = 0; seed < 8; ++seed) {
    threads.emplace_back([&module, &dense, &wrong, end, seed]() {
      std::mt19937 random(seed);
      PackedFunc run = module.GetFunction("sym"), get_plan = module.GetFunction("get_plan");
      PackedFunc measure = module.GetFunction("measure_primitives");
      PackedFunc run_dense = dense.GetFunction("sym");
      for (int i = 0; i < 300 || std::chrono::steady_clock::now() < end; ++i) {
        try {
          if (!IsRight(run, 1 + static_cast<int>(random() % 12))) ++wrong;
          if (i % 10 == 0 && !IsDenseRight(run_dense, 1 + static_cast<int>(random() % 12))) ++wrong;
          if (i % 50 == 0) get_plan();
          if (i % 100 == 0) measure(1);
          if (i % 70 == 0) module.GetFunction("set_plan_cache_size")(1 + seed);
        } catch (const std::exception& error) {
          std::cerr << error.what() << std::endl;
          ++wrong;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(DNNLJSONRuntime, NamesThatAreNoText) {
  const PackedFunc* create = Registry::Get("runtime.DNNLJSONRuntimeCreate");
  const std::string type = R"("shape": [[[4]]], "dtype": [["float32"]])";
  const auto text = [&](const std::string& op) {
    return R"({"nodes": [{"op": "input", "name": "x", "attrs": {)" + type +
           R"(}}, {"op": "kernel", "name": ")" + op + R"(", "inputs": [[0, 0, 0]], "attrs": {)" +
           R"("num_inputs": "1", "num_outputs": "1", )" + type +
           R"(}}], "arg_nodes": [0], "heads": [[1, 0, 0]], "node_row_ptr": [0, 1, 2]})";
  };
  const String symbol = "s\"\n\xff";
  Module module = (*create)(symbol, String(text("nn.relu\xfe")), Array<String>{});
  EXPECT_THROWS(module.GetFunction("__init_" + symbol)(Array<NDArray>{}), "s\"\n\\xff",
                "no op nn.relu\\xfe");
  EXPECT_THROWS(module.GetFunction("__init_" + symbol)(), "__init_s\"\n\\xff takes one");
  module = (*create)(symbol, String(text("nn.relu")), Array<String>{});
  module.GetFunction("__init_" + symbol)(Array<NDArray>{});
  const String plan = module.GetFunction("get_plan")();
  EXPECT_TRUE(std::string(plan).find(R"({"symbol": "s\"\n\\xff", )") == 0);
}

}  // namespace dnnl_test::json_runtime
