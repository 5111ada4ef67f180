// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/json/runtime_test.cc
 * \brief The base class of JSON modules, by a small module that adds and rectifies floats.
 */
#include <dmlc/memory_io.h>

#include <algorithm>
#include <thread>

#include "src/runtime/contrib/json/json_runtime.h"
#include "tests/cpp-runtime/harness/arrays.h"
#include "tests/cpp-runtime/harness/test.h"

namespace json_test::runtime {

using namespace tvm::runtime;  // NOLINT(build/namespaces)
using tvm::runtime::json::JSONGraphNode;
using tvm::runtime::json::JSONRuntimeBase;
using tvm_test::Floats;
using tvm_test::Values;

/*! \brief y = relu(x + c), z = x + y; heads y, z. */
const char kGraph[] = R"({
  "symbol": "sym",
  "nodes": [
    {"op": "input", "name": "x", "attrs": {"shape": [[[4]]], "dtype": [["float32"]]}},
    {"op": "const", "name": "sym_const_0", "attrs": {"shape": [[[4]]], "dtype": [["float32"]]}},
    {"op": "kernel", "name": "add", "inputs": [[0, 0, 0], [1, 0, 0]],
     "attrs": {"num_inputs": "2", "num_outputs": "1", "shape": [[[4]]], "dtype": [["float32"]]}},
    {"op": "kernel", "name": "nn.relu", "inputs": [[2, 0, 0]],
     "attrs": {"num_inputs": "1", "num_outputs": "1", "shape": [[[4]]], "dtype": [["float32"]]}},
    {"op": "kernel", "name": "add", "inputs": [[0, 0, 0], [3, 0, 0]],
     "attrs": {"num_inputs": "2", "num_outputs": "1", "shape": [[[4]]], "dtype": [["float32"]]}}
  ],
  "arg_nodes": [0, 1],
  "heads": [[3, 0, 0], [4, 0, 0]],
  "node_row_ptr": [0, 1, 2, 3, 4, 5]
})";

/*! \brief y = x + x, without constants. */
const char kDouble[] = R"({
  "nodes": [
    {"op": "input", "name": "x", "attrs": {"shape": [[[4]]], "dtype": [["float32"]]}},
    {"op": "kernel", "name": "add", "inputs": [[0, 0, 0], [0, 0, 0]],
     "attrs": {"num_inputs": "2", "num_outputs": "1", "shape": [[[4]]], "dtype": [["float32"]]}}
  ],
  "arg_nodes": [0],
  "heads": HEADS,
  "node_row_ptr": [0, 1, 2]
})";

std::string DoubleWithHeads(const std::string& heads) {
  std::string text = kDouble;
  return text.replace(text.find("HEADS"), 5, heads);
}

const std::vector<float> kX{-3, -1, 1, 3};
const std::vector<float> kC{1, 2, 3, 4};

NDArray Output() { return Floats({-99, -99, -99, -99}); }

/*! \brief Interprets add and nn.relu. */
class ToyRuntime : public JSONRuntimeBase {
 public:
  using JSONRuntimeBase::JSONRuntimeBase;

  const char* type_key() const override { return "toy_json"; }

  void Init(const Array<NDArray>& consts) override {
    ++init_calls;
    if (fail_next_init) {
      fail_next_init = false;
      LOG(FATAL) << "Init was told to fail";
    }
    SetupConstants(consts);
  }

  void Run() override {
    std::vector<std::vector<float>> value(NumEntries());
    for (uint32_t nid = 0; nid < nodes_.size(); ++nid) {
      const JSONGraphNode& node = nodes_[nid];
      std::vector<float>& out = value[EntryID(nid, 0)];
      if (node.IsLeaf()) {
        const auto* data = static_cast<const float*>(data_entry_[EntryID(nid, 0)]->data);
        out.assign(data, data + node.GetOpShape()[0][0]);
        continue;
      }
      out = value[EntryID(node.GetInputs()[0])];
      for (size_t i = 0; i < out.size(); ++i) {
        out[i] = node.GetOpName() == "nn.relu" ? std::max(out[i], 0.0f)
                                               : out[i] + value[EntryID(node.GetInputs()[1])][i];
      }
    }
    for (const auto& output : outputs_) {
      const std::vector<float>& result = value[EntryID(output)];
      if (nodes_[output.id_].IsLeaf()) continue;  // The base class copies these.
      std::copy(result.begin(), result.end(),
                static_cast<float*>(data_entry_[EntryID(output)]->data));
    }
  }

  std::atomic<int> init_calls{0};
  std::atomic<bool> fail_next_init{false};
};

/*! \brief A module and its node, which the tests look into. */
struct Toy {
  explicit Toy(const std::string& json = kGraph, const Array<String>& names = {"sym_const_0"})
      : node(make_object<ToyRuntime>("sym", json, names)), module(node) {}

  PackedFunc operator[](const std::string& name) { return module.GetFunction(name); }
  void Init() { (*this)["__init_sym"](Array<NDArray>{Floats(kC)}); }

  tvm::runtime::ObjectPtr<ToyRuntime> node;
  Module module;
};

void CheckResult(const PackedFunc& run) {
  NDArray y = Output(), z = Output();
  run(Floats(kX), y, z);
  EXPECT_EQ(Values(y), (std::vector<float>{0, 1, 4, 7}));
  EXPECT_EQ(Values(z), (std::vector<float>{-3, 0, 5, 10}));
}

TEST(JSONRuntime, Runs) {
  Toy toy;
  int result = toy["__init_sym"](Array<NDArray>{Floats(kC)});
  EXPECT_EQ(result, 0);
  CheckResult(toy["sym"]);
}

TEST(JSONRuntime, TakesDLTensors) {
  Toy toy;
  toy.Init();
  NDArray x = Floats(kX), y = Output(), z = Output();
  DLTensor tensors[3] = {*x.operator->(), *y.operator->(), *z.operator->()};
  toy["sym"](&tensors[0], &tensors[1], &tensors[2]);
  EXPECT_EQ(Values(y), (std::vector<float>{0, 1, 4, 7}));
}

TEST(JSONRuntime, KeepsConstantsAlive) {
  Toy toy;
  {
    Array<NDArray> consts{Floats(kC)};
    toy["__init_sym"](consts);
  }
  std::vector<NDArray> others;  // Likely to land where a freed constant was.
  for (int i = 0; i < 100; ++i) others.push_back(Output());
  CheckResult(toy["sym"]);
}

TEST(JSONRuntime, AnswersWhatTVMAsks) {
  Toy toy;
  String symbol = toy["get_symbol"]();
  EXPECT_EQ(std::string(symbol), "sym");
  Array<String> names = toy["get_const_vars"]();
  ASSERT_EQ(names.size(), 1U);
  EXPECT_EQ(std::string(names[0]), "sym_const_0");
  EXPECT_TRUE(toy["other"] == nullptr);
  EXPECT_TRUE(toy["__init_other"] == nullptr);
  EXPECT_EQ(std::string(toy.module->type_key()), "toy_json");
  EXPECT_EQ(std::string(toy.module->GetSource("json")), kGraph);
  EXPECT_EQ(std::string(toy.module->GetSource("")), kGraph);
  EXPECT_EQ(std::string(toy.module->GetSource("asm")), "");
  EXPECT_EQ(toy.module->GetPropertyMask(), tvm::runtime::ModulePropertyMask::kBinarySerializable |
                                               tvm::runtime::ModulePropertyMask::kRunnable);
}

TEST(JSONRuntime, SaveAndLoad) {
  Toy toy;
  std::string binary;
  dmlc::MemoryStringStream out(&binary);
  toy.module->SaveToBinary(&out);
  dmlc::MemoryStringStream in(&binary);
  Module loaded = JSONRuntimeBase::LoadFromBinary<ToyRuntime>(static_cast<dmlc::Stream*>(&in));
  loaded.GetFunction("__init_sym")(Array<NDArray>{Floats(kC)});
  CheckResult(loaded.GetFunction("sym"));

  // The binary form is the one of TVM's other JSON modules.
  dmlc::MemoryStringStream again(&binary);
  dmlc::Stream* plain = &again;
  std::string symbol, json;
  std::vector<std::string> names;
  ASSERT_TRUE(plain->Read(&symbol) && plain->Read(&json) && plain->Read(&names));
  EXPECT_EQ(symbol, "sym");
  EXPECT_EQ(json, kGraph);
  EXPECT_EQ(names, std::vector<std::string>{"sym_const_0"});
}

TEST(JSONRuntime, DamagedBinaryIsAnError) {
  std::string binary;
  dmlc::MemoryStringStream out(&binary);
  Toy().module->SaveToBinary(&out);
  auto load = [](std::string data) {
    dmlc::MemoryStringStream in(&data);
    JSONRuntimeBase::LoadFromBinary<ToyRuntime>(static_cast<dmlc::Stream*>(&in));
  };
  // As TVM reads what a library holds: this stream throws at its end.
  auto load_fixed = [](std::string data) {
    dmlc::MemoryFixedSizeStream in(&data[0], data.size());
    JSONRuntimeBase::LoadFromBinary<ToyRuntime>(static_cast<dmlc::Stream*>(&in));
  };
  load_fixed(binary);
  for (size_t size = 0; size < binary.size(); ++size) {
    EXPECT_THROWS(load(binary.substr(0, size)), "cut off or damaged");
    EXPECT_THROWS(load_fixed(binary.substr(0, size)), "cut off or damaged");
  }
  // Lengths that no machine can hold: of the symbol, of the graph, of the list of names.
  for (size_t at : {size_t{0}, size_t{11}, binary.size() - 27}) {
    std::string huge = binary;
    huge.replace(at, 8, std::string(8, '\x7f'));
    EXPECT_THROWS(load(huge), "cut off or damaged");
    EXPECT_THROWS(load_fixed(huge), "cut off or damaged");
  }
}

TEST(JSONRuntime, ArgumentErrors) {
  Toy toy;
  toy.Init();
  NDArray x = Floats(kX), y = Output();
  EXPECT_THROWS(toy["sym"](x, y), "'sym'", "1 inputs and 2 outputs", "got 2");
  EXPECT_THROWS(toy["sym"](x, y, y, y), "got 4");
  EXPECT_THROWS(toy["sym"](), "got 0");
  EXPECT_THROWS(toy["sym"](x, y, 1), "Argument 2 of 'sym' is int");
  EXPECT_THROWS(toy["sym"]("x", y, y), "Argument 0 of 'sym'", "expected an NDArray");
  EXPECT_THROWS(toy["sym"](x, nullptr, y), "Argument 1 of 'sym'");
  EXPECT_THROWS(toy["sym"](x, y, static_cast<DLTensor*>(nullptr)), "Argument 2 of 'sym'");
  EXPECT_THROWS(toy["sym"](x, y, NDArray()), "Argument 2 of 'sym'");
  CheckResult(toy["sym"]);
}

TEST(JSONRuntime, ConstantErrors) {
  Toy toy;
  auto init = toy["__init_sym"];
  EXPECT_THROWS(init(), "one argument");
  EXPECT_THROWS(init(Array<NDArray>{}), "'sym' has 1 constants, got 0");
  EXPECT_THROWS(init(Array<NDArray>{Floats(kC), Floats(kC)}), "got 2");
  EXPECT_THROWS(init(Array<NDArray>{Floats({1, 2})}), "'sym_const_0'", "shape");
  EXPECT_THROWS(init(Array<NDArray>{NDArray::Empty({4, 1}, {kDLFloat, 32, 1}, {kDLCPU, 0})}),
                "'sym_const_0'", "shape");
  EXPECT_THROWS(init(Array<NDArray>{NDArray::Empty({4}, {kDLInt, 32, 1}, {kDLCPU, 0})}),
                "'sym_const_0'", "int32", "float32");
  // TVM has no text for it, and says so by an error.
  NDArray unknown = Floats(kC);
  const_cast<DLTensor*>(unknown.operator->())->dtype.code = 77;
  EXPECT_THROWS(init(Array<NDArray>{unknown}), "'sym_const_0'", "unknown code 77", "float32");
  EXPECT_THROWS(init(Array<NDArray>{NDArray()}), "null");
  EXPECT_THROWS(toy["sym"](Floats(kX), Output(), Output()), "not initialised", "__init_sym");
  toy.Init();
  CheckResult(toy["sym"]);
}

TEST(JSONRuntime, FailedInitCanBeTriedAgain) {
  Toy toy;
  toy.node->fail_next_init = true;
  EXPECT_THROWS(toy.Init(), "told to fail");
  EXPECT_THROWS(toy["sym"](Floats(kX), Output(), Output()), "not initialised");
  toy.Init();
  EXPECT_EQ(toy.node->init_calls, 2);
  CheckResult(toy["sym"]);
}

TEST(JSONRuntime, NeedsNoInitWithoutConstants) {
  Toy toy(DoubleWithHeads("[[1, 0, 0]]"), {});
  NDArray y = Output();
  toy["sym"](Floats(kX), y);
  toy["sym"](Floats(kX), y);
  EXPECT_EQ(Values(y), (std::vector<float>{-6, -2, 2, 6}));
  EXPECT_EQ(toy.node->init_calls, 1);
}

TEST(JSONRuntime, OutputsThatAreInputsOrRepeated) {
  Toy toy(DoubleWithHeads("[[0, 0, 0], [1, 0, 0], [1, 0, 0]]"), {});
  NDArray same = Output(), y = Output(), again = Output();
  toy["sym"](Floats(kX), same, y, again);
  EXPECT_EQ(Values(same), kX);
  EXPECT_EQ(Values(y), (std::vector<float>{-6, -2, 2, 6}));
  EXPECT_EQ(Values(again), Values(y));
}

TEST(JSONRuntime, OutputThatIsAConstant) {
  std::string json = kGraph;
  json.replace(json.find("[[3, 0, 0], [4, 0, 0]]"), 22, "[[3, 0, 0], [1, 0, 0]]");
  Toy toy(json);
  toy.Init();
  NDArray y = Output(), c = Output();
  toy["sym"](Floats(kX), y, c);
  EXPECT_EQ(Values(y), (std::vector<float>{0, 1, 4, 7}));
  EXPECT_EQ(Values(c), kC);
}

TEST(JSONRuntime, ConstructorRefusesBadGraphs) {
  EXPECT_THROWS(Toy("{"), "'sym'");
  EXPECT_THROWS(Toy(kGraph, {}), "'sym_const_0'");
  EXPECT_THROWS(Toy(DoubleWithHeads("[[1, 1, 0]]"), {}), "node 1 'add'");
}

/*! \brief Run a piece of code on several threads at once; returns how many threw. */
template <typename F>
int OnThreads(F&& code) {
  std::atomic<int> errors{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t]() {
      try {
        code(t);
      } catch (const std::exception&) {
        ++errors;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

TEST(JSONRuntime, InitRunsOnceOnManyThreads) {
  Toy toy;
  EXPECT_EQ(OnThreads([&](int) { toy.Init(); }), 0);
  EXPECT_EQ(toy.node->init_calls, 1);
  Toy bare(DoubleWithHeads("[[1, 0, 0]]"), {});
  EXPECT_EQ(OnThreads([&](int) { bare["sym"](Floats(kX), Output()); }), 0);
  EXPECT_EQ(bare.node->init_calls, 1);
}

TEST(JSONRuntime, CallsFromManyThreads) {
  Toy toy;
  toy.Init();
  PackedFunc run = toy["sym"];
  std::atomic<int> wrong{0};
  const int errors = OnThreads([&](int t) {
    const float x = static_cast<float>(t);
    for (int round = 0; round < 200; ++round) {
      NDArray y = Output(), z = Output();
      run(Floats({x, x, x, x}), y, z);
      if (Values(y) != std::vector<float>{x + 1, x + 2, x + 3, x + 4}) ++wrong;
      if (Values(z) != std::vector<float>{2 * x + 1, 2 * x + 2, 2 * x + 3, 2 * x + 4}) ++wrong;
    }
  });
  EXPECT_EQ(errors, 0);
  EXPECT_EQ(wrong, 0);
}

}  // namespace json_test::runtime
