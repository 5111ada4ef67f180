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
 * \file src/runtime/contrib/json/json_node_rows.h
 * \brief A node in version 1 of the JSON graph: each attribute is rows of strings.
 */
#ifndef TVM_RUNTIME_CONTRIB_JSON_JSON_NODE_ROWS_H_
#define TVM_RUNTIME_CONTRIB_JSON_JSON_NODE_ROWS_H_

#include <map>
#include <string>
#include <vector>

#include "json_node.h"

namespace tvm {
namespace runtime {
namespace json {

template <typename Writer>
void JSONGraphNode::RowsOf::Save(Writer* writer) const {
  const auto save_row = [writer](const auto& items) {
    writer->WriteArraySeperator();
    writer->BeginArray(false);
    for (const auto& item : items) writer->WriteArrayItem(item);
    writer->EndArray();
  };
  writer->BeginArray(false);
  if (key == "shape") {
    writer->WriteArraySeperator();
    writer->BeginArray(false);
    for (const std::vector<int64_t>& shape : node.GetOpShape()) save_row(shape);
    writer->EndArray();
  } else {
    JSONAttr::Rows rows;
    JSON_CHECK(attr.Read(&rows)) << node.Where() << ": attribute '" << key << "' is "
                                 << Printable(attr.Repr())
                                 << ", which version 1 of the format cannot hold";
    // Other readers look into the first row.
    if (rows.empty()) rows.emplace_back();
    for (const JSONAttr::Row& row : rows) save_row(row);
  }
  writer->EndArray();
}

template <typename Writer>
void JSONGraphNode::Save(Writer* writer) const {
  writer->BeginObject();
  writer->WriteObjectKeyValue("op", op_type_);
  writer->WriteObjectKeyValue("name", name_);
  std::map<std::string, std::string> counts;
  if (!IsLeaf()) {
    writer->WriteObjectKeyValue("inputs", inputs_);
    counts["num_inputs"] = TextOf(num_inputs_);
  }
  if (!IsLeaf() || num_outputs_ != 1) counts["num_outputs"] = TextOf(num_outputs_);
  // dmlc's writer escapes values, not keys. Relay attributes are identifiers, so refuse the rest.
  for (const auto& attr : attrs_) {
    JSON_CHECK(attr.first.find_first_of("\"\\\r\n\t") == std::string::npos)
        << Where() << ": the attribute name '" << attr.first << "' cannot be written as JSON";
  }
  struct Attrs {
    const JSONGraphNode& node;
    const std::map<std::string, std::string>& counts;
    void Save(Writer* writer) const {
      writer->BeginObject();
      for (const auto& count : counts) writer->WriteObjectKeyValue(count.first, count.second);
      for (const auto& attr : node.attrs_) {
        writer->WriteObjectKeyValue(attr.first, RowsOf{node, attr.first, attr.second});
      }
      writer->EndObject();
    }
  };
  writer->WriteObjectKeyValue("attrs", Attrs{*this, counts});
  writer->EndObject();
}

template <typename Reader>
bool JSONGraphNode::LoadRows(Reader* reader) {
  bool has_num_inputs = false, has_num_outputs = false;
  std::string key;
  reader->BeginObject();
  while (reader->NextObjectItem(&key)) {
    bool* seen = key == "num_inputs"    ? &has_num_inputs
                 : key == "num_outputs" ? &has_num_outputs
                                        : nullptr;
    JSON_CHECK(!attrs_.count(key) && !(seen && *seen))
        << "Attribute \"" << key << "\" appears twice";
    if (seen) *seen = true;
    if (key == "num_inputs") {
      num_inputs_ = LoadCount(key, reader);
    } else if (key == "num_outputs") {
      num_outputs_ = LoadCount(key, reader);
    } else if (key == "shape") {
      std::vector<JSONAttr::Shapes> lists;
      reader->Read(&lists);
      JSON_CHECK(lists.size() == 1)
          << "\"shape\" must be one list that holds a shape for each output";
      attrs_[key] = lists[0];
    } else {
      JSONAttr::Rows rows;
      reader->Read(&rows);
      attrs_[key] = rows;
    }
  }
  return has_num_inputs;
}

}  // namespace json
}  // namespace runtime
}  // namespace tvm

#endif  // TVM_RUNTIME_CONTRIB_JSON_JSON_NODE_ROWS_H_
