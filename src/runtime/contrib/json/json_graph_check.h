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
 * \file src/runtime/contrib/json/json_graph_check.h
 * \brief Whether a JSON graph that came from a file can be executed safely.
 *
 * A file from disk is not trusted. After this check a backend may index nodes, entries, shapes and
 * types as the graph says, without looking again.
 */
#ifndef TVM_RUNTIME_CONTRIB_JSON_JSON_GRAPH_CHECK_H_
#define TVM_RUNTIME_CONTRIB_JSON_JSON_GRAPH_CHECK_H_

#include <cstdint>
#include <exception>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "json_graph.h"

namespace tvm {
namespace runtime {
namespace json {

/*! \brief Bounds far above what a model has and far below what would exhaust the machine. */
struct JSONGraphLimits {
  static constexpr size_t kNodes = 1 << 20;
  static constexpr size_t kInputsOfNode = 1 << 16;
  static constexpr size_t kOutputsOfNode = 1 << 16;
  static constexpr size_t kHeads = 1 << 16;
  static constexpr size_t kRank = 32;
};

/*! \brief Checks one graph. See CheckJSONGraph. */
class JSONGraphChecker {
 public:
  JSONGraphChecker(const std::string& symbol, const JSONGraph& graph)
      : symbol_(symbol), g_(graph) {}

  template <typename Names>
  void CheckAll(const Names& const_names) const {
    JSON_CHECK(!g_.nodes.empty()) << Where() << " has no nodes";
    JSON_CHECK_LE(g_.nodes.size(), JSONGraphLimits::kNodes) << Where() << " has too many nodes";
    for (size_t nid = 0; nid < g_.nodes.size(); ++nid) CheckNode(nid);
    CheckRowPtr();
    CheckArgNodes();
    CheckHeads();
    CheckConstants(const_names);
  }

 private:
  std::string Where() const { return "The JSON graph of '" + Printable(symbol_) + "'"; }

  std::string Where(size_t nid) const {
    const JSONGraphNode& node = g_.nodes[nid];
    return Where() + ": node " + std::to_string(nid) + " '" + Printable(node.GetOpName()) + "' (" +
           Printable(node.GetOpType()) + ")";
  }

  void CheckNode(size_t nid) const {
    const JSONGraphNode& node = g_.nodes[nid];
    const std::string op = node.GetOpType();
    JSON_CHECK(op == "input" || op == "const" || op == "kernel")
        << Where(nid) << ": the type must be input, const or kernel";
    const std::vector<JSONGraphNodeEntry> inputs = node.GetInputs();
    JSON_CHECK_LE(inputs.size(), JSONGraphLimits::kInputsOfNode)
        << Where(nid) << ": too many inputs";
    JSON_CHECK(inputs.empty() || !node.IsLeaf()) << Where(nid) << ": only a kernel can have inputs";
    JSON_CHECK_EQ(node.GetNumInput(), inputs.size())
        << Where(nid) << ": \"num_inputs\" does not agree with the list of inputs";
    for (const JSONGraphNodeEntry& input : inputs) {
      JSON_CHECK_LT(input.id_, nid) << Where(nid) << ": an input must be an earlier node";
      JSON_CHECK_LT(input.index_, g_.nodes[input.id_].GetNumOutput())
          << Where(nid) << ": it reads an output that node " << input.id_ << " does not have";
    }
    JSON_CHECK(node.GetNumOutput() >= 1 && node.GetNumOutput() <= JSONGraphLimits::kOutputsOfNode)
        << Where(nid) << ": \"num_outputs\" is " << node.GetNumOutput();
    JSON_CHECK(op != "const" || node.GetNumOutput() == 1)
        << Where(nid) << ": a constant has one output, not " << node.GetNumOutput();
    CheckTypes(nid);
  }

  void CheckTypes(size_t nid) const {
    const JSONGraphNode& node = g_.nodes[nid];
    for (const char* key : {"shape", "dtype"}) {
      JSON_CHECK(node.HasAttr(key)) << Where(nid) << " has no attribute '" << key << "'";
    }
    std::vector<std::vector<int64_t>> shapes;
    std::vector<std::string> dtypes;
    try {
      shapes = node.GetOpShape();
      dtypes = node.GetAttr<std::vector<std::string>>("dtype");
    } catch (const std::exception& error) {
      JSON_FAIL() << Where(nid) << ": " << Printable(detail::ErrorMessage(error));
    }
    JSON_CHECK_EQ(shapes.size(), node.GetNumOutput())
        << Where(nid) << ": \"shape\" must have one shape for each output";
    JSON_CHECK_EQ(dtypes.size(), node.GetNumOutput())
        << Where(nid) << ": \"dtype\" must have one type for each output";
    for (size_t i = 0; i < shapes.size(); ++i)
      CheckShape(nid, shapes[i], CheckDType(nid, dtypes[i]));
  }

  /*! \brief Returns the bytes of one element. */
  int64_t CheckDType(size_t nid, const std::string& text) const {
    // TVM's parser wraps numbers that are too large and reads past the end of "custom[": accept
    // only what it would print itself.
    JSON_CHECK(text.compare(0, 6, "custom") != 0 || text.find(']') != std::string::npos)
        << Where(nid) << ": \"dtype\" holds the unknown type '" << Printable(text) << "'";
    DLDataType dtype;
    try {
      dtype = detail::TypeFromText(text);
    } catch (const std::exception&) {
      JSON_FAIL() << Where(nid) << ": \"dtype\" holds the unknown type '" << Printable(text) << "'";
    }
    const bool power_of_two = (dtype.bits & (dtype.bits - 1)) == 0;
    JSON_CHECK(!text.empty() && static_cast<int16_t>(dtype.lanes) >= 1 &&
               (power_of_two || dtype.code >= detail::kFirstCustomType) &&
               detail::TextFromType(dtype) == text)
        << Where(nid) << ": \"dtype\" holds the unknown type '" << Printable(text) << "'";
    return (static_cast<int64_t>(dtype.bits) * dtype.lanes + 7) / 8;
  }

  void CheckShape(size_t nid, const std::vector<int64_t>& shape, int64_t element_bytes) const {
    JSON_CHECK_LE(shape.size(), JSONGraphLimits::kRank) << Where(nid) << ": too many dimensions";
    int64_t bytes = element_bytes;
    for (int64_t dim : shape) {
      JSON_CHECK_GE(dim, -1) << Where(nid)
                             << ": a dimension must be >= 0, or -1 where it is not known";
      // Zero counts as one: strides are products of the other dimensions.
      JSON_CHECK(dim < 1 || bytes <= std::numeric_limits<int64_t>::max() / dim)
          << Where(nid) << ": a tensor of this shape has more bytes than 64 bits can count";
      if (dim > 1) bytes *= dim;
    }
  }

  void CheckRowPtr() const {
    JSON_CHECK_EQ(g_.node_row_ptr.size(), g_.nodes.size() + 1)
        << Where() << ": \"node_row_ptr\" must have one more entry than there are nodes";
    uint64_t entries = 0;
    for (size_t nid = 0; nid <= g_.nodes.size(); ++nid) {
      JSON_CHECK_EQ(g_.node_row_ptr[nid], entries)
          << Where() << ": \"node_row_ptr\" does not agree with the outputs before node " << nid;
      if (nid < g_.nodes.size()) entries += g_.nodes[nid].GetNumOutput();
    }
  }

  void CheckArgNodes() const {
    std::vector<bool> listed(g_.nodes.size(), false);
    for (uint32_t nid : g_.arg_nodes) {
      JSON_CHECK_LT(nid, g_.nodes.size())
          << Where() << ": \"arg_nodes\" names a node that is not there";
      JSON_CHECK(g_.nodes[nid].IsLeaf()) << Where(nid) << " is in \"arg_nodes\", but is a kernel";
      JSON_CHECK(!listed[nid]) << Where(nid) << " appears twice in \"arg_nodes\"";
      listed[nid] = true;
    }
    for (size_t nid = 0; nid < g_.nodes.size(); ++nid) {
      JSON_CHECK(listed[nid] || !g_.nodes[nid].IsLeaf())
          << Where(nid) << " is not in \"arg_nodes\"";
    }
  }

  void CheckHeads() const {
    JSON_CHECK(!g_.heads.empty()) << Where() << " has no heads, so it computes nothing";
    JSON_CHECK_LE(g_.heads.size(), JSONGraphLimits::kHeads) << Where() << " has too many heads";
    for (const JSONGraphNodeEntry& head : g_.heads) {
      JSON_CHECK_LT(head.id_, g_.nodes.size())
          << Where() << ": a head refers to a node that does not exist";
      JSON_CHECK_LT(head.index_, g_.nodes[head.id_].GetNumOutput())
          << Where(head.id_) << ": a head names output " << head.index_ << " of it";
    }
  }

  template <typename Names>
  void CheckConstants(const Names& const_names) const {
    std::set<std::string> names;
    for (const auto& item : const_names) {
      const std::string name = item;
      JSON_CHECK(names.insert(name).second)
          << Where() << ": the constant '" << Printable(name) << "' is listed twice";
    }
    std::set<std::string> used;
    for (size_t nid = 0; nid < g_.nodes.size(); ++nid) {
      if (g_.nodes[nid].GetOpType() != "const") continue;
      const std::string name = g_.nodes[nid].GetOpName();
      JSON_CHECK(names.count(name)) << Where(nid) << ": the module has no constant of this name";
      JSON_CHECK(used.insert(name).second) << Where(nid) << ": another node is the same constant";
    }
    for (const std::string& name : names) {
      JSON_CHECK(used.count(name))
          << Where() << ": no node uses the constant '" << Printable(name) << "'";
    }
  }

  const std::string& symbol_;
  const JSONGraph& g_;
};

/*!
 * \brief Throw an error that names the symbol and the node unless the graph can be executed:
 *        every index in range, nodes in topological order, heads present, a shape and a type for
 *        each output, and exactly the constants that the module has.
 * \param symbol The symbol of the compiled function.
 * \param graph The graph to check.
 * \param const_names The names of the module's constants: a list of strings, TVM's or C++'s.
 */
template <typename Names>
void CheckJSONGraph(const std::string& symbol, const JSONGraph& graph, const Names& const_names) {
  JSONGraphChecker(symbol, graph).CheckAll(const_names);
}

}  // namespace json
}  // namespace runtime
}  // namespace tvm

#endif  // TVM_RUNTIME_CONTRIB_JSON_JSON_GRAPH_CHECK_H_
