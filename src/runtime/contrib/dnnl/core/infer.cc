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
 * \file src/runtime/contrib/dnnl/core/infer.cc
 * \brief From the shapes of a call's inputs to the types of all that a graph computes.
 */
#include "infer.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "desc.h"
#include "error.h"
#include "op_table.h"
#include "ops/types.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief Whether a size is the one that is expected, or any is. */
bool Fits(int64_t size, int64_t expected) { return expected == kOpen || size == expected; }

bool Fits(const std::vector<int64_t>& shape, const std::vector<int64_t>& expected) {
  return std::equal(shape.begin(), shape.end(), expected.begin(), expected.end(),
                    [](int64_t size, int64_t said) { return Fits(size, said); });
}

/*! \brief Refuse a type that a graph says of a result that has another. */
void CheckAgrees(const TensorType& inferred, const TensorType& said, const std::string& where) {
  CORE_CHECK(Fits(inferred.shape, said.shape) && inferred.dtype == said.dtype)
      << where << " has type " << ToText(said) << " in the graph, but is " << ToText(inferred);
}

/*! \brief Whether concatenations read an input, such as that of a cache, and nothing else does. */
bool IsConcatenatedOnly(const Graph& graph, const Entry& input) {
  const auto is_input = [&input](const Entry& entry) {
    return entry.node == input.node && entry.index == input.index;
  };
  const bool is_output = std::any_of(graph.outputs.begin(), graph.outputs.end(),
                                     [&](const Edge& output) { return is_input(output.entry); });
  return !is_output && std::all_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
    return std::none_of(node.inputs.begin(), node.inputs.end(), is_input) ||
           NodeReader(node, graph.symbol).OpName() == "concatenate";
  });
}

/*! \brief Goes from node to node with the types of all values so far. */
class Inference {
 public:
  explicit Inference(std::string symbol) : symbol_(std::move(symbol)) {}

  /*! \brief Set the type of an input or constant. Only a concatenation reads an empty input. */
  void Set(const Entry& entry, const TensorType& type, const std::string& where,
           bool may_be_empty = false) {
    CheckType(type, where, may_be_empty);
    types_[entry] = type;
  }
  const TensorType& Of(const Entry& entry, const std::string& where) const {
    const auto it = types_.find(entry);
    CORE_CHECK(it != types_.end())
        << where << ": output " << entry.index << " of node " << entry.node << " is not computed";
    return it->second;
  }

  /*! \brief Give a node's results the types that its ops make. */
  void Visit(Node* node) {
    const NodeReader reader(*node, symbol_);
    const std::string where = reader.Where();
    for (const Entry& input : node->inputs) Of(input, where);
    const Types outputs = Run(reader, &node->op_types);
    // The last ones of several results may have no readers.
    CORE_CHECK(!node->outputs.empty() && node->outputs.size() <= outputs.size())
        << where << ": the graph says " << node->outputs.size() << " outputs of " << outputs.size();
    for (size_t i = 0; i < node->outputs.size(); ++i) {
      CheckAgrees(outputs[i], node->outputs[i], where + ", output " + std::to_string(i));
      node->outputs[i] = types_[{node->id, static_cast<uint32_t>(i)}] = outputs[i];
    }
  }

 private:
  /*! \brief The types of a node's results, and of what each of its ops makes. */
  Types Run(const NodeReader& node, Types* op_types) {
    const NodeReader ops = node.InFloat32();
    // The values that the ops read and nobody else.
    std::vector<Entry> inside;
    for (size_t i = 0; i < node.Inputs().size(); ++i) {
      if (!node.IsDequantized(i)) continue;
      inside.push_back(ops.Inputs()[i]);
      types_[inside.back()] = Infer(node.Dequantization(i))[0];
    }
    Types results = Infer(ops.WithoutPostOps());
    op_types->assign(1, results[0]);
    for (int i = 0; i < ops.NumPostOps(); ++i) {
      inside.push_back({node.id(), 0});
      types_[inside.back()] = results[0];
      results = InferPostOp(ops.PostOp(i), ops.Inputs(), results[0].dtype);
      op_types->push_back(results[0]);
    }
    for (const Entry& entry : inside) types_.erase(entry);
    return results;
  }

  /*!
   * \brief The results of a post-op.
   *
   * Its operand may be float32 beside narrower data: oneDNN computes post-ops in float32.
   */
  Types InferPostOp(const NodeReader& op, const std::vector<Entry>& inputs, DLDataType data) {
    if (!ReadsFloat32(op, inputs, data)) return Infer(op);
    TensorType& operand = types_.at(inputs[op.Operand()]);
    const DLDataType own = std::exchange(operand.dtype, data);
    Types results = Infer(op);
    operand.dtype = own;
    return results;
  }

  bool ReadsFloat32(const NodeReader& op, const std::vector<Entry>& inputs, DLDataType data) const {
    const bool is_narrow = (data.code == kDLBfloat || data.code == kDLFloat) && data.bits == 16;
    const PostOp kind = SpecOf(op).family.as_post_op;
    if (!is_narrow || (kind != PostOp::kBinary && kind != PostOp::kPReLU)) return false;
    return op.Operand() >= 0 && Of(inputs[op.Operand()], op.Where()).dtype == kFloat32;
  }

  /*! \brief The results of one op. */
  Types Infer(const NodeReader& op) const {
    const OpSpec& spec = SpecOf(op);
    Types inputs;
    for (const Entry& input : op.Inputs()) inputs.push_back(Of(input, op.Where()));
    Types results = spec.family.infer(op, inputs);
    for (const TensorType& result : results) CheckType(result, op.Where());
    return results;
  }

  const std::string symbol_;
  std::map<Entry, TensorType> types_;
};

}  // namespace

bool IsDynamic(const Graph& graph) {
  return std::any_of(graph.inputs.begin(), graph.inputs.end(), [](const Edge& input) {
    const std::vector<int64_t>& shape = input.argument.type.shape;
    return std::count(shape.begin(), shape.end(), kOpen) > 0;
  });
}

std::vector<std::vector<int64_t>> InputShapes(const Graph& graph) {
  std::vector<std::vector<int64_t>> shapes;
  for (const Edge& input : graph.inputs) shapes.push_back(input.argument.type.shape);
  return shapes;
}

Graph Infer(const Graph& graph, const std::vector<std::vector<int64_t>>& input_shapes) {
  CORE_CHECK(input_shapes.size() == graph.inputs.size())
      << graph.symbol << ": there are " << graph.inputs.size() << " inputs, but "
      << input_shapes.size() << " shapes";
  Graph result = graph;
  Inference inference(graph.symbol);
  for (size_t i = 0; i < input_shapes.size(); ++i) {
    Argument& input = result.inputs[i].argument;
    CORE_CHECK(Fits(input_shapes[i], input.type.shape))
        << graph.symbol << ": " << input.name << " must have shape " << ToText(input.type.shape)
        << ", but has " << ToText(input_shapes[i]);
    input.type.shape = input_shapes[i];
    const Entry& entry = result.inputs[i].entry;
    const bool is_empty = std::count(input_shapes[i].begin(), input_shapes[i].end(), 0) > 0;
    inference.Set(entry, input.type, graph.symbol + ": " + input.name,
                  is_empty && IsConcatenatedOnly(graph, entry));
  }
  for (const Constant& constant : graph.constants) {
    const Argument& value = constant.edge.argument;
    inference.Set(constant.edge.entry, value.type, value.name);
  }
  for (Node& node : result.nodes) inference.Visit(&node);
  for (Edge& output : result.outputs) {
    Argument& argument = output.argument;
    const std::string where = graph.symbol + ": " + argument.name;
    const TensorType& type = inference.Of(output.entry, where);
    CheckAgrees(type, argument.type, where);
    argument.type = type;
  }
  return result;
}

std::vector<std::string> ResultTypes(const Graph& graph,
                                     const std::vector<std::vector<int64_t>>& input_shapes) {
  std::vector<std::string> types;
  for (const Edge& output : Infer(graph, input_shapes).outputs) {
    types.push_back(ToText(output.argument.type));
  }
  return types;
}

}  // namespace tvm::runtime::contrib::dnnl_backend
