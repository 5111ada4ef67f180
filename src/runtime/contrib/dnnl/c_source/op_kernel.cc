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

#include <tvm/runtime/device_api.h>
#include <tvm/runtime/logging.h>
#include <tvm/runtime/ndarray.h>

#include "../../json/json_node.h"
#include "../core/exec/fork.h"
#include "../core/exec/recorder.h"
#include "../core/node_reader.h"
#include "../core/op_table.h"
#include "../core/plan/plan_builder.h"
#include "attr_text.h"

namespace tvm {
namespace runtime {
namespace contrib {
namespace dnnl_backend {

namespace {

using json::JSONGraphNode;
using json::JSONGraphNodeEntry;

std::vector<int64_t> ShapeOf(const TVMDNNLTensor& tensor, const std::string& where) {
  ICHECK(tensor.ndim >= 0 && tensor.ndim <= TVM_DNNL_MAX_NDIM)
      << where << ": a tensor has rank " << tensor.ndim << ", outside of 0 to "
      << TVM_DNNL_MAX_NDIM;
  return std::vector<int64_t>(tensor.shape, tensor.shape + tensor.ndim);
}

Argument ArgumentOf(const TVMDNNLOp& op, int index, const std::string& where) {
  const bool is_input = index < op.num_inputs;
  const std::string name = is_input ? "input " + std::to_string(index)
                                    : "output " + std::to_string(index - op.num_inputs);
  const TVMDNNLTensor& tensor = op.tensors[index];
  return {where + ", " + name, ShapeOf(tensor, where), String2DLDataType(tensor.dtype)};
}

/*! \brief Where the nodes of the inputs begin, so that the op's own number is free. */
constexpr uint32_t kInputs = 1u << 30;

/*! \brief The node that the JSON codegen would have written for the op. */
JSONGraphNode NodeOf(const TVMDNNLOp& op, const std::string& where) {
  std::vector<JSONGraphNodeEntry> inputs;
  for (int i = 0; i < op.num_inputs; ++i) inputs.emplace_back(kInputs + i, 0);
  JSONGraphNode node(op.name, "kernel", inputs, op.num_outputs);
  for (int i = 0; i < op.num_attrs; ++i) {
    node.SetAttr(op.attrs[i].name, FromAttrText(op.attrs[i].value));
  }
  std::vector<std::vector<int64_t>> shapes;
  std::vector<std::string> dtypes;
  for (int i = 0; i < op.num_outputs; ++i) {
    const TVMDNNLTensor& tensor = op.tensors[op.num_inputs + i];
    shapes.push_back(ShapeOf(tensor, where));
    dtypes.push_back(tensor.dtype);
  }
  node.SetAttr("shape", std::move(shapes));
  node.SetAttr("dtype", std::move(dtypes));
  return node;
}

void DeleteManaged(DLManagedTensor* tensor) {
  delete[] tensor->dl_tensor.shape;
  delete tensor;
}

/*! \brief The values at an address as an array of TVM; they are copied only when not aligned. */
NDArray ArrayAt(void* data, const Argument& type) {
  const ShapeTuple shape(type.shape.begin(), type.shape.end());
  const Device cpu{kDLCPU, 0};
  if (reinterpret_cast<uintptr_t>(data) % kAllocAlignment != 0) {
    NDArray copy = NDArray::Empty(shape, type.dtype, cpu);
    copy.CopyFromBytes(data, GetDataSize(*copy.operator->()));
    return copy;
  }
  auto* managed = new DLManagedTensor{};
  managed->dl_tensor.data = data;
  managed->dl_tensor.device = cpu;
  managed->dl_tensor.ndim = static_cast<int>(type.shape.size());
  managed->dl_tensor.dtype = type.dtype;
  managed->dl_tensor.shape = new int64_t[type.shape.size() + 1];
  std::copy(type.shape.begin(), type.shape.end(), managed->dl_tensor.shape);
  managed->deleter = DeleteManaged;
  return NDArray::FromDLPack(managed);
}

std::shared_ptr<const Plan> BuildPlan(const TVMDNNLOp& op, const std::vector<void*>& constants) {
  CheckLibraryVersion();
  const std::string where = WhereIs(op);
  const JSONGraphNode node = NodeOf(op, where);
  const NodeReader reader(node, op.id, op.symbol);
  // The constants are the caller's, who only promises to keep them as long as this op.
  PlanBuilder builder(where, /*owns_constants=*/false, reader.NumThreads());
  for (int i = 0; i < op.num_inputs; ++i) {
    const JSONGraphNodeEntry entry(kInputs + i, 0);
    const Argument argument = ArgumentOf(op, i, where);
    if (constants[i] != nullptr) {
      builder.AddConstant(entry, ArrayAt(constants[i], argument), argument.name);
    } else {
      builder.AddInput(entry, argument);
    }
  }
  LowerNode(reader, &builder);
  for (int i = 0; i < op.num_outputs; ++i) {
    builder.AddOutput(JSONGraphNodeEntry(op.id, i), ArgumentOf(op, op.num_inputs + i, where));
  }
  return builder.Finish();
}

}  // namespace

std::string WhereIs(const TVMDNNLOp& op) {
  return std::string(op.symbol) + ", node " + std::to_string(op.id) + " " + op.name;
}

OpKernel::OpKernel(const TVMDNNLOp& op, const std::vector<void*>& constants)
    : plan_(CallWithOpenMP([&]() { return BuildPlan(op, constants); })), contexts_(plan_) {
  for (int i = 0; i < op.num_inputs + op.num_outputs; ++i) {
    if (i < op.num_inputs && constants[i] != nullptr) {
      constants_.emplace_back(i, constants[i]);
    } else {
      arguments_.push_back(i);
    }
  }
}

void OpKernel::Run(const TVMDNNLOp& op, void* const* data) {
  for (const auto& [place, address] : constants_) {
    ICHECK(data[place] == address)
        << WhereIs(op) << ": input " << place << " is constant, but was at another address when "
        << "it was packed. Release the op before its constants move or change";
  }
  std::unique_ptr<Context> context = contexts_.Take();
  std::vector<void*>* addresses = context->addresses();
  for (size_t i = 0; i < arguments_.size(); ++i) {
    const int place = arguments_[i];
    ICHECK(data[place] != nullptr)
        << WhereIs(op) << ": " << (place < op.num_inputs ? "input " : "output ")
        << (place < op.num_inputs ? place : place - op.num_inputs) << " is null";
    (*addresses)[i] = data[place];
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
