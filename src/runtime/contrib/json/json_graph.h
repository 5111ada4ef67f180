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

/*!
 * \brief The versions of the format. Version 1, which a graph without "format_version" has, holds
 * attributes as rows of strings. In version 2 they are typed, and may be nested.
 */
constexpr int64_t kJSONGraphRows = 1;
constexpr int64_t kJSONGraphTyped = 2;

/*! \brief The parts of the graph, as they stand in the JSON. */
struct JSONGraph {
  int64_t format_version{kJSONGraphRows};
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
inline std::vector<JSONGraphNode> ReadNodes(int64_t version, JSONReader* reader) {
  std::vector<JSONGraphNode> nodes;
  reader->BeginArray();
  while (reader->NextArrayItem()) {
    nodes.emplace_back();
    try {
      version == kJSONGraphTyped ? nodes.back().LoadTyped(reader) : nodes.back().Load(reader);
    } catch (const std::exception& error) {
      JSON_FAIL() << "node " << nodes.size() - 1 << " '" << nodes.back().GetOpName()
                  << "': " << ErrorMessage(error);
    }
  }
  return nodes;
}

/*! \brief Read the top object. The depth is bounded, so no text can exhaust the stack. */
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
      graph.nodes = ReadNodes(graph.format_version, reader);
    } else if (key == "arg_nodes" || key == "node_row_ptr") {
      auto& target = key == "arg_nodes" ? graph.arg_nodes : graph.node_row_ptr;
      target = ReadIndices(key, reader);
    } else if (key == "heads") {
      reader->Read(&graph.heads);
    } else if (key == "format_version") {
      int64_t& version = graph.format_version;
      reader->Read(&version);
      JSON_CHECK(version == kJSONGraphRows || version == kJSONGraphTyped)
          << "\"format_version\" is " << version << ", but this TVM reads only versions "
          << kJSONGraphRows << " and " << kJSONGraphTyped
          << ". Compile the model again, or run it with a newer TVM.";
      JSON_CHECK(version == kJSONGraphRows || !seen.count("nodes"))
          << "\"format_version\" must stand before \"nodes\"";
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

namespace detail {

/*! \brief The parts of the graph that follow from its nodes. */
template <typename Nodes>
void NumberNodes(const Nodes& nodes, std::vector<int64_t>* arg_nodes,
                 std::vector<int64_t>* node_row_ptr) {
  node_row_ptr->push_back(0);
  for (const auto& node : nodes) {
    if (node->IsLeaf()) arg_nodes->push_back(static_cast<int64_t>(node_row_ptr->size()) - 1);
    node_row_ptr->push_back(node_row_ptr->back() + node->GetNumOutput());
  }
}

}  // namespace detail

/*!
 * \brief Write the text of a graph in version 2.
 * \param symbol The symbol of the compiled function.
 * \param nodes The nodes, each after those it reads.
 * \param heads The outputs of the graph.
 */
inline std::string WriteTypedJSONGraph(const std::string& symbol,
                                       const std::vector<std::shared_ptr<JSONGraphNode>>& nodes,
                                       const std::vector<JSONGraphNodeEntry>& heads) {
  std::vector<int64_t> arg_nodes, node_row_ptr;
  detail::NumberNodes(nodes, &arg_nodes, &node_row_ptr);
  const auto list_of = [](const std::vector<int64_t>& numbers) {
    return JSONAttr::Of(JSONAttr::List(numbers.begin(), numbers.end()));
  };
  std::string text = "{\"format_version\": " + TextOf(kJSONGraphTyped) + ", \"symbol\": ";
  JSONAttr::AppendQuoted(symbol, &text);
  text += ", \"nodes\": [";
  for (size_t i = 0; i < nodes.size(); ++i) {
    text += i == 0 ? "\n" : ",\n";
    nodes[i]->AppendTo(&text);
  }
  text += "\n], \"arg_nodes\": ";
  list_of(arg_nodes).AppendTo(&text);
  text += ", \"heads\": ";
  detail::AppendEntries(heads, &text);
  text += ", \"node_row_ptr\": ";
  list_of(node_row_ptr).AppendTo(&text);
  return text + "}";
}

#if __has_include(<dmlc/any.h>)
/*! \brief Write the text of a graph in version 1. */
inline std::string WriteJSONGraph(const std::string& symbol,
                                  const std::vector<std::shared_ptr<JSONGraphNode>>& nodes,
                                  const std::vector<JSONGraphNodeEntry>& heads) {
  std::vector<int64_t> arg_nodes, node_row_ptr;
  detail::NumberNodes(nodes, &arg_nodes, &node_row_ptr);
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
