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
 * \file src/runtime/contrib/dnnl/c_source/op_kernel.cc
 * \brief A single op of the C-source path as a plan of one node.
 */
#include "op_kernel.h"

#include <tvm/runtime/data_type.h>
#include <tvm/runtime/logging.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../core/exec/fork.h"
#include "../core/exec/recorder.h"
#include "../core/flat_attrs.h"
#include "../core/graph.h"
#include "../core/lowering.h"
#include "../core/plan/allocator.h"
#include "attr_text.h"

namespace tvm {
namespace runtime {
namespace contrib {
namespace dnnl_backend {

namespace {

std::vector<int64_t> ShapeOf(const TVMDNNLTensor& tensor, const std::string& where) {
  ICHECK(tensor.ndim >= 0 && tensor.ndim <= TVM_DNNL_MAX_NDIM)
      << where << ": a tensor has rank " << tensor.ndim << ", outside of 0 to "
      << TVM_DNNL_MAX_NDIM;
  return std::vector<int64_t>(tensor.shape, tensor.shape + tensor.ndim);
}

TensorType TypeOf(const TVMDNNLTensor& tensor, const std::string& where) {
  return {ShapeOf(tensor, where), String2DLDataType(tensor.dtype)};
}

Argument ArgumentOf(const TVMDNNLOp& op, int index, const std::string& where) {
  const bool is_input = index < op.num_inputs;
  const std::string name = is_input ? "input " + std::to_string(index)
                                    : "output " + std::to_string(index - op.num_inputs);
  return {where + ", " + name, TypeOf(op.tensors[index], where)};
}

/*! \brief Where the nodes of the inputs begin, so that the op's own number is free. */
constexpr uint32_t kInputs = 1u << 30;

/*! \brief The node that the JSON codegen would have written for the op. */
Node NodeOf(const TVMDNNLOp& op, const std::string& where) {
  Node node{static_cast<uint32_t>(op.id), op.name, {}, {}, {}};
  for (int i = 0; i < op.num_inputs; ++i) node.inputs.push_back({kInputs + i, 0});
  for (int i = 0; i < op.num_attrs; ++i) {
    node.attrs[op.attrs[i].name] = FromAttrText(op.attrs[i].value);
  }
  NestAttrs(&node.attrs);
  for (int i = 0; i < op.num_outputs; ++i) {
    node.outputs.push_back(TypeOf(op.tensors[op.num_inputs + i], where));
  }
  return node;
}

/*! \brief The values at an address; they are copied only when not aligned. */
std::shared_ptr<void> ValuesAt(void* data, const TensorType& type) {
  if (reinterpret_cast<uintptr_t>(data) % kAlignment == 0) return {data, [](void*) {}};
  size_t bytes = (type.dtype.bits * type.dtype.lanes + 7) / 8;
  for (int64_t dim : type.shape) bytes *= dim;
  std::shared_ptr<void> copy = AllocAligned(bytes);
  std::memcpy(copy.get(), data, bytes);
  return copy;
}

Graph GraphOf(const TVMDNNLOp& op, const std::vector<void*>& constants) {
  Graph graph;
  graph.symbol = op.symbol;
  graph.name = WhereIs(op);
  // The constants are the caller's, who only promises to keep them as long as this op.
  graph.owns_constants = false;
  graph.nodes.push_back(NodeOf(op, graph.name));
  for (int i = 0; i < op.num_inputs; ++i) {
    const Edge edge{{kInputs + i, 0}, ArgumentOf(op, i, graph.name)};
    if (constants[i] != nullptr) {
      graph.constants.push_back({edge, ValuesAt(constants[i], edge.argument.type)});
    } else {
      graph.inputs.push_back(edge);
    }
  }
  for (uint32_t i = 0; i < static_cast<uint32_t>(op.num_outputs); ++i) {
    graph.outputs.push_back(
        {{graph.nodes[0].id, i}, ArgumentOf(op, op.num_inputs + i, graph.name)});
  }
  return graph;
}

}  // namespace

std::string WhereIs(const TVMDNNLOp& op) {
  return std::string(op.symbol) + ", node " + std::to_string(op.id) + " " + op.name;
}

OpKernel::OpKernel(const TVMDNNLOp& op, const std::vector<void*>& constants)
    : plan_(CallWithOpenMP([&]() { return MakePlan(GraphOf(op, constants)); })), contexts_(plan_) {
  for (int i = 0; i < op.num_inputs + op.num_outputs; ++i) {
    if (i < op.num_inputs && constants[i] != nullptr) {
      constants_.emplace_back(i, constants[i]);
    } else {
      arguments_.push_back(i);
    }
  }
}

void OpKernel::Run(const TVMDNNLOp& op, void* const* data) {
  for (const auto& [index, address] : constants_) {
    ICHECK(data[index] == address)
        << WhereIs(op) << ": input " << index << " is constant, but was at another address when "
        << "it was packed. Release the op before its constants move or change";
  }
  std::unique_ptr<Context> context = contexts_.Take();
  std::vector<void*>* addresses = context->addresses();
  for (size_t i = 0; i < arguments_.size(); ++i) {
    const int index = arguments_[i];
    ICHECK(data[index] != nullptr)
        << WhereIs(op) << ": " << (index < op.num_inputs ? "input " : "output ")
        << (index < op.num_inputs ? index : index - op.num_inputs) << " is null";
    (*addresses)[i] = data[index];
  }
  Recorder* recorder = Recorder::OfThread();
  if (recorder != nullptr) recorder->Announce(WhereIs(op));
  CallWithOpenMP([&]() { context->Run(*addresses, recorder); });
  contexts_.Return(std::move(context));
}

}  // namespace dnnl_backend
}  // namespace contrib
}  // namespace runtime
}  // namespace tvm
