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

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "desc.h"
#include "error.h"
#include "graph.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*!
 * \brief A kernel node as a lowering sees it.
 *
 * A composite carries the attributes of its root op under their own names, and those of its
 * post-ops as the list of objects "post_ops", each with the name of its "op"; `PostOp(i)` is a
 * reader of one. Where the op reads its k-th input dequantized, the list "dequantize" has an object
 * with "input" k; `Dequantization(k)` reads it.
 */
class NodeReader {
 public:
  /*! \brief A reader of a node that outlives it, of the function `symbol`. */
  NodeReader(const Node& node, const std::string& symbol);

  /*! \brief "tvmgen_default_dnnl_main_0, node 7 nn.conv2d": the start of every error. */
  std::string Where() const;

  /*! \brief The Relay op to lower: the root op of a composite. */
  const std::string& OpName() const { return op_name_; }
  /*! \brief The node's own name: for a composite, the composite's. */
  const std::string& NodeName() const { return node_->name; }
  uint32_t id() const { return node_->id; }

  /*! \brief A required attribute. */
  template <typename T>
  T Get(const std::string& key) const {
    const json::JSONAttr* attr = Find(key);
    CORE_CHECK(attr != nullptr) << Where() << ": attribute " << path_ << key << " is missing";
    T value{};
    CORE_CHECK(attr->Read(&value))
        << Where() << ": attribute '" << path_ << key << "' is " << attr->Repr()
        << ", expected: " << json::AttrTypeName<T>::Get();
    return value;
  }

  /*! \brief An attribute with a default for when it is absent or null. */
  template <typename T>
  T Get(const std::string& key, T otherwise) const {
    return Has(key) ? Get<T>(key) : std::move(otherwise);
  }

  /*! \brief Whether the attribute is there and not null. */
  bool Has(const std::string& key) const { return Find(key) != nullptr; }

  /*! \brief An axis, from the start: negative ones count from the end. */
  int Axis(const std::string& key, int otherwise, int rank) const;

  /*!
   * \brief All inputs: those of the root op, the operands of the post-ops, and last the scales and
   * zero points of what is quantized.
   */
  const std::vector<Entry>& Inputs() const { return inputs_; }
  /*! \brief How many of the inputs belong to the root op. */
  int NumRootInputs() const { return num_root_inputs_; }
  int NumOutputs() const { return static_cast<int>(node_->outputs.size()); }

  /*! \brief The type of an output, of a post-op or root op what it makes inside the composite. */
  const TensorType& Output(int index = 0) const;
  /*! \brief The dims of an output; {1} for a scalar. */
  Dims OutDims(int index = 0) const { return ToDims(Output(index).shape, Where()); }
  /*! \brief The dims of the root op's result, which a following reshape may change. */
  Dims RootDims() const { return NumPostOps() > 0 ? WithoutPostOps().OutDims() : OutDims(); }
  dnnl::memory::data_type OutType(int index = 0) const {
    return ToDNNLType(Output(index).dtype, Where());
  }

  int NumPostOps() const { return num_post_ops_; }
  /*! \brief A post-op as a node of its own, which reads and replaces this node's result. */
  NodeReader PostOp(int index) const;
  /*! \brief The root op as a node of its own. */
  NodeReader WithoutPostOps() const;
  /*! \brief The root op with its first post-ops as a node of its own. */
  NodeReader WithFirstPostOps(int count) const;
  /*! \brief For a post-op: which of the node's inputs is its second operand, or -1. */
  int Operand() const { return Get<int>("operand", -1); }

  /*! \brief Whether the op is qnn.quantize or qnn.dequantize. */
  bool IsQNN() const;
  /*! \brief Whether the node dequantizes an input or quantizes a result of its ops. */
  bool IsQuantized() const;
  /*! \brief Whether the op reads the dequantized values of an input. */
  bool IsDequantized(int input) const;
  /*! \brief The dequantization of an input, as a node of data, scale and zero point. */
  NodeReader Dequantization(int input) const;
  /*! \brief The node with its inputs in float32, which `PlanBuilder::SetInput` is to set. */
  NodeReader InFloat32() const;
  /*! \brief The node without the quantization at its end, if there is one. */
  NodeReader WithoutQuantization() const;

  /*! \brief How many threads the model was compiled for, which each kernel says; 0 for any. */
  int NumThreads() const;

 private:
  /*! \brief The attribute; nullptr where it is absent or null. */
  const json::JSONAttr* Find(const std::string& key) const;
  /*!
   * \brief An attribute of the node that is a list of objects, each with a member "id".
   * \tparam Id The type of that member.
   */
  template <typename Id>
  const json::JSONAttr::List& ObjectsOf(const std::string& key, const std::string& id) const;
  void ReadDequantizations();
  int CountRootInputs() const;
  std::string PostOpName(int index) const;
  /*! \brief Append the inputs that a reader's attributes "scale" and "zero_point" name. */
  void AddScaleTo(NodeReader* reader) const;
  /*! \brief Say that output 0 is what the node's i-th op makes, if that is known. */
  void SetOutputOf(size_t op);

  const Node* node_;
  std::string symbol_;
  std::string op_name_;
  /*! \brief The op's own: those of the node, or an object in them. */
  const Attrs* attrs_;
  /*! \brief Where that object is, with a dot at the end; errors name attributes so. */
  std::string path_;
  const json::JSONAttr::List* post_ops_;
  /*! \brief How each input is dequantized; nullptr where it is not. Empty if none is. */
  std::vector<const Attrs*> dequantized_;
  int num_post_ops_{0};
  std::vector<Entry> inputs_;
  int num_root_inputs_{0};
  /*! \brief The type that the op writes where that is not the node's output. */
  std::optional<TensorType> output_;
  /*! \brief Whether others dequantize the inputs. */
  bool is_float_{false};
};

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_NODE_READER_H_
