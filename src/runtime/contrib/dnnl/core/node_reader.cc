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

bool IsQNNOp(const std::string& name) { return name.rfind("qnn.", 0) == 0; }

template <typename T>
bool ReadMember(const json::JSONAttr& object, const std::string& name, T* out) {
  const auto it = object.members().find(name);
  return it != object.members().end() && it->second.Read(out);
}

}  // namespace

NodeReader::NodeReader(const Node& node, const std::string& symbol)
    : node_(&node),
      symbol_(symbol),
      op_name_(node.name),
      attrs_(&node.attrs),
      inputs_(node.inputs) {
  op_name_ = Get<std::string>("root_op", op_name_);
  post_ops_ = &ObjectsOf<std::string>("post_ops", "op");
  // Each has a reader of its own, which is made again and again.
  constexpr size_t kMaxPostOps = 1024;
  CORE_CHECK(post_ops_->size() <= kMaxPostOps)
      << Where() << ": has " << post_ops_->size() << " post-ops, at most " << kMaxPostOps
      << " are allowed";
  num_post_ops_ = static_cast<int>(post_ops_->size());
  ReadDequantizations();
  num_root_inputs_ = CountRootInputs();
}

template <typename Id>
const json::JSONAttr::List& NodeReader::ObjectsOf(const std::string& key,
                                                  const std::string& id) const {
  static const json::JSONAttr::List kNone;
  const json::JSONAttr* attr = Find(key);
  if (attr == nullptr) return kNone;
  bool is_good = attr->kind() == json::JSONAttr::Kind::kList;
  Id value{};
  for (const json::JSONAttr& object : attr->items()) {
    is_good = is_good && ReadMember(object, id, &value);
  }
  CORE_CHECK(is_good) << Where() << ": attribute '" << key << "' is " << attr->Repr()
                      << ", expected: list of objects, each with \"" << id << "\"";
  return attr->items();
}

void NodeReader::ReadDequantizations() {
  for (const json::JSONAttr& object : ObjectsOf<int>("dequantize", "input")) {
    int input = -1;
    ReadMember(object, "input", &input);
    CORE_CHECK(input >= 0 && input < static_cast<int>(inputs_.size()))
        << Where() << ": attribute 'dequantize' names input " << input << ", but there are "
        << inputs_.size();
    dequantized_.resize(inputs_.size());
    CORE_CHECK(dequantized_[input] == nullptr)
        << Where() << ": attribute 'dequantize' names input " << input << " twice";
    dequantized_[input] = &object.members();
  }
}

std::string NodeReader::Where() const {
  std::string where = symbol_ + ", node " + std::to_string(id()) + " " + op_name_;
  if (NodeName() != op_name_) where += " of " + NodeName();
  return where;
}

const json::JSONAttr* NodeReader::Find(const std::string& key) const {
  const auto it = attrs_->find(key);
  return it == attrs_->end() || it->second.IsNull() ? nullptr : &it->second;
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
  reader.op_name_ = PostOpName(index);
  reader.attrs_ = &post_ops_->at(index).members();
  reader.path_ = "post_ops." + std::to_string(index) + ".";
  reader.num_post_ops_ = 0;
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
  reader.num_post_ops_ = 0;
  reader.SetOutputOf(0);
  return reader;
}

bool NodeReader::IsQuantized() const {
  for (int i = 0; i < NumPostOps(); ++i) {
    if (IsQNNOp(PostOpName(i))) return true;
  }
  return !is_float_ && !dequantized_.empty();
}

std::string NodeReader::PostOpName(int index) const {
  std::string name;
  ReadMember(post_ops_->at(index), "op", &name);
  return name;
}

bool NodeReader::IsDequantized(int input) const {
  const auto index = static_cast<size_t>(input);
  return !is_float_ && index < dequantized_.size() && dequantized_[index] != nullptr;
}

NodeReader NodeReader::Dequantization(int input) const {
  NodeReader reader = *this;
  reader.op_name_ = "qnn.dequantize";
  CORE_CHECK(IsDequantized(input)) << Where() << ": input " << input << " is not dequantized";
  reader.attrs_ = dequantized_[input];
  reader.path_ = "dequantize." + std::to_string(input) + ".";
  reader.num_post_ops_ = 0;
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
        << reader->Where() << ": attribute " << reader->path_ << key << " names input " << index
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
  if (NumPostOps() == 0 || PostOpName(NumPostOps() - 1) != "qnn.quantize") return *this;
  return WithFirstPostOps(NumPostOps() - 1);
}

NodeReader NodeReader::WithFirstPostOps(int count) const {
  NodeReader reader = *this;
  reader.num_post_ops_ = count;
  reader.SetOutputOf(count);
  return reader;
}

}  // namespace tvm::runtime::contrib::dnnl_backend
