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
 * \file src/runtime/contrib/dnnl/c_source/attr_text.h
 * \brief The values of attributes as dnnl_kernel.h describes them: text that people can read.
 *
 * Why not the JSON of the node: libraries that were exported hold this text, so its reader would
 * stay beside that of JSON, and as a C literal JSON has a backslash before each of its quotes.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_C_SOURCE_ATTR_TEXT_H_
#define TVM_RUNTIME_CONTRIB_DNNL_C_SOURCE_ATTR_TEXT_H_

#include <string>

#include "../../json/json_attr.h"

namespace tvm {
namespace runtime {
namespace contrib {
namespace dnnl_backend {

/*!
 * \brief The text of an attribute.
 *
 * A row without items is empty; so that it differs from one whose only item is empty, the latter
 * is written as "\e".
 */
inline std::string ToAttrText(const json::JSONAttr::Rows& rows) {
  std::string text;
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      if (i > 0) text += ',';
      for (char c : row[i]) {
        if (c == ',' || c == ';' || c == '\\') text += '\\';
        text += c;
      }
    }
    if (row.size() == 1 && row[0].empty()) text += "\\e";
    if (rows.size() > 1) text += ';';
  }
  return text;
}

/*! \brief The rows that a text stands for. Any text is one of some rows. */
inline json::JSONAttr::Rows FromAttrText(const std::string& text) {
  json::JSONAttr::Rows rows;
  json::JSONAttr::Row row;
  std::string item;
  bool has_item = false;
  const auto end_row = [&]() {
    if (has_item) row.push_back(item);
    rows.push_back(row);
    row.clear();
    item.clear();
    has_item = false;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ',') {
      row.push_back(item);
      item.clear();
      has_item = true;
    } else if (text[i] == ';') {
      end_row();
    } else {
      has_item = true;
      if (text[i] == '\\' && i + 1 < text.size()) {
        ++i;
        if (text[i] == 'e') continue;
      }
      item += text[i];
    }
  }
  if (text.empty() || text.back() != ';' || has_item || !row.empty()) end_row();
  return rows;
}

}  // namespace dnnl_backend
}  // namespace contrib
}  // namespace runtime
}  // namespace tvm

#endif  // TVM_RUNTIME_CONTRIB_DNNL_C_SOURCE_ATTR_TEXT_H_
