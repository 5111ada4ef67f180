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

#include <algorithm>
#include <string>

#include "exec/threads.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

const char* const kDequantizePrefix = "dequantize.";

std::string DequantizationOf(int input) { return kDequantizePrefix + std::to_string(input) + "."; }

bool IsQNNOp(const std::string& name) { return name.rfind("qnn.", 0) == 0; }

/*! \brief Whether a node has attributes that say how an input is dequantized. */
bool HasDequantization(const Node& node) {
  const std::string key = kDequantizePrefix;
  const auto first = node.attrs.lower_bound(key);
  return first != node.attrs.end() && first->first.compare(0, key.size(), key) == 0;
}

}  // namespace

NodeReader::NodeReader(const Node& node, const std::string& symbol)
    : node_(&node), symbol_(symbol), op_name_(node.name), inputs_(node.inputs) {
  op_name_ = Get<std::string>("root_op", op_name_);
  post_ops_ = Get<std::vector<std::string>>("post_ops", {});
  // Each has a reader of its own, which is made again and again.
  constexpr size_t kMaxPostOps = 1024;
  CORE_CHECK(post_ops_.size() <= kMaxPostOps)
      << Where() << ": has " << post_ops_.size() << " post-ops, at most " << kMaxPostOps
      << " are allowed";
  num_root_inputs_ = CountRootInputs();
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

int NodeReader::CountRootInputs() const {
  // Each scale comes with a zero point.
  int count = static_cast<int>(inputs_.size());
  for (int i = 0; i < NumPostOps(); ++i) {
    const NodeReader post_op = PostOp(i);
    if (post_op.Operand() >= 0) --count;
    if (post_op.IsQNN()) count -= 2;
  }
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (IsDequantized(i)) count -= 2;
  }
  CORE_CHECK(count >= 0) << Where() << ": has fewer inputs than its attributes name";
  return count;
}

const TensorType& NodeReader::Output(int index) const {
  if (index == 0 && output_) return *output_;
  CORE_CHECK(index < NumOutputs()) << Where() << ": output " << index << " does not exist";
  return node_->outputs[index];
}

void NodeReader::SetOutputOf(size_t op) {
  if (op < node_->op_types.size()) output_ = node_->op_types[op];
}

int NodeReader::NumThreads() const {
  const int num_threads = Get<int>("num_threads", 0);
  CORE_CHECK(num_threads >= 0 && num_threads <= kMaxThreads)
      << Where() << ": num_threads must be from 0 to " << kMaxThreads << ", but is " << num_threads;
  return num_threads;
}

bool NodeReader::IsQNN() const { return IsQNNOp(op_name_); }

NodeReader NodeReader::PostOp(int index) const {
  NodeReader reader = *this;
  reader.op_name_ = post_ops_.at(index);
  reader.prefix_ = "post_ops." + std::to_string(index) + ".";
  reader.post_ops_.clear();
  reader.inputs_ = {{id(), 0}};
  reader.num_root_inputs_ = 1;
  if (reader.IsQNN()) AddScaleTo(&reader);
  reader.SetOutputOf(index + 1);
  const int operand = reader.Operand();
  if (operand < 0) return reader;
  CORE_CHECK(operand < static_cast<int>(inputs_.size()))
      << reader.Where() << ": input " << operand << " is missing";
  const bool operand_first = reader.Get<bool>("operand_first", false);
  reader.inputs_.insert(operand_first ? reader.inputs_.begin() : reader.inputs_.end(),
                        inputs_[operand]);
  ++reader.num_root_inputs_;
  return reader;
}

NodeReader NodeReader::WithoutPostOps() const {
  NodeReader reader = *this;
  reader.inputs_.resize(NumRootInputs());
  reader.post_ops_.clear();
  reader.SetOutputOf(0);
  return reader;
}

bool NodeReader::IsQuantized() const {
  for (const std::string& name : post_ops_) {
    if (IsQNNOp(name)) return true;
  }
  return !is_float_ && HasDequantization(*node_);
}

bool NodeReader::IsDequantized(int input) const {
  return !is_float_ && node_->attrs.count(DequantizationOf(input) + "scale") > 0;
}

NodeReader NodeReader::Dequantization(int input) const {
  NodeReader reader = *this;
  reader.op_name_ = "qnn.dequantize";
  reader.prefix_ = DequantizationOf(input);
  reader.post_ops_.clear();
  reader.inputs_ = {inputs_.at(input)};
  reader.num_root_inputs_ = 1;
  AddScaleTo(&reader);
  // Nobody asks for its shape, which is that of the input.
  reader.output_ = TensorType{{}, {kDLFloat, 32, 1}};
  return reader;
}

void NodeReader::AddScaleTo(NodeReader* reader) const {
  for (const char* key : {"scale", "zero_point"}) {
    const int index = reader->Get<int>(key);
    CORE_CHECK(index >= 0 && index < static_cast<int>(node_->inputs.size()))
        << reader->Where() << ": attribute " << reader->prefix_ << key << " names input " << index
        << ", but there are " << node_->inputs.size();
    reader->inputs_.push_back(node_->inputs[index]);
    ++reader->num_root_inputs_;
  }
}

NodeReader NodeReader::InFloat32() const {
  NodeReader reader = *this;
  for (int i = 0; i < static_cast<int>(inputs_.size()); ++i) {
    // The node has no outputs of these numbers.
    if (IsDequantized(i)) reader.inputs_[i] = {id(), static_cast<uint32_t>(NumOutputs() + i)};
  }
  reader.is_float_ = true;
  return reader;
}

NodeReader NodeReader::WithoutQuantization() const {
  if (post_ops_.empty() || post_ops_.back() != "qnn.quantize") return *this;
  return WithFirstPostOps(NumPostOps() - 1);
}

NodeReader NodeReader::WithFirstPostOps(int count) const {
  NodeReader reader = *this;
  reader.post_ops_.resize(count);
  reader.SetOutputOf(count);
  return reader;
}

}  // namespace tvm::runtime::contrib::dnnl_backend
