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
 * \file src/runtime/contrib/dnnl/core/node_reader.h
 * \brief Typed access to a node of the graph: its op, attributes, shapes and fused post-ops.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_NODE_READER_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_NODE_READER_H_

#include <string>
#include <utility>
#include <vector>

#include "../../json/json_node.h"
#include "utils.h"

namespace tvm {
namespace runtime {
namespace contrib {
namespace dnnl_backend {

/*!
 * \brief A kernel node as a lowering sees it.
 *
 * A composite carries the attributes of its root op under their own names, and those of its i-th
 * post-op under "post_ops.<i>."; `PostOp(i)` is a reader of the latter.
 */
class NodeReader {
 public:
  using JSONGraphNode = tvm::runtime::json::JSONGraphNode;
  using JSONGraphNodeEntry = tvm::runtime::json::JSONGraphNodeEntry;

  NodeReader(const JSONGraphNode& node, size_t id, const std::string& symbol);

  /*! \brief "tvmgen_default_dnnl_main_0, node 7 nn.conv2d": the start of every error. */
  std::string Where() const;

  /*! \brief The Relay op to lower: the root op of a composite. */
  const std::string& OpName() const { return op_name_; }
  /*! \brief The node's own name: for a composite, the composite's. */
  std::string NodeName() const { return node_->GetOpName(); }
  size_t id() const { return id_; }

  /*! \brief A required attribute. */
  template <typename T>
  T Get(const std::string& key) const {
    ICHECK(Has(key)) << Where() << ": attribute " << prefix_ << key << " is missing";
    return node_->GetAttr<T>(prefix_ + key);
  }

  /*! \brief An attribute with a default for when it is absent or null. */
  template <typename T>
  T Get(const std::string& key, T otherwise) const {
    return Has(key) ? node_->GetAttr<T>(prefix_ + key) : std::move(otherwise);
  }

  /*! \brief Whether the attribute is there and not null. */
  bool Has(const std::string& key) const;

  /*! \brief An axis, from the start: negative ones count from the end. */
  int Axis(const std::string& key, int otherwise, int rank) const;

  /*! \brief All inputs: those of the root op, then the operands of the post-ops. */
  const std::vector<JSONGraphNodeEntry>& Inputs() const { return inputs_; }
  /*! \brief How many of the inputs belong to the root op. */
  int NumRootInputs() const;
  int NumOutputs() const { return static_cast<int>(node_->GetNumOutput()); }

  /*! \brief The dims of an output; {1} for a scalar. */
  Dims OutDims(int index = 0) const;
  dnnl::memory::data_type OutType(int index = 0) const;

  int NumPostOps() const { return static_cast<int>(post_ops_.size()); }
  /*! \brief A post-op as a node of its own, which reads and replaces this node's result. */
  NodeReader PostOp(int index) const;
  /*! \brief The root op as a node of its own. */
  NodeReader WithoutPostOps() const;
  /*! \brief Of a post-op: which of the node's inputs is its second operand, or -1. */
  int Operand() const { return Get<int>("operand", -1); }

  /*! \brief How many threads the model was compiled for, which each kernel says; 0 for any. */
  int NumThreads() const;

 private:
  const JSONGraphNode* node_;
  size_t id_;
  std::string symbol_;
  std::string op_name_;
  std::string prefix_;
  std::vector<std::string> post_ops_;
  std::vector<JSONGraphNodeEntry> inputs_;
};

}  // namespace dnnl_backend
}  // namespace contrib
}  // namespace runtime
}  // namespace tvm

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_NODE_READER_H_
