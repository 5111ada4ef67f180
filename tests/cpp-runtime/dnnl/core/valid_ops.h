// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/dnnl/core/valid_ops.h
 * \brief Nodes that are valid, from which tests make others, and what runs one.
 */
#ifndef TESTS_CPP_RUNTIME_DNNL_CORE_VALID_OPS_H_
#define TESTS_CPP_RUNTIME_DNNL_CORE_VALID_OPS_H_

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "src/runtime/contrib/dnnl/core/flat_attrs.h"
#include "src/runtime/contrib/dnnl/core/lowering.h"
#include "tests/cpp-runtime/dnnl/core/valid_op.h"
#include "tests/cpp-runtime/harness/test.h"

namespace dnnl_test {

/*! \brief Valid nodes that tests change one by one; DrawnOps has some of each op. */
inline std::vector<ValidOp> ValidOps() {
  const TensorType x = Float32({2, 3, 4}), image = Float32({2, 4, 3, 5}), c = Float32({4});
  const std::map<std::string, Attr> conv = {
      {"strides", {"2", "2"}},     {"padding", {"1", "1"}},       {"dilation", {"1", "1"}},
      {"groups", {"2"}},           {"channels", {"6"}},           {"kernel_size", {"3", "3"}},
      {"data_layout", {"NCHW"}},   {"out_layout", {"NCHW"}},      {"out_dtype", {"float32"}},
      {"kernel_layout", {"OIHW"}}, {"output_padding", {"1", "1"}}};
  const std::map<std::string, Attr> norm = {
      {"axis", {"1"}}, {"epsilon", {"1e-05"}}, {"center", {"1"}}, {"scale", {"1"}}};
  auto transposed = conv, group = norm;
  transposed["kernel_layout"] = {"IOHW"};
  group["num_groups"] = {"2"};
  // Layers of 3 steps, 2 sequences, 4 inputs and 5 hidden units.
  const auto layer = [](const char* name, int64_t gates, int64_t biases, const char* key,
                        const char* value) -> ValidOp {
    const int64_t rows = 5 * gates;
    return {name,
            {Float32({3, 2, 4}), Float32({2, rows, 4}), Float32({2, rows, 5}),
             Float32({2, 5 * biases}), Float32({2, 2, 5})},
            {{"direction", {"bidirectional"}},
             {"batch_first", {"0"}},
             {"has_initial_state", {"1"}},
             {key, {value}}},
            {Float32({3, 2, 10}), Float32({2, 2, 5})}};
  };
  ValidOp lstm = layer("dnnl.lstm", 4, 4, "has_lengths", "0");
  for (Types* types : {&lstm.inputs, &lstm.outputs}) types->push_back(Float32({2, 2, 5}));
  return {
      lstm,
      layer("dnnl.gru", 3, 4, "linear_before_reset", "1"),
      layer("dnnl.rnn", 1, 1, "activation", "tanh"),
      {"nn.conv2d", {Float32({1, 4, 7, 7}), Float32({6, 2, 3, 3})}, conv, {Float32({1, 6, 4, 4})}},
      {"nn.conv2d_transpose",
       {Float32({1, 4, 5, 5}), Float32({4, 3, 3, 3})},
       transposed,
       {Float32({1, 6, 10, 10})}},
      {"nn.max_pool2d",
       {Float32({1, 4, 7, 7})},
       {{"pool_size", {"3", "3"}},
        {"strides", {"2", "2"}},
        {"padding", {"1", "1"}},
        {"ceil_mode", {"0"}},
        {"layout", {"NCHW"}}},
       {Float32({1, 4, 4, 4})}},
      {"image.resize2d",
       {Float32({1, 4, 3, 3})},
       {{"size", {"6", "6"}}, {"layout", {"NCHW"}}, {"method", {"linear"}}},
       {Float32({1, 4, 6, 6})}},
      {"nn.batch_matmul",
       {Float32({2, 1, 3, 6}), Float32({4, 5, 6})},
       {{"transpose_a", {"0"}}, {"transpose_b", {"1"}}},
       {Float32({2, 4, 3, 5})}},
      {"nn.batch_norm", {image, c, c, c, c}, norm, {image, c, c}},
      {"nn.instance_norm", {image, c, c}, norm, {image}},
      {"nn.layer_norm", {image, c, c}, norm, {image}},
      {"nn.group_norm", {image, c, c}, group, {image}},
      {"nn.relu", {x}, {}, {x}},
      {"concatenate", {x, Float32({2, 5, 4})}, {{"axis", {"1"}}}, {Float32({2, 8, 4})}},
      {"nn.pad",
       {x},
       {{"pad_width", {"0", "0", "1", "0", "2", "3"}}, {"pad_value", {"0.5"}}},
       {Float32({2, 4, 9})}},
      {"expand_dims", {x}, {{"axis", {"1"}}, {"num_newaxis", {"2"}}}, {Float32({2, 1, 1, 3, 4})}},
      {"layout_transform",
       {Float32({1, 8, 3, 3})},
       {{"src_layout", {"NCHW"}}, {"dst_layout", {"NCHW4c"}}},
       {Float32({1, 2, 3, 3, 4})}},
      {"transpose", {x}, {{"axes", {"2", "0", "1"}}}, {Float32({4, 2, 3})}}};
}

/*! \brief What a constant is filled with; null where a damaged type is too large for memory. */
inline std::shared_ptr<void> ConstantValues(const TensorType& type) {
  constexpr int64_t kMost = 1 << 22;
  for (int64_t dim : type.shape) {
    if (dim < 0 || dim > kMost) return nullptr;
  }
  const size_t size = BytesOf(type);
  if (size > kMost) return nullptr;
  const auto values = std::make_shared<std::vector<float>>(size / sizeof(float) + 1);
  if (type.dtype.code == kDLFloat) std::fill(values->begin(), values->end(), 0.25f);
  return {values, values->data()};
}

/*! \brief The graph of one op, whose node is number 9. */
inline Graph GraphOf(const ValidOp& op) {
  Graph graph;
  graph.symbol = graph.name = "main";
  Node node{9, op.name, {}, {}, op.outputs};
  for (uint32_t i = 0; i < op.inputs.size(); ++i) {
    node.inputs.push_back({100 + i, 0});
    const Edge edge{{100 + i, 0}, {"input " + std::to_string(i), op.inputs[i]}};
    if (std::count(op.constants.begin(), op.constants.end(), i) == 0) {
      graph.inputs.push_back(edge);
    } else {
      graph.constants.push_back({edge, ConstantValues(op.inputs[i])});
      graph.constants.back().edge.argument.name = "main: " + edge.argument.name;
    }
  }
  for (const auto& [name, value] : op.attrs) node.attrs[name] = value;
  NestAttrs(&node.attrs);
  graph.nodes = {node};
  for (uint32_t i = 0; i < op.outputs.size(); ++i) {
    graph.outputs.push_back({{9, i}, {"output " + std::to_string(i), op.outputs[i]}});
  }
  return graph;
}

/*! \brief The node of an op. */
inline ValidOp Valid(const std::string& name) {
  for (const ValidOp& op : ValidOps()) {
    if (op.name == name) return op;
  }
  throw std::runtime_error("no op " + name);
}

/*!
 * \brief What a plan writes into memory that holds `old` before. Its inputs, so many, differ from
 * place to place. It must write nothing beside its outputs.
 */
inline std::vector<std::vector<char>> Run(
    const std::shared_ptr<const tvm::runtime::contrib::dnnl_backend::Plan>& plan, size_t inputs,
    char old) {
  constexpr size_t kBeside = 4096;
  std::vector<std::vector<char>> memory;
  std::vector<void*> addresses;
  for (size_t i = 0; i < plan->arguments.size(); ++i) {
    const TensorType& type = plan->arguments[i].type;
    const bool is_input = i < inputs;
    memory.emplace_back(BytesOf(type) + 2 * kBeside, is_input ? 1 : old);
    const bool is_float = type.dtype.code == kDLFloat && type.dtype.bits == 32;
    for (size_t at = 0; is_input && is_float && at < BytesOf(type); at += 4) {
      const float value = 0.25f + static_cast<float>(at % 60) / 64;
      std::memcpy(&memory[i][kBeside + at], &value, 4);
    }
  }
  for (auto& bytes : memory) addresses.push_back(bytes.data() + kBeside);
  tvm::runtime::contrib::dnnl_backend::Context(plan).Run(addresses, nullptr);
  std::vector<std::vector<char>> outputs;
  for (size_t i = inputs; i < memory.size(); ++i) {
    const auto begin = memory[i].begin() + kBeside, end = memory[i].end() - kBeside;
    const auto is_old = [old](char byte) { return byte == old; };
    EXPECT_TRUE(std::all_of(memory[i].begin(), begin, is_old));
    EXPECT_TRUE(std::all_of(end, memory[i].end(), is_old));
    outputs.emplace_back(begin, end);
  }
  return outputs;
}

/*! \brief What a graph writes; see above. */
inline std::vector<std::vector<char>> Run(const Graph& graph, char old) {
  return Run(tvm::runtime::contrib::dnnl_backend::MakePlan(graph), graph.inputs.size(), old);
}

}  // namespace dnnl_test

#endif  // TESTS_CPP_RUNTIME_DNNL_CORE_VALID_OPS_H_
