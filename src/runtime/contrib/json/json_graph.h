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
 * \file src/runtime/contrib/json/json_graph.h
 * \brief The whole JSON graph: reading and writing its text.
 */
#ifndef TVM_RUNTIME_CONTRIB_JSON_JSON_GRAPH_H_
#define TVM_RUNTIME_CONTRIB_JSON_JSON_GRAPH_H_

#include <cstdint>
#include <exception>
#include <limits>
#include <locale>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "json_node.h"
#include "json_reader.h"

namespace tvm {
namespace runtime {
namespace json {

/*! \brief The parts of the graph, as they stand in the JSON. */
struct JSONGraph {
  /*! \brief The symbol that the writer gave the graph; may be empty. */
  std::string symbol;
  /*! \brief All nodes. A node comes after those it reads. */
  std::vector<JSONGraphNode> nodes;
  /*! \brief The inputs and constants. Inputs stand in the order of the arguments. */
  std::vector<uint32_t> arg_nodes;
  /*! \brief The outputs of the graph. */
  std::vector<JSONGraphNodeEntry> heads;
  /*! \brief Number of the first entry of each node, and the number of all entries at the end. */
  std::vector<uint32_t> node_row_ptr;
};

/*! \brief The only version of the format so far. A graph without "format_version" has it, too. */
constexpr int64_t kJSONGraphFormatVersion = 1;

namespace detail {

/*! \brief Read a list of non-negative numbers that fit 32 bits. */
inline std::vector<uint32_t> ReadIndices(const std::string& key, JSONReader* reader) {
  std::vector<int64_t> values;
  reader->Read(&values);
  std::vector<uint32_t> result;
  for (int64_t value : values) {
    JSON_CHECK(value >= 0 && value <= std::numeric_limits<uint32_t>::max())
        << "\"" << key << "\" holds " << value << ", which is not a 32 bit index";
    result.push_back(static_cast<uint32_t>(value));
  }
  return result;
}

/*! \brief Read the list of nodes. A failure names the node that could not be read. */
inline std::vector<JSONGraphNode> ReadNodes(JSONReader* reader) {
  std::vector<JSONGraphNode> nodes;
  reader->BeginArray();
  while (reader->NextArrayItem()) {
    nodes.emplace_back();
    try {
      nodes.back().Load(reader);
    } catch (const std::exception& error) {
      JSON_FAIL() << "node " << nodes.size() - 1 << " '" << nodes.back().GetOpName()
                  << "': " << ErrorMessage(error);
    }
  }
  return nodes;
}

/*! \brief Read the top object. Every key has a fixed depth, so no text can exhaust the stack. */
inline JSONGraph ReadGraph(JSONReader* reader) {
  JSONGraph graph;
  std::set<std::string> seen;
  std::string key;
  reader->BeginObject();
  while (reader->NextObjectItem(&key)) {
    JSON_CHECK(seen.insert(key).second) << "\"" << key << "\" appears twice";
    if (key == "symbol") {
      reader->Read(&graph.symbol);
    } else if (key == "nodes") {
      graph.nodes = ReadNodes(reader);
    } else if (key == "arg_nodes" || key == "node_row_ptr") {
      auto& target = key == "arg_nodes" ? graph.arg_nodes : graph.node_row_ptr;
      target = ReadIndices(key, reader);
    } else if (key == "heads") {
      reader->Read(&graph.heads);
    } else if (key == "format_version") {
      int64_t version = 0;
      reader->Read(&version);
      JSON_CHECK_EQ(version, kJSONGraphFormatVersion)
          << "\"format_version\" is " << version << ", but this TVM reads only version "
          << kJSONGraphFormatVersion << ". Compile the model again, or run it with a newer TVM.";
    } else {
      JSON_FAIL() << "Unknown key \"" << key
                  << "\"; expected symbol, nodes, arg_nodes, heads or node_row_ptr";
    }
  }
  for (const char* needed : {"nodes", "arg_nodes", "heads", "node_row_ptr"}) {
    JSON_CHECK(seen.count(needed)) << "\"" << needed << "\" is missing";
  }
  return graph;
}

}  // namespace detail

/*!
 * \brief Read the text of a graph. Whether the graph makes sense is for CheckJSONGraph to say.
 * \param symbol The symbol that error messages name.
 * \param json The text.
 * \throws An error for anything that is not the JSON of a graph, to the last byte.
 */
inline JSONGraph ParseJSONGraph(const std::string& symbol, const std::string& json) {
  try {
    JSONReader reader(json);
    JSONGraph graph = detail::ReadGraph(&reader);
    reader.ExpectEnd();
    return graph;
  } catch (const std::exception& error) {
    JSON_FAIL() << "The JSON graph of '" << Printable(symbol)
                << "' cannot be read: " << Printable(detail::ErrorMessage(error));
  }
  throw;  // Not reached: JSON_FAIL() throws.
}

#if __has_include(<dmlc/any.h>)
/*!
 * \brief Write the text of a graph.
 * \param symbol The symbol of the compiled function.
 * \param nodes The nodes, each after those it reads.
 * \param heads The outputs of the graph.
 */
inline std::string WriteJSONGraph(const std::string& symbol,
                                  const std::vector<std::shared_ptr<JSONGraphNode>>& nodes,
                                  const std::vector<JSONGraphNodeEntry>& heads) {
  std::vector<uint32_t> arg_nodes;
  std::vector<uint32_t> node_row_ptr{0};
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i]->IsLeaf()) arg_nodes.push_back(static_cast<uint32_t>(i));
    node_row_ptr.push_back(node_row_ptr.back() + nodes[i]->GetNumOutput());
  }
  std::ostringstream os;
  os.imbue(std::locale::classic());
  dmlc::JSONWriter writer(&os);
  writer.BeginObject();
  writer.WriteObjectKeyValue("symbol", symbol);
  writer.WriteObjectKeyValue("nodes", nodes);
  writer.WriteObjectKeyValue("arg_nodes", arg_nodes);
  writer.WriteObjectKeyValue("heads", heads);
  writer.WriteObjectKeyValue("node_row_ptr", node_row_ptr);
  writer.EndObject();
  return os.str();
}
#endif

}  // namespace json
}  // namespace runtime
}  // namespace tvm

#endif  // TVM_RUNTIME_CONTRIB_JSON_JSON_GRAPH_H_
