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
 * \file src/runtime/contrib/dnnl/core/node_reader.cc
 * \brief Typed access to a node of the graph: its op, attributes, shapes and fused post-ops.
 */
#include "node_reader.h"

#include "exec/threads.h"

namespace tvm::runtime::contrib::dnnl_backend {

NodeReader::NodeReader(const Node& node, const std::string& symbol)
    : node_(&node), symbol_(symbol), op_name_(node.name), inputs_(node.inputs) {
  op_name_ = Get<std::string>("root_op", op_name_);
  post_ops_ = Get<std::vector<std::string>>("post_ops", {});
}

std::string NodeReader::Where() const {
  std::string where = symbol_ + ", node " + std::to_string(id()) + " " + op_name_;
  if (NodeName() != op_name_) where += " of " + NodeName();
  return where;
}

const json::JSONAttr* NodeReader::Find(const std::string& key) const {
  const auto it = node_->attrs.find(prefix_ + key);
  return it == node_->attrs.end() || it->second.IsNull() ? nullptr : &it->second;
}

int NodeReader::Axis(const std::string& key, int otherwise, int rank) const {
  const int axis = Get<int>(key, otherwise);
  CORE_CHECK(axis >= -rank && axis < rank)
      << Where() << ": " << key << " " << axis << " is outside of rank " << rank;
  return axis < 0 ? axis + rank : axis;
}

int NodeReader::NumRootInputs() const {
  int count = static_cast<int>(inputs_.size());
  for (int i = 0; i < NumPostOps(); ++i) {
    if (PostOp(i).Operand() >= 0) --count;
  }
  return count;
}

const TensorType& NodeReader::Output(int index) const {
  CORE_CHECK(index < NumOutputs()) << Where() << ": output " << index << " does not exist";
  return node_->outputs[index];
}

Dims NodeReader::OutDims(int index) const { return ToDims(Output(index).shape, Where()); }

dnnl::memory::data_type NodeReader::OutType(int index) const {
  return ToDNNLType(Output(index).dtype, Where());
}

int NodeReader::NumThreads() const {
  const int num_threads = Get<int>("num_threads", 0);
  CORE_CHECK(num_threads >= 0 && num_threads <= kMaxThreads)
      << Where() << ": num_threads must be from 0 to " << kMaxThreads << ", but is " << num_threads;
  return num_threads;
}

NodeReader NodeReader::PostOp(int index) const {
  NodeReader reader = *this;
  reader.op_name_ = post_ops_.at(index);
  reader.prefix_ = "post_ops." + std::to_string(index) + ".";
  reader.post_ops_.clear();
  reader.inputs_ = {{id(), 0}};
  const int operand = reader.Operand();
  if (operand < 0) return reader;
  CORE_CHECK(operand < static_cast<int>(inputs_.size()))
      << reader.Where() << ": input " << operand << " is missing";
  const bool operand_first = reader.Get<bool>("operand_first", false);
  reader.inputs_.insert(operand_first ? reader.inputs_.begin() : reader.inputs_.end(),
                        inputs_[operand]);
  return reader;
}

NodeReader NodeReader::WithoutPostOps() const {
  NodeReader reader = *this;
  reader.inputs_.resize(NumRootInputs());
  reader.post_ops_.clear();
  return reader;
}

}  // namespace tvm::runtime::contrib::dnnl_backend
