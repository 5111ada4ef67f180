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
 * \file tests/cpp-runtime/dnnl/core/valid_ops.h
 * \brief For each op of the table, and for composites, a node that is valid, from which tests make
 * others.
 */
#ifndef TESTS_CPP_RUNTIME_DNNL_CORE_VALID_OPS_H_
#define TESTS_CPP_RUNTIME_DNNL_CORE_VALID_OPS_H_

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "src/runtime/contrib/dnnl/core/op_table.h"
#include "tests/cpp-runtime/dnnl/core/valid_op.h"
#include "tests/cpp-runtime/harness/test.h"

namespace dnnl_test {

inline void AppendConvs(std::vector<ValidOp>* ops) {
  const std::string letters = "DHW";
  for (int spatial : {1, 2, 3}) {
    const std::string order = letters.substr(3 - spatial);
    const Attr ones(spatial, "1"), twos(spatial, "2"), threes(spatial, "3");
    const auto shape = [spatial](int64_t n, int64_t c, int64_t size) {
      std::vector<int64_t> dims(spatial, size);
      dims.insert(dims.begin(), {n, c});
      return Float32(dims);
    };
    const std::string d = std::to_string(spatial) + "d";
    std::map<std::string, Attr> attrs = {{"strides", twos},
                                         {"padding", ones},
                                         {"dilation", ones},
                                         {"groups", {"2"}},
                                         {"channels", {"6"}},
                                         {"kernel_size", threes},
                                         {"data_layout", {"NC" + order}},
                                         {"kernel_layout", {"OI" + order}},
                                         {"out_layout", {"NC" + order}},
                                         {"out_dtype", {"float32"}}};
    ops->push_back({"nn.conv" + d, {shape(1, 4, 7), shape(6, 2, 3)}, attrs, {shape(1, 6, 4)}});
    attrs["kernel_layout"] = {"IO" + order};
    attrs["output_padding"] = ones;
    ops->push_back(
        {"nn.conv" + d + "_transpose", {shape(1, 4, 5), shape(4, 3, 3)}, attrs, {shape(1, 6, 10)}});
    for (const char* kind : {"max", "avg"}) {
      const std::string pool = std::string(kind) + "_pool" + d;
      attrs = {{"pool_size", threes}, {"strides", twos},    {"padding", ones},
               {"dilation", ones},    {"ceil_mode", {"0"}}, {"layout", {"NC" + order}}};
      if (kind[0] == 'a') attrs["count_include_pad"] = {"1"};
      ops->push_back({"nn." + pool, {shape(1, 4, 7)}, attrs, {shape(1, 4, 4)}});
      ops->push_back({"nn.adaptive_" + pool,
                      {shape(1, 4, 6)},
                      {{"output_size", threes}, {"layout", {"NC" + order}}},
                      {shape(1, 4, 3)}});
      if (spatial == 2) {
        ops->push_back(
            {"nn.global_" + pool, {shape(1, 4, 6)}, {{"layout", {"NCHW"}}}, {shape(1, 4, 1)}});
      }
    }
    ops->push_back({"image.resize" + d,
                    {shape(1, 4, 3)},
                    {{"size", Attr(spatial, "6")},
                     {"layout", {"NC" + order}},
                     {"method", {"linear"}},
                     {"out_dtype", {"float32"}}},
                    {shape(1, 4, 6)}});
    if (spatial == 1) continue;
    attrs = {{"layout", {"NC" + order}}, {"method", {"nearest_neighbor"}}};
    for (char c : order) attrs[std::string("scale_") + static_cast<char>(c - 'A' + 'a')] = {"2"};
    ops->push_back({spatial == 2 ? "nn.upsampling" : "nn.upsampling3d",
                    {shape(1, 4, 3)},
                    attrs,
                    {shape(1, 4, 6)}});
  }
}

inline void AppendElementwise(std::vector<ValidOp>* ops) {
  const TensorType x = Float32({2, 3, 4});
  for (const char* name : {"nn.leaky_relu", "dnnl.elu", "dnnl.hard_sigmoid", "dnnl.hard_swish",
                           "dnnl.linear", "dnnl.pow", "dnnl.swish"}) {
    ops->push_back({name, {x}, {{"alpha", {"0.5"}}, {"beta", {"0.5"}}}, {x}});
  }
  ops->push_back({"clip", {x}, {{"a_min", {"-1"}}, {"a_max", {"1"}}}, {x}});
  ops->push_back({"cast", {Int8({2, 3})}, {{"dtype", {"float32"}}}, {Float32({2, 3})}});
  ops->push_back({"nn.prelu", {x, Float32({3})}, {{"axis", {"1"}}}, {x}});
  ops->push_back({"nn.bias_add", {x, Float32({3})}, {{"axis", {"1"}}}, {x}});
  for (const char* name :
       {"equal", "not_equal", "less", "less_equal", "greater", "greater_equal"}) {
    ops->push_back({name, {x, Float32({4})}, {}, {{x.shape, {kDLUInt, 1, 1}}}});
  }
  ops->push_back({"where", {Bool({3, 1}), x, Float32({4})}, {}, {x}});
  const TensorType q = Int8({2, 3, 4}), scale = Float32({3}), zero = Int32({3});
  ops->push_back(
      {"qnn.quantize", {x, scale, zero}, {{"axis", {"1"}}, {"out_dtype", {"int8"}}}, {q}});
  ops->push_back(
      {"qnn.dequantize", {q, scale, zero}, {{"axis", {"1"}}, {"out_dtype", {"float32"}}}, {x}});
}

inline void AppendViews(std::vector<ValidOp>* ops) {
  const TensorType x = Float32({2, 3, 4});
  ops->push_back({"concatenate", {x, Float32({2, 5, 4})}, {{"axis", {"1"}}}, {Float32({2, 8, 4})}});
  ops->push_back({"stack", {x, x}, {{"axis", {"1"}}}, {Float32({2, 2, 3, 4})}});
  ops->push_back({"split",
                  {x},
                  {{"axis", {"2"}}, {"indices_or_sections", {"1", "3"}}},
                  {Float32({2, 3, 1}), Float32({2, 3, 2}), Float32({2, 3, 1})}});
  ops->push_back({"nn.pad",
                  {x},
                  {{"pad_width", {"0", "0", "1", "0", "2", "3"}},
                   {"pad_mode", {"constant"}},
                   {"pad_value", {"0.5"}}},
                  {Float32({2, 4, 9})}});
  ops->push_back({"strided_slice",
                  {x},
                  {{"begin", {"0", "1"}},
                   {"end", {"2", "4"}},
                   {"strides", {"1", "2"}},
                   {"axes", {"0", "2"}},
                   {"slice_mode", {"end"}}},
                  {Float32({2, 3, 2})}});
  ops->push_back({"broadcast_to", {Float32({3, 1})}, {}, {Float32({2, 3, 4})}});
  ops->push_back({"take",
                  {x, Int32({5})},
                  {{"axis", {"1"}}, {"batch_dims", {"0"}}, {"mode", {"clip"}}},
                  {Float32({2, 5, 4})}});
  ops->push_back({"contrib_reverse_reshape", {x}, {{"newshape", {"-1", "0"}}}, {Float32({6, 4})}});
  ops->push_back(
      {"expand_dims", {x}, {{"axis", {"1"}}, {"num_newaxis", {"2"}}}, {Float32({2, 1, 1, 3, 4})}});
  ops->push_back({"layout_transform",
                  {Float32({1, 8, 3, 3})},
                  {{"src_layout", {"NCHW"}}, {"dst_layout", {"NCHW4c"}}},
                  {Float32({1, 2, 3, 3, 4})}});
  ops->push_back({"nn.batch_flatten", {x}, {}, {Float32({2, 12})}});
  ops->push_back({"reshape",
                  {x},
                  {{"newshape", {"0", "-4", "-1", "3", "-2"}}, {"allowzero", {"0"}}},
                  {Float32({2, 1, 3, 4})}});
  ops->push_back({"squeeze", {Float32({2, 1, 4})}, {{"axis", {"1"}}}, {Float32({2, 4})}});
  ops->push_back({"transpose", {x}, {{"axes", {"2", "0", "1"}}}, {Float32({4, 2, 3})}});
}

/*! \brief Composites: ops with the attributes of what is fused to them, "post_ops.<i>.". */
inline void AppendComposites(std::vector<ValidOp>* ops) {
  const TensorType image = Float32({1, 4, 5, 5}), conv = Float32({1, 6, 5, 5});
  const std::map<std::string, Attr> conv_attrs = {
      {"root_op", {"nn.conv2d"}}, {"strides", {"1", "1"}},     {"padding", {"1", "1"}},
      {"channels", {"6"}},        {"kernel_size", {"3", "3"}}, {"data_layout", {"NCHW"}},
      {"kernel_layout", {"OIHW"}}};
  auto attrs = conv_attrs;
  attrs.insert({{"post_ops", {"nn.bias_add", "clip", "add", "divide"}},
                {"post_ops.0.operand", {"2"}},
                {"post_ops.0.is_bias", {"1"}},
                {"post_ops.0.axis", {"1"}},
                {"post_ops.1.a_min", {"-0.5"}},
                {"post_ops.1.a_max", {"6.5"}},
                {"post_ops.2.operand", {"3"}},
                {"post_ops.2.operand_first", {"1"}},
                {"post_ops.3.operand", {"4"}}});
  ops->push_back({"dnnl.conv2d_bias_clip_add_divide",
                  {image, Float32({6, 4, 3, 3}), Float32({6}), conv, Float32({6, 1, 1})},
                  attrs,
                  {conv}});
  ops->push_back({"dnnl.dense_bias_reshape_subtract_swish",
                  {Float32({6, 4}), Float32({5, 4}), Float32({5}), Float32({3, 5})},
                  {{"root_op", {"nn.dense"}},
                   {"units", {"5"}},
                   {"post_ops", {"add", "reshape", "subtract", "dnnl.swish"}},
                   {"post_ops.0.operand", {"2"}},
                   {"post_ops.0.is_bias", {"1"}},
                   {"post_ops.1.newshape", {"2", "3", "5"}},
                   {"post_ops.1.allowzero", {"0"}},
                   {"post_ops.2.operand", {"3"}},
                   {"post_ops.2.operand_first", {"1"}},
                   {"post_ops.3.alpha", {"1.5"}}},
                  {Float32({2, 3, 5})}});
  // Rounded to 8 bits, plus a residual in 8 bits, rounded again.
  attrs = conv_attrs;
  attrs["post_ops"] = {"qnn.quantize", "qnn.dequantize", "add", "qnn.quantize"};
  attrs["post_ops.2.operand"] = {"2"};
  int scale = 3;
  for (const char* prefix : {"dequantize.0.", "dequantize.1.", "dequantize.2.", "post_ops.0.",
                             "post_ops.1.", "post_ops.3."}) {
    attrs[prefix + std::string("scale")] = {std::to_string(scale++)};
    attrs[prefix + std::string("zero_point")] = {std::to_string(scale++)};
  }
  // The others have one scale.
  attrs["dequantize.1.axis"] = {"0"};
  for (const char* key : {"post_ops.0.out_dtype", "post_ops.3.out_dtype"}) attrs[key] = {"int8"};
  attrs["post_ops.1.out_dtype"] = {"float32"};
  ValidOp quantized{"dnnl.qnn.conv2d_quantize_sum_quantize",
                    {Int8({1, 4, 5, 5}), Int8({6, 4, 3, 3}), Int8(conv.shape)},
                    attrs,
                    {Int8(conv.shape)}};
  for (int64_t scales : {1, 6, 1, 1, 1, 1}) {
    const std::vector<int64_t> shape(scales > 1 ? 1 : 0, scales);
    quantized.inputs.insert(quantized.inputs.end(), {Float32(shape), Int32(shape)});
  }
  ops->push_back(quantized);
}

/*! \brief Layers of 3 steps, 2 sequences, 4 inputs and 5 hidden units. */
inline void AppendRecurrent(std::vector<ValidOp>* ops) {
  const auto append = [ops](const std::string& name, int64_t gates, int64_t biases,
                            const std::string& key, const std::string& value) {
    const TensorType state = Float32({2, 2, 5});
    ValidOp op{
        name,
        {Float32({3, 2, 4}), Float32({2, gates * 5, 4}), Float32({2, gates * 5, 5}),
         Float32({2, biases * 5}), state},
        {{"direction", {"bidirectional"}}, {"batch_first", {"0"}}, {"has_initial_state", {"1"}}},
        {Float32({3, 2, 10}), state}};
    if (!key.empty()) op.attrs[key] = {value};
    if (name == "dnnl.lstm") {
      op.inputs.push_back(state);
      op.outputs.push_back(state);
    }
    ops->push_back(op);
  };
  append("dnnl.lstm", 4, 4, "", "");
  append("dnnl.gru", 3, 4, "linear_before_reset", "1");
  append("dnnl.rnn", 1, 1, "activation", "tanh");
}

/*! \brief Of each op without attributes whose result is of the first operand's type, the others. */
inline void AppendOthers(std::vector<ValidOp>* ops) {
  std::set<std::string> names;
  for (const ValidOp& op : *ops) names.insert(op.name);
  for (const std::string& name : OpNames()) {
    if (names.count(name) > 0) continue;
    const TensorType x = Float32({2, 3, 4});
    Types inputs(FindOp(name)->min_inputs, Float32({4}));
    inputs[0] = x;
    ops->push_back({name, inputs, {}, {x}});
  }
}

/*! \brief One for each op of the table, and some composites. */
inline std::vector<ValidOp> ValidOps() {
  std::vector<ValidOp> ops;
  AppendConvs(&ops);
  AppendElementwise(&ops);
  AppendViews(&ops);
  AppendComposites(&ops);
  AppendRecurrent(&ops);
  const TensorType image = Float32({2, 4, 3, 5}), c = Float32({4});
  ops.push_back({"nn.dense",
                 {Float32({2, 3, 6}), Float32({5, 6})},
                 {{"units", {"5"}}, {"out_dtype", {"float32"}}},
                 {Float32({2, 3, 5})}});
  ops.push_back({"dnnl.block_quantized_dense",
                 {Float32({2, 3, 40}), UInt8({5, 32}), Float32({5, 2}), UInt8({5, 2})},
                 {{"bits", {"4"}}, {"block_size", {"32"}}, {"accuracy_level", {"4"}}},
                 {Float32({2, 3, 5})}});
  ops.push_back({"dnnl.dynamic_quantize_scale", {image}, {}, {Float32({1})}});
  ops.push_back({"dnnl.dynamic_quantized_dense",
                 {Float32({2, 3, 6}), Int8({5, 6}), Float32({5}), Int32({})},
                 {},
                 {Float32({2, 3, 5})}});
  ops.push_back({"nn.matmul",
                 {Float32({6, 3}), Float32({6, 5})},
                 {{"units", {"5"}},
                  {"transpose_a", {"1"}},
                  {"transpose_b", {"0"}},
                  {"out_dtype", {"float32"}}},
                 {Float32({3, 5})}});
  ops.push_back({"nn.batch_matmul",
                 {Float32({2, 1, 3, 6}), Float32({4, 5, 6})},
                 {{"transpose_a", {"0"}}, {"transpose_b", {"1"}}, {"out_dtype", {"float32"}}},
                 {Float32({2, 4, 3, 5})}});
  const TensorType key = Float32({2, 2, 7, 6}), mask = Float32({2, 1, 3, 7});
  ops.push_back({"dnnl.attention",
                 {Float32({2, 4, 3, 6}), key, key, mask},
                 {{"scale", {"0.5"}}, {"causal", {"1"}}, {"softmax", {"nn.softmax"}}},
                 {Float32({2, 4, 3, 6})}});
  const std::map<std::string, Attr> norm = {
      {"axis", {"1"}}, {"epsilon", {"1e-05"}}, {"center", {"1"}}, {"scale", {"1"}}};
  ops.push_back({"nn.batch_norm", {image, c, c, c, c}, norm, {image, c, c}});
  ops.push_back({"nn.instance_norm", {image, c, c}, norm, {image}});
  ops.push_back({"nn.layer_norm", {image, c, c}, norm, {image}});
  auto group = norm;
  group["num_groups"] = {"2"};
  ops.push_back({"nn.group_norm", {image, c, c}, group, {image}});
  ops.push_back({"nn.l2_normalize", {image}, {{"axis", {"1", "2"}}, {"eps", {"1e-05"}}}, {image}});
  ops.push_back({"nn.lrn",
                 {image},
                 {{"axis", {"1"}},
                  {"size", {"5"}},
                  {"alpha", {"0.0001"}},
                  {"beta", {"0.75"}},
                  {"bias", {"2"}}},
                 {image}});
  ops.push_back({"dnnl.rms_norm", {image, Float32({5})}, {{"epsilon", {"1e-05"}}}, {image}});
  for (const char* name : {"nn.softmax", "nn.fast_softmax", "nn.log_softmax"}) {
    ops.push_back({name, {image}, {{"axis", {"-1"}}}, {image}});
  }
  for (const char* name : {"max", "mean", "min", "prod", "sum"}) {
    ops.push_back({name,
                   {image},
                   {{"axis", {"1", "-1"}}, {"keepdims", {"1"}}, {"exclude", {"0"}}},
                   {Float32({2, 1, 3, 1})}});
  }
  AppendOthers(&ops);
  return ops;
}

/*! \brief The graph of one op, whose node is number 9. */
inline Graph GraphOf(const ValidOp& op) {
  Graph graph;
  graph.symbol = graph.name = "main";
  Node node{9, op.name, {}, {}, op.outputs};
  for (uint32_t i = 0; i < op.inputs.size(); ++i) {
    node.inputs.push_back({100 + i, 0});
    graph.inputs.push_back({{100 + i, 0}, {"input " + std::to_string(i), op.inputs[i]}});
  }
  for (const auto& [name, value] : op.attrs) node.attrs[name] = value;
  graph.nodes = {node};
  for (uint32_t i = 0; i < op.outputs.size(); ++i) {
    graph.outputs.push_back({{9, i}, {"output " + std::to_string(i), op.outputs[i]}});
  }
  return graph;
}

/*! \brief The description of an op of the table. */
inline ValidOp Valid(const std::string& name) {
  for (const ValidOp& op : ValidOps()) {
    if (op.name == name) return op;
  }
  throw std::runtime_error("no op " + name);
}

/*!
 * \brief What a graph writes into memory that holds `old` before, of inputs that differ from place
 * to place. It must write nothing beside its outputs.
 */
inline std::vector<std::vector<char>> Run(const Graph& graph, char old) {
  constexpr size_t kBeside = 4096;
  const auto plan = tvm::runtime::contrib::dnnl_backend::MakePlan(graph);
  std::vector<std::vector<char>> memory;
  std::vector<void*> addresses;
  for (size_t i = 0; i < plan->arguments.size(); ++i) {
    const TensorType& type = plan->arguments[i].type;
    const bool is_input = i < graph.inputs.size();
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
  for (size_t i = graph.inputs.size(); i < memory.size(); ++i) {
    const auto begin = memory[i].begin() + kBeside, end = memory[i].end() - kBeside;
    const auto is_old = [old](char byte) { return byte == old; };
    EXPECT_TRUE(std::all_of(memory[i].begin(), begin, is_old));
    EXPECT_TRUE(std::all_of(end, memory[i].end(), is_old));
    outputs.emplace_back(begin, end);
  }
  return outputs;
}

}  // namespace dnnl_test

#endif  // TESTS_CPP_RUNTIME_DNNL_CORE_VALID_OPS_H_
