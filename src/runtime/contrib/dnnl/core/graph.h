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
 * \file src/runtime/contrib/dnnl/core/graph.h
 * \brief The source of a plan: the nodes of a subgraph, its inputs, constants and outputs.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_GRAPH_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_GRAPH_H_

#include <dlpack/dlpack.h>

#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "../../json/json_attr.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief One output of one node. */
struct Entry {
  uint32_t node;
  uint32_t index;

  bool operator<(const Entry& other) const {
    return std::tie(node, index) < std::tie(other.node, other.index);
  }
};

/*! \brief A dimension whose size only a call tells. */
constexpr int64_t kOpen = -1;

/*! \brief Shape and element type of a dense row-major tensor. */
struct TensorType {
  /*! \brief The size of each dimension, or kOpen; empty for a scalar. */
  std::vector<int64_t> shape;
  DLDataType dtype;
};

/*! \brief The size of a tensor without open dimensions. */
inline size_t BytesOf(const TensorType& type) {
  size_t bytes = (type.dtype.bits * type.dtype.lanes + 7) / 8;
  for (int64_t dim : type.shape) bytes *= dim;
  return bytes;
}

using Types = std::vector<TensorType>;

/*! \brief The attributes of an op by name. */
using Attrs = json::JSONAttr::Object;

/*! \brief An op, or a composite of several, with what it reads and what it writes. */
struct Node {
  uint32_t id;
  /*! \brief The Relay op, or the name of the composite. */
  std::string name;
  Attrs attrs;
  std::vector<Entry> inputs;
  Types outputs;
  /*!
   * \brief The results of each op of a composite: the root op, then each post-op. `Infer` fills it;
   * it is empty before that.
   */
  Types op_types{};
};

/*! \brief The type that a caller must pass at one position. */
struct Argument {
  /*! \brief How errors call it. */
  std::string name;
  TensorType type;
  /*! \brief The axis along which its memory has room for more, see reserve.h; -1 for none. */
  int reserved_axis = -1;
};

/*! \brief An input or output of the subgraph. */
struct Edge {
  Entry entry;
  Argument argument;
};

/*! \brief A value that is the same in every run. */
struct Constant {
  Edge edge;
  /*! \brief The values; it keeps them alive. */
  std::shared_ptr<void> data;
  /*! \brief Whether runs pass it as an argument: the plan serves graphs that differ in it. */
  bool is_passed{false};
};

/*! \brief A subgraph that is to become a plan. */
struct Graph {
  /*! \brief The function that it is part of. */
  std::string symbol;
  /*! \brief How reports call the subgraph. */
  std::string name;
  /*! \brief In topological order. */
  std::vector<Node> nodes;
  std::vector<Edge> inputs;
  std::vector<Constant> constants;
  std::vector<Edge> outputs;
  /*! \brief Whether the constants keep their own memory alive, or a caller promises to. */
  bool owns_constants{true};
  /*! \brief Whether plans of other shapes read the same constants. */
  bool has_other_shapes{false};
};

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_GRAPH_H_
