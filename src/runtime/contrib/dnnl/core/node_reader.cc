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

#include <tvm/runtime/logging.h>

#include "exec/threads.h"

namespace tvm {
namespace runtime {
namespace contrib {
namespace dnnl_backend {

NodeReader::NodeReader(const JSONGraphNode& node, size_t id, const std::string& symbol)
    : node_(&node),
      id_(id),
      symbol_(symbol),
      op_name_(node.GetOpName()),
      inputs_(node.GetInputs()) {
  if (Has("root_op")) op_name_ = Get<std::string>("root_op");
  post_ops_ = Get<std::vector<std::string>>("post_ops", {});
}

std::string NodeReader::Where() const {
  std::string where = symbol_ + ", node " + std::to_string(id_) + " " + op_name_;
  if (NodeName() != op_name_) where += " of " + NodeName();
  return where;
}

bool NodeReader::Has(const std::string& key) const {
  if (!node_->HasAttr(prefix_ + key)) return false;
  // A null attribute is written as one empty string.
  const auto rows = node_->GetAttr<std::vector<std::vector<std::string>>>(prefix_ + key);
  return !(rows.size() == 1 && rows[0].size() == 1 && rows[0][0].empty());
}

int NodeReader::Axis(const std::string& key, int otherwise, int rank) const {
  const int axis = Get<int>(key, otherwise);
  ICHECK(axis >= -rank && axis < rank)
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

Dims NodeReader::OutDims(int index) const {
  const auto shapes = node_->GetOpShape();
  ICHECK_LT(index, shapes.size()) << Where() << ": output " << index << " does not exist";
  return ToDims(shapes[index], Where());
}

dnnl::memory::data_type NodeReader::OutType(int index) const {
  const auto dtypes = node_->GetOpDataType();
  ICHECK_LT(index, dtypes.size()) << Where() << ": output " << index << " does not exist";
  return ToDNNLType(dtypes[index], Where());
}

int NodeReader::NumThreads() const {
  const int num_threads = Get<int>("num_threads", 0);
  ICHECK(num_threads >= 0 && num_threads <= kMaxThreads)
      << Where() << ": num_threads must be from 0 to " << kMaxThreads << ", but is " << num_threads;
  return num_threads;
}

NodeReader NodeReader::PostOp(int index) const {
  NodeReader reader = *this;
  reader.op_name_ = post_ops_.at(index);
  reader.prefix_ = "post_ops." + std::to_string(index) + ".";
  reader.post_ops_.clear();
  reader.inputs_ = {JSONGraphNodeEntry(static_cast<int>(id_), 0)};
  const int operand = reader.Operand();
  if (operand < 0) return reader;
  ICHECK_LT(operand, inputs_.size()) << reader.Where() << ": input " << operand << " is missing";
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

}  // namespace dnnl_backend
}  // namespace contrib
}  // namespace runtime
}  // namespace tvm
