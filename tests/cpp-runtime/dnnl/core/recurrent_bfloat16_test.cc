// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/dnnl/core/recurrent_bfloat16_test.cc
 * \brief Recurrent layers in bfloat16, where oneDNN has them, against those in float32.
 */
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "src/runtime/contrib/dnnl/core/error.h"
#include "src/runtime/contrib/dnnl/core/lowering.h"
#include "src/runtime/contrib/dnnl/core/onednn.h"
#include "tests/cpp-runtime/dnnl/core/valid_ops.h"
#include "tests/cpp-runtime/harness/bfloat16.h"
#include "tests/cpp-runtime/harness/test.h"

namespace dnnl_test::recurrent_bfloat16 {

using namespace tvm::runtime::contrib::dnnl_backend;  // NOLINT(build/namespaces)
using dnnl_test::Float32;
using dnnl_test::GraphOf;
using dnnl_test::Valid;
using dnnl_test::ValidOp;

constexpr DLDataType kBFloat16{kDLBfloat, 16, 1};

/*! \brief The results of a node as floats, of values that bfloat16 has. */
std::vector<std::vector<float>> Results(const ValidOp& op) {
  std::mt19937 random(1);
  std::vector<std::vector<char>> memory;
  std::vector<void*> addresses;
  const auto plan = MakePlan(GraphOf(op));
  for (const Argument& argument : plan->arguments) {
    const TensorType& type = argument.type;
    const size_t bytes = type.dtype.bits / 8;
    memory.emplace_back(BytesOf(type));
    for (size_t at = 0; at < memory.back().size(); at += bytes) {
      const float value = static_cast<float>(random() % 64) / 64 - 0.5f;
      // The upper bytes of a float are its bfloat16.
      std::memcpy(&memory.back()[at], reinterpret_cast<const char*>(&value) + 4 - bytes, bytes);
    }
  }
  for (auto& bytes : memory) addresses.push_back(bytes.data());
  Context(plan).Run(addresses, nullptr);
  std::vector<std::vector<float>> results;
  for (size_t i = op.inputs.size(); i < memory.size(); ++i) {
    const bool is_float = plan->arguments[i].type.dtype.bits == 32;
    results.emplace_back();
    for (size_t at = 0; at < memory[i].size(); at += is_float ? 4 : 2) {
      uint16_t half;
      float whole;
      std::memcpy(&half, &memory[i][at], sizeof(half));
      if (is_float) std::memcpy(&whole, &memory[i][at], sizeof(whole));
      results.back().push_back(is_float ? whole : FromBFloat16(half));
    }
  }
  return results;
}

void ExpectNearFloat32(bool has_initial_state) {
  for (const char* name : {"dnnl.lstm", "dnnl.gru", "dnnl.rnn"}) {
    for (bool is_variant : {false, true}) {
      // The variant of an LSTM: c in float32.
      const bool has_float_c = has_initial_state && is_variant && std::string(name) == "dnnl.lstm";
      ValidOp op = Valid(name);
      if (!has_initial_state) {
        op.attrs["has_initial_state"] = {"0"};
        op.inputs.resize(4);
      }
      if (std::string(name) == "dnnl.gru" && is_variant) {
        op.attrs["linear_before_reset"] = {"0"};
        op.inputs[3].shape = {2, 15};
      }
      if (std::string(name) == "dnnl.rnn" && is_variant) op.attrs["activation"] = {"relu"};
      const auto expected = Results(op);
      for (size_t i = 0; i < op.inputs.size(); ++i) {
        if (i != 3 && !(i == 5 && has_float_c)) op.inputs[i].dtype = kBFloat16;
      }
      for (size_t i = 0; i < op.outputs.size(); ++i) {
        if (!(i == 2 && has_float_c)) op.outputs[i].dtype = kBFloat16;
      }
      const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
      const auto avx512 = static_cast<unsigned>(dnnl::cpu_isa::avx512_core);
      std::vector<std::vector<float>> results;
      try {
        results = Results(op);
      } catch (const Error& error) {
        const std::string text = error.what();
        if (!EXPECT_TRUE((isa & avx512) != avx512) ||
            !EXPECT_TRUE(text.find("main, node 9 " + std::string(name)) != std::string::npos)) {
          std::cerr << text << std::endl;
        }
        continue;
      }
      ASSERT_EQ(results.size(), expected.size());
      for (size_t i = 0; i < results.size(); ++i) {
        for (size_t k = 0; k < results[i].size(); ++k) {
          // Of numbers up to two, rounded to 8 bits after each of three steps.
          if (EXPECT_TRUE(std::abs(results[i][k] - expected[i][k]) < 0.02f)) continue;
          std::cerr << name << " " << is_variant << ": " << results[i][k] << ", not "
                    << expected[i][k] << std::endl;
          return;
        }
      }
    }
  }
}

TEST(DNNLRecurrentBFloat16, AgreesWithFloat32OrIsRefused) { ExpectNearFloat32(true); }

TEST(DNNLRecurrentBFloat16, WithoutInitialState) { ExpectNearFloat32(false); }

TEST(DNNLRecurrentBFloat16, SizesOfNoWholeTiles) {
  // oneDNN's primitives end the process on AMX.
  if (!HasISA(dnnl::cpu_isa::avx512_core)) return;
  constexpr int64_t kSteps = 2;
  const std::pair<const char*, int64_t> layers[] = {
      {"dnnl.lstm", 4}, {"dnnl.gru", 3}, {"dnnl.rnn", 1}};
  for (const auto& [name, gates] : layers) {
    for (const auto& [batch, inputs, hidden] :
         {std::array<int64_t, 3>{1, 64, 64}, {3, 200, 64}, {2, 64, 100}, {2, 64, 32}}) {
      ValidOp op = Valid(name);
      op.attrs["direction"] = {"forward"};
      op.attrs["has_initial_state"] = {"0"};
      if (gates == 3) op.attrs["linear_before_reset"] = {"0"};
      const TensorType state = Float32({1, batch, hidden});
      op.inputs = {Float32({kSteps, batch, inputs}), Float32({1, gates * hidden, inputs}),
                   Float32({1, gates * hidden, hidden}), Float32({1, gates * hidden})};
      op.outputs = {Float32({kSteps, batch, hidden}), state};
      if (gates == 4) op.outputs.push_back(state);
      const auto expected = Results(op);
      for (size_t i = 0; i < op.inputs.size(); ++i) {
        if (i != 3) op.inputs[i].dtype = kBFloat16;
      }
      for (TensorType& type : op.outputs) type.dtype = kBFloat16;
      const auto results = Results(op);
      ASSERT_EQ(results.size(), expected.size());
      for (size_t i = 0; i < results.size(); ++i) {
        for (size_t k = 0; k < results[i].size(); ++k) {
          const float largest = std::max(1.f, std::abs(expected[i][k]));
          // The result is rounded, and so is the first step's, which weights of a standard
          // deviation of 0.3 multiply.
          const float rounding = 0x1p-8f * (1 + .3f * std::sqrt(static_cast<float>(hidden)));
          EXPECT_TRUE(std::abs(results[i][k] - expected[i][k]) <= rounding * largest);
        }
      }
    }
  }
}

}  // namespace dnnl_test::recurrent_bfloat16
