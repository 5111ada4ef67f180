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
 * \file src/runtime/contrib/dnnl/core/plan/reserve.cc
 * \brief Memory with room for what later calls append, such as new keys and values to a cache.
 */
#include "reserve.h"

#include <algorithm>
#include <map>
#include <vector>

#include "../node_reader.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief How many nodes and outputs read each value. */
std::map<Entry, int> CountReaders(const Graph& graph) {
  std::map<Entry, int> readers;
  for (const Node& node : graph.nodes) {
    for (const Entry& input : node.inputs) ++readers[input];
  }
  for (const Edge& output : graph.outputs) ++readers[output.entry];
  return readers;
}

/*! \brief The only edge of a value, or nullptr. */
Edge* Find(std::vector<Edge>* edges, const Entry& entry) {
  Edge* only = nullptr;
  for (Edge& edge : *edges) {
    if (edge.entry < entry || entry < edge.entry) continue;
    if (only != nullptr) return nullptr;
    only = &edge;
  }
  return only;
}

}  // namespace

int64_t ReservedSize(int64_t size) {
  constexpr int64_t kLeast = 64;
  int64_t step = kLeast;
  while (8 * step <= size) step *= 2;
  return std::max<int64_t>(1, (size + step - 1) / step) * step;
}

std::vector<int64_t> ReservedStrides(const std::vector<int64_t>& shape, int axis) {
  std::vector<int64_t> strides(shape.size());
  int64_t stride = 1;
  for (int i = static_cast<int>(shape.size()) - 1; i >= 0; --i) {
    strides[i] = stride;
    stride *= i == axis ? ReservedSize(shape[i]) : shape[i];
  }
  return strides;
}

bool HasStrides(const DLTensor& tensor, int reserved_axis) {
  int64_t expected = 1, dense = 1;
  for (int i = tensor.ndim - 1; i >= 0; --i) {
    const int64_t size = tensor.shape[i];
    const int64_t stride = tensor.strides == nullptr ? dense : tensor.strides[i];
    if (size != 1 && stride != expected) return false;
    expected *= i == reserved_axis ? ReservedSize(size) : size;
    dense *= size;
  }
  return true;
}

dnnl::memory::desc DescOf(const Argument& argument) {
  const auto& [shape, dtype] = argument.type;
  const Dims dims = ToDims(shape, argument.name, /*may_be_empty=*/true);
  const auto type = ToDNNLType(dtype, argument.name);
  if (argument.reserved_axis < 0 || NumElements(dims) == 0) return PlainDesc(dims, type);
  return WithUsualStrides({dims, type, ReservedStrides(shape, argument.reserved_axis)});
}

std::vector<int> ReserveForAppends(Graph* graph) {
  const std::map<Entry, int> readers = CountReaders(*graph);
  std::vector<int> inputs(graph->outputs.size(), -1);
  for (const Node& node : graph->nodes) {
    if (node.name != "concatenate" || node.inputs.size() != 2) continue;
    Edge* const input = Find(&graph->inputs, node.inputs[0]);
    Edge* const output = Find(&graph->outputs, {node.id, 0});
    if (input == nullptr || output == nullptr || readers.at(input->entry) != 1) continue;
    const auto rank = static_cast<int>(input->argument.type.shape.size());
    const int axis = NodeReader(node, graph->symbol).Axis("axis", 0, rank);
    // The rows of one item would be contiguous.
    if (axis == 0) continue;
    input->argument.reserved_axis = output->argument.reserved_axis = axis;
    inputs[output - graph->outputs.data()] = static_cast<int>(input - graph->inputs.data());
  }
  return inputs;
}

}  // namespace tvm::runtime::contrib::dnnl_backend
