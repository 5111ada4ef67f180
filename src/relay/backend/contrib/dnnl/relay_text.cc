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
 * \file src/relay/backend/contrib/dnnl/relay_text.cc
 * \brief A kernel of the graph as the Relay calls that it stands for, for people.
 */
#include "relay_text.h"

#include <set>

namespace tvm {
namespace relay {
namespace contrib {
namespace dnnl {

namespace {

using tvm::runtime::json::JSONAttr;
using tvm::runtime::json::JSONGraphNode;

const char* const kPostOps = "post_ops";

bool IsNull(const JSONAttr::Rows& rows) {
  return rows.size() == 1 && rows[0].size() == 1 && rows[0][0].empty();
}

std::string ListText(const JSONAttr::Row& row) {
  std::string text;
  for (const std::string& item : row) text += (text.empty() ? "" : ", ") + item;
  return "[" + text + "]";
}

std::string ValueText(const JSONAttr::Rows& rows) {
  if (rows.size() == 1) return rows[0].size() == 1 ? rows[0][0] : ListText(rows[0]);
  JSONAttr::Row lists;
  for (const JSONAttr::Row& row : rows) lists.push_back(ListText(row));
  return ListText(lists);
}

/*! \brief ", name=value" for each attribute of the op that has this prefix. */
std::string AttributesText(const JSONGraphNode& node, const std::string& prefix) {
  const std::set<std::string> ours = {"root_op",       kPostOps,  "operand",
                                      "operand_first", "is_bias", "num_threads"};
  std::string text;
  for (const auto& [name, rows] : OpAttributes(node)) {
    if (name.compare(0, prefix.size(), prefix) != 0) continue;
    const std::string rest = name.substr(prefix.size());
    const bool is_of_post_op = prefix.empty() && name.compare(0, 9, "post_ops.") == 0;
    if (ours.count(rest) || is_of_post_op) continue;
    text += ", " + rest + "=" + ValueText(rows);
  }
  return text;
}

}  // namespace

std::vector<std::pair<std::string, JSONAttr::Rows>> OpAttributes(const JSONGraphNode& node) {
  std::vector<std::pair<std::string, JSONAttr::Rows>> attributes;
  for (const auto& item : node.attrs()) {
    if (item.first == "shape" || item.first == "dtype") continue;
    auto rows = node.GetAttr<JSONAttr::Rows>(item.first);
    if (!IsNull(rows)) attributes.emplace_back(item.first, std::move(rows));
  }
  return attributes;
}

std::string RelayText(const CKernel& kernel) {
  const JSONGraphNode& node = *kernel.node;
  std::vector<std::string> post_ops;
  if (node.HasAttr(kPostOps)) post_ops = node.GetAttr<std::vector<std::string>>(kPostOps);
  // Operands of post-ops are among the inputs; the others belong to the root op.
  std::vector<int> operands;
  std::set<int> is_operand;
  for (size_t i = 0; i < post_ops.size(); ++i) {
    const std::string key = "post_ops." + std::to_string(i) + ".operand";
    operands.push_back(node.HasAttr(key) ? node.GetAttr<int>(key) : -1);
    is_operand.insert(operands.back());
  }
  std::string text;
  for (size_t i = 0; i < kernel.inputs.size(); ++i) {
    if (is_operand.count(static_cast<int>(i))) continue;
    text += (text.empty() ? "" : ", ") + kernel.inputs[i].name;
  }
  const std::string root =
      node.HasAttr("root_op") ? node.GetAttr<std::string>("root_op") : node.GetOpName();
  text = root + "(" + text + AttributesText(node, "") + ")";
  for (size_t i = 0; i < post_ops.size(); ++i) {
    const std::string prefix = "post_ops." + std::to_string(i) + ".";
    if (operands[i] >= 0) {
      const std::string operand = kernel.inputs.at(operands[i]).name;
      text = node.HasAttr(prefix + "operand_first") ? operand + ", " + text : text + ", " + operand;
    }
    text = post_ops[i] + "(" + text + AttributesText(node, prefix) + ")";
  }
  return text;
}

}  // namespace dnnl
}  // namespace contrib
}  // namespace relay
}  // namespace tvm
