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
 * \file src/runtime/contrib/dnnl/tvm/json_graph.cc
 * \brief A JSON graph as one of the core.
 */
#include "json_graph.h"

#include <map>
#include <string>
#include <vector>

#include "../core/desc.h"
#include "../core/flat_attrs.h"

namespace tvm {
namespace runtime {
namespace contrib {
namespace dnnl_backend {

namespace {

struct NamedComposite {
  const char* name;
  const char* root_op;
  std::vector<std::string> post_ops;
};

const NamedComposite kNamedComposites[] = {
    {"dnnl.conv2d", "nn.conv2d", {}},
    {"dnnl.conv2d_relu", "nn.conv2d", {"nn.relu"}},
    {"dnnl.conv2d_bias", "nn.conv2d", {"add"}},
    {"dnnl.conv2d_bias_relu", "nn.conv2d", {"add", "nn.relu"}},
};

/*! \brief Whether an operand, aligned as numpy does, has one value per channel of a result only. */
bool IsPerChannel(const json::JSONGraphNode& conv, const std::vector<int64_t>& operand,
                  const std::vector<int64_t>& result) {
  if (!conv.HasAttr("kernel_layout") || operand.size() > result.size()) return false;
  std::string layout;
  if (conv.HasAttr("out_layout")) layout = conv.GetAttr<std::string>("out_layout");
  if (layout.empty()) layout = conv.GetAttr<std::string>("data_layout");
  const size_t axis = layout.find('C');
  if (axis >= result.size()) return false;
  std::vector<int64_t> expected(result.size(), 1), aligned(result.size() - operand.size(), 1);
  expected[axis] = result[axis];
  aligned.insert(aligned.end(), operand.begin(), operand.end());
  return aligned == expected;
}

/*! \brief Give a node of a known name the attributes root_op and post_ops, where it has none. */
void AddPostOpsByName(const std::vector<json::JSONGraphNode>& nodes, json::JSONGraphNode* node) {
  if (node->HasAttr("root_op")) return;
  for (const NamedComposite& composite : kNamedComposites) {
    if (node->GetOpName() != composite.name) continue;
    node->SetAttr("root_op", composite.root_op);
    if (composite.post_ops.empty()) return;
    node->SetAttr("post_ops", composite.post_ops);
    if (composite.post_ops[0] != "add") return;
    // The bias is the input after data and weights.
    node->SetAttr("post_ops.0.operand", "2");
    const auto inputs = node->GetInputs();
    if (inputs.size() != 3) return;
    const std::vector<int64_t> result = node->GetOpShape().at(0);
    const auto operand = nodes.at(inputs[2].id_).GetOpShape().at(inputs[2].index_);
    if (IsPerChannel(*node, operand, result)) node->SetAttr("post_ops.0.is_bias", "1");
    return;
  }
}

/*! \brief The types of a node's outputs. */
Types OutputTypes(const json::JSONGraphNode& node) {
  const auto shapes = node.GetOpShape();
  const auto dtypes = node.GetOpDataType();
  Types types;
  for (size_t i = 0; i < shapes.size(); ++i) types.push_back({shapes[i], WithOneBool(dtypes[i])});
  return types;
}

/*! \brief A kernel node as one of the core. */
Node NodeOf(const json::JSONGraph& graph, uint32_t id) {
  json::JSONGraphNode node = graph.nodes.at(id);
  const bool is_flat = graph.format_version == json::kJSONGraphRows;
  if (is_flat) AddPostOpsByName(graph.nodes, &node);
  Node result{id, node.GetOpName(), node.attrs(), {}, OutputTypes(node)};
  if (is_flat) NestAttrs(&result.attrs);
  for (const json::JSONGraphNodeEntry& input : node.GetInputs()) {
    result.inputs.push_back({input.id_, input.index_});
  }
  return result;
}

}  // namespace

Graph GraphOf(const std::string& symbol, const json::JSONGraph& json,
              const std::vector<std::string>& const_names) {
  const auto edge = [&json](uint32_t id, uint32_t index, const std::string& name) -> Edge {
    return {{id, index}, {name, OutputTypes(json.nodes.at(id)).at(index)}};
  };
  Graph graph;
  graph.symbol = graph.name = symbol;
  std::map<std::string, uint32_t> constants;
  for (uint32_t id : json.arg_nodes) {
    const json::JSONGraphNode& node = json.nodes[id];
    const std::string name = node.GetOpName();
    if (node.GetOpType() == "const") {
      constants[name] = id;
      continue;
    }
    for (uint32_t i = 0; i < node.GetNumOutput(); ++i) {
      graph.inputs.push_back(edge(id, i, "input " + name));
    }
  }
  for (const std::string& name : const_names) {
    graph.constants.push_back({edge(constants.at(name), 0, symbol + ": " + name), nullptr});
  }
  for (uint32_t id = 0; id < json.nodes.size(); ++id) {
    if (!json.nodes[id].IsLeaf()) graph.nodes.push_back(NodeOf(json, id));
  }
  for (size_t i = 0; i < json.heads.size(); ++i) {
    const json::JSONGraphNodeEntry& head = json.heads[i];
    graph.outputs.push_back(edge(head.id_, head.index_, "output " + std::to_string(i)));
  }
  return graph;
}

}  // namespace dnnl_backend
}  // namespace contrib
}  // namespace runtime
}  // namespace tvm
