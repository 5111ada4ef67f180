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
 * \file src/runtime/contrib/dnnl/core/flat_attrs.cc
 * \brief The attributes of fused ops under names with dots.
 */
#include "flat_attrs.h"

#include <charconv>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "error.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

using json::JSONAttr;

/*! \brief Take all "<list>.<number>.<name>" out of attributes. Returns them by number and name. */
std::map<uint32_t, Attrs> TakeNumbered(const std::string& list, Attrs* attrs) {
  std::map<uint32_t, Attrs> taken;
  const std::string prefix = list + ".";
  auto it = attrs->lower_bound(prefix);
  while (it != attrs->end() && it->first.compare(0, prefix.size(), prefix) == 0) {
    const char* begin = it->first.data() + prefix.size();
    const char* end = it->first.data() + it->first.size();
    uint32_t number = 0;
    const std::from_chars_result result = std::from_chars(begin, end, number);
    if (result.ec != std::errc() || result.ptr == end || *result.ptr != '.') {
      ++it;
      continue;
    }
    taken[number][std::string(result.ptr + 1, end)] = std::move(it->second);
    it = attrs->erase(it);
  }
  return taken;
}

/*! \brief Put the members of an object among attributes, but for its key. */
void PutNumbered(const std::string& list, uint32_t number, const JSONAttr& object, const char* key,
                 Attrs* attrs) {
  const std::string prefix = list + "." + std::to_string(number) + ".";
  for (const auto& [name, value] : object.members()) {
    if (name != key) (*attrs)[prefix + name] = value;
  }
}

/*! \brief A member of an object that must have it. */
template <typename T>
T MemberOf(const JSONAttr& object, const char* key) {
  const auto it = object.members().find(key);
  T value{};
  CORE_CHECK(it != object.members().end() && it->second.Read(&value))
      << "a fused op is " << object.Repr() << ", without its \"" << key << "\"";
  return value;
}

}  // namespace

void NestAttrs(Attrs* attrs) {
  auto members = TakeNumbered("post_ops", attrs);
  std::vector<std::string> names;
  const auto post_ops = attrs->find("post_ops");
  if (post_ops != attrs->end() && !post_ops->second.IsNull() && post_ops->second.Read(&names)) {
    JSONAttr::List list;
    for (size_t i = 0; i < names.size(); ++i) {
      const auto own = members.find(static_cast<uint32_t>(i));
      Attrs object = own == members.end() ? Attrs() : std::move(own->second);
      object["op"] = std::move(names[i]);
      list.push_back(JSONAttr::Of(std::move(object)));
    }
    post_ops->second = JSONAttr::Of(std::move(list));
  }
  JSONAttr::List dequantized;
  for (auto& [input, object] : TakeNumbered("dequantize", attrs)) {
    object["input"] = input;
    dequantized.push_back(JSONAttr::Of(std::move(object)));
  }
  if (!dequantized.empty()) (*attrs)["dequantize"] = JSONAttr::Of(std::move(dequantized));
}

Attrs FlatAttrs(const Attrs& attrs) {
  Attrs flat = attrs;
  const auto post_ops = attrs.find("post_ops");
  if (post_ops != attrs.end()) {
    std::vector<std::string> names;
    for (const JSONAttr& object : post_ops->second.items()) {
      PutNumbered("post_ops", static_cast<uint32_t>(names.size()), object, "op", &flat);
      names.push_back(MemberOf<std::string>(object, "op"));
    }
    flat["post_ops"] = names;
  }
  const auto dequantized = attrs.find("dequantize");
  if (dequantized != attrs.end()) {
    for (const JSONAttr& object : dequantized->second.items()) {
      PutNumbered("dequantize", MemberOf<uint32_t>(object, "input"), object, "input", &flat);
    }
    flat.erase("dequantize");
  }
  return flat;
}

}  // namespace tvm::runtime::contrib::dnnl_backend
