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
 * \file src/runtime/contrib/json/json_node.h
 * \brief A node of the JSON graph that a codegen writes and a JSON runtime executes.
 */
#ifndef TVM_RUNTIME_CONTRIB_JSON_JSON_NODE_H_
#define TVM_RUNTIME_CONTRIB_JSON_JSON_NODE_H_

#include <dlpack/dlpack.h>
#if __has_include(<dmlc/any.h>)
#include <dmlc/any.h>
#include <dmlc/json.h>
#endif

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include "json_attr.h"
#include "json_reader.h"
#include "json_tvm.h"

namespace tvm {
namespace runtime {
namespace json {

#if __has_include(<dmlc/any.h>)
/*!
 * \brief Convert what the JSON backends of TVM pass: one dmlc::any for each row.
 *
 * The conversion is done here, at the call, by the C++ type alone. dmlc's JSON registry of
 * dmlc::any types is not used: it lives once per shared library, so a type that one library has
 * registered is unknown in another, and saving or loading would depend on who linked what.
 * \param key The attribute's name, for the error message.
 * \param values The rows, or one list of shapes.
 */
inline JSONAttr JSONAttrFromAny(const std::string& key, const std::vector<dmlc::any>& values) {
  if (values.size() == 1 && values[0].type() == typeid(JSONAttr::Shapes)) {
    return JSONAttr(dmlc::get<JSONAttr::Shapes>(values[0]));
  }
  JSONAttr::Rows rows;
  for (const dmlc::any& value : values) {
    if (value.type() == typeid(JSONAttr::Row)) {
      rows.push_back(dmlc::get<JSONAttr::Row>(value));
    } else if (value.type() == typeid(std::string)) {
      rows.push_back(JSONAttr::Row{dmlc::get<std::string>(value)});
    } else {
      JSON_FAIL() << "Attribute '" << key << "' of a JSON graph node is set to a value of C++ type "
                  << value.type().name() << ". Pass std::vector<std::string> for each row, or "
                  << "one std::vector<std::vector<int64_t>> for shapes.";
    }
  }
  return JSONAttr(std::move(rows));
}
#endif

/*! \brief One output of one node, as an input of another node or a head of the graph. */
class JSONGraphNodeEntry {
 public:
  JSONGraphNodeEntry() = default;
  JSONGraphNodeEntry(uint32_t id, uint32_t index, uint32_t version = 0)
      : id_(id), index_(index), version_(version) {}

  /*! \brief Write `[id, index, version]`. */
  template <typename Writer>
  void Save(Writer* writer) const {
    writer->BeginArray(false);
    writer->WriteArrayItem(id_);
    writer->WriteArrayItem(index_);
    writer->WriteArrayItem(version_);
    writer->EndArray();
  }

  /*! \brief Read `[id, index, version]`; the version may be left out. */
  template <typename Reader>
  void Load(Reader* reader) {
    // Read as signed: a stream turns "-1" into a huge unsigned number without complaint.
    std::vector<int64_t> fields;
    reader->Read(&fields);
    JSON_CHECK(fields.size() == 2 || fields.size() == 3)
        << "A graph entry must be [node, index, version], got " << fields.size() << " numbers";
    for (int64_t field : fields) {
      JSON_CHECK(field >= 0 && field <= std::numeric_limits<uint32_t>::max())
          << "A graph entry holds " << field << ", which is not a 32 bit index";
    }
    id_ = static_cast<uint32_t>(fields[0]);
    index_ = static_cast<uint32_t>(fields[1]);
    version_ = fields.size() == 3 ? static_cast<uint32_t>(fields[2]) : 0;
  }

  /*! \brief Index of the node in the graph. */
  uint32_t id_{0};
  /*! \brief Which output of the node. */
  uint32_t index_{0};
  /*! \brief Always 0. It is part of the format and not used. */
  uint32_t version_{0};
};

namespace detail {

/*! \brief Append entries as JSON. */
inline void AppendEntries(const std::vector<JSONGraphNodeEntry>& entries, std::string* text) {
  JSONAttr::Shapes numbers;
  for (const JSONGraphNodeEntry& entry : entries) {
    numbers.push_back({entry.id_, entry.index_, entry.version_});
  }
  JSONAttr(numbers).AppendTo(text);
}

}  // namespace detail

/*! \brief A node of the graph: an input, a constant or an operation ("kernel"). */
class JSONGraphNode {
 public:
  JSONGraphNode() = default;
  JSONGraphNode(const std::string& name, const std::string& op_type,
                const std::vector<JSONGraphNodeEntry>& inputs = {}, size_t num_outputs = 1)
      : num_inputs_(static_cast<uint32_t>(inputs.size())),
        num_outputs_(static_cast<uint32_t>(num_outputs)),
        name_(name),
        op_type_(op_type),
        inputs_(inputs) {}

  /*!
   * \brief Write the node in version 1 of the format, as all JSON backends of TVM know it. Leaves
   * carry neither "inputs" nor counts that follow from that.
   */
  template <typename Writer>
  void Save(Writer* writer) const;

  /*! \brief Append the node as JSON of version 2, whose attributes are typed and may be nested. */
  void AppendTo(std::string* text) const;

  /*! \brief Read a node of version 1. Only what needs the node alone is checked here. */
  template <typename Reader>
  void Load(Reader* reader) {
    // Other writers may leave the count out, as it follows from the list of inputs.
    bool has_num_inputs = false;
    LoadFields(reader, [&]() { has_num_inputs = LoadRows(reader); });
    if (!has_num_inputs) num_inputs_ = static_cast<uint32_t>(inputs_.size());
  }

  /*! \brief Read a node of version 2. */
  void LoadTyped(JSONReader* reader) {
    LoadFields(reader, [&]() { LoadTypedAttrs(reader); });
    num_inputs_ = static_cast<uint32_t>(inputs_.size());
  }

  /*! \brief "input", "const" or "kernel". */
  std::string GetOpType() const { return op_type_; }

  /*! \brief Name of the op, the composite, the parameter or the constant. */
  std::string GetOpName() const { return name_; }

  /*! \brief The entries that this node reads. */
  std::vector<JSONGraphNodeEntry> GetInputs() const { return inputs_; }

  /*! \brief The shape of each output. A dimension that is not known is -1. */
  std::vector<std::vector<int64_t>> GetOpShape() const {
    return GetAttr<std::vector<std::vector<int64_t>>>("shape");
  }

  /*! \brief The data type of each output. */
  std::vector<DLDataType> GetOpDataType() const {
    std::vector<DLDataType> result;
    for (const std::string& text : GetAttr<std::vector<std::string>>("dtype")) {
      result.push_back(detail::TypeFromText(text));
    }
    return result;
  }

  uint32_t GetNumOutput() const { return num_outputs_; }
  uint32_t GetNumInput() const { return num_inputs_; }
  void SetNumInput(uint32_t num_inputs) { num_inputs_ = num_inputs; }
  void SetNumOutput(uint32_t num_outputs) { num_outputs_ = num_outputs; }

  /*! \brief Whether the node is an input or a constant. */
  bool IsLeaf() const { return op_type_ != "kernel"; }

  bool HasAttr(const std::string& key) const { return attrs_.count(key) != 0; }

  /*!
   * \brief Read an attribute.
   * \tparam T A string, bool, integer or floating point type, or a vector or a vector of vectors
   *         of them.
   * \throws An error that names this node, the attribute, its value and the wanted type.
   */
  template <typename T>
  T GetAttr(const std::string& key) const {
    auto it = attrs_.find(key);
    JSON_CHECK(it != attrs_.end()) << Where() << " has no attribute '" << key << "'";
    T result{};
    JSON_CHECK(it->second.Read(&result))
        << Where() << ": attribute '" << key << "' is " << Printable(it->second.Repr())
        << ", expected: " << AttrTypeName<T>::Get();
    return result;
  }

  /*! \brief The attributes by name. */
  const std::map<std::string, JSONAttr>& attrs() const { return attrs_; }

  /*! \brief Set an attribute to any value that a JSONAttr can hold. */
  void SetAttr(const std::string& key, JSONAttr value) { attrs_[key] = std::move(value); }

#if __has_include(<dmlc/any.h>)
  /*! \brief Set an attribute as TVM's JSON codegens pass it, see JSONAttrFromAny. */
  void SetAttr(const std::string& key, const std::vector<dmlc::any>& values) {
    attrs_[key] = JSONAttrFromAny(key, values);
  }
#endif

  /*! \brief Take over all attributes of another node. They replace those of the same name. */
  void CaptureAttrs(const JSONGraphNode& that) {
    for (const auto& attr : that.attrs_) attrs_[attr.first] = attr.second;
  }

  /*! \brief How error messages call this node. */
  std::string Where() const {
    return "JSON graph node '" + Printable(name_) + "' (" + Printable(op_type_) + ")";
  }

 private:
  template <typename Reader, typename Function>
  void LoadFields(Reader* reader, const Function& load_attrs);

  /*! \brief Read "attrs" of version 1. Returns whether "num_inputs" was among them. */
  template <typename Reader>
  bool LoadRows(Reader* reader);

  /*! \brief Read "attrs" of version 2, in which the number of outputs is that of the shapes. */
  void LoadTypedAttrs(JSONReader* reader);

  /*! \brief An attribute as rows of strings, or as the list of shapes, in version 1. */
  struct RowsOf {
    const JSONGraphNode& node;
    const std::string& key;
    const JSONAttr& attr;

    template <typename Writer>
    void Save(Writer* writer) const;
  };

  template <typename Reader>
  static uint32_t LoadCount(const std::string& key, Reader* reader) {
    std::string text;
    reader->Read(&text);
    uint32_t count = 0;
    JSON_CHECK(ParseText(text, &count))
        << "\"" << key << "\" is \"" << text << "\", expected a count";
    return count;
  }

  uint32_t num_inputs_{0};
  uint32_t num_outputs_{1};
  std::string name_;
  std::string op_type_;
  std::vector<JSONGraphNodeEntry> inputs_;
  /*! \brief Sorted, so that the same graph always gives the same text. */
  std::map<std::string, JSONAttr> attrs_;
};

inline void JSONGraphNode::AppendTo(std::string* text) const {
  *text += "{\"op\": ";
  JSONAttr::AppendQuoted(op_type_, text);
  *text += ", \"name\": ";
  JSONAttr::AppendQuoted(name_, text);
  if (!IsLeaf()) {
    *text += ", \"inputs\": ";
    detail::AppendEntries(inputs_, text);
  }
  *text += ", \"attrs\": ";
  JSONAttr::Of(attrs_).AppendTo(text);
  *text += '}';
}

template <typename Reader, typename Function>
void JSONGraphNode::LoadFields(Reader* reader, const Function& load_attrs) {
  *this = JSONGraphNode();
  bool has_op = false, has_name = false, has_inputs = false, has_attrs = false;
  auto first = [](const std::string& key, bool* seen) {
    JSON_CHECK(!*seen) << "\"" << key << "\" appears twice";
    *seen = true;
  };
  std::string key;
  reader->BeginObject();
  while (reader->NextObjectItem(&key)) {
    if (key == "op") {
      first(key, &has_op);
      reader->Read(&op_type_);
    } else if (key == "name") {
      first(key, &has_name);
      reader->Read(&name_);
    } else if (key == "inputs") {
      first(key, &has_inputs);
      reader->Read(&inputs_);
    } else if (key == "attrs") {
      first(key, &has_attrs);
      load_attrs();
    } else {
      JSON_FAIL() << "Unknown key \"" << key << "\" of a node; expected op, name, inputs or attrs";
    }
  }
  JSON_CHECK(has_op) << "A node has no \"op\"";
  JSON_CHECK(has_name) << "A node has no \"name\"";
  JSON_CHECK(has_attrs) << Where() << " has no \"attrs\"";
}

inline void JSONGraphNode::LoadTypedAttrs(JSONReader* reader) {
  JSONAttr attrs;
  reader->Read(&attrs);
  JSON_CHECK(attrs.kind() == JSONAttr::Kind::kObject) << "\"attrs\" must be an object";
  attrs_ = attrs.members();
  const auto shape = attrs_.find("shape");
  if (shape == attrs_.end()) return;
  bool is_list = shape->second.kind() == JSONAttr::Kind::kList;
  for (const JSONAttr& each : shape->second.items()) {
    is_list = is_list && each.kind() == JSONAttr::Kind::kList;
    for (const JSONAttr& dim : each.items()) {
      is_list = is_list && dim.kind() == JSONAttr::Kind::kInteger;
    }
  }
  JSON_CHECK(is_list) << "\"shape\" must be a list that holds a shape for each output";
  num_outputs_ = static_cast<uint32_t>(shape->second.items().size());
}

}  // namespace json
}  // namespace runtime
}  // namespace tvm

#include "json_node_rows.h"

#if __has_include(<dmlc/any.h>)
namespace dmlc {
namespace json {
/*! \brief Lets dmlc write a list of shared nodes, as the codegens keep them. */
template <>
struct Handler<std::shared_ptr<tvm::runtime::json::JSONGraphNode>> {
  inline static void Write(dmlc::JSONWriter* writer,
                           const std::shared_ptr<tvm::runtime::json::JSONGraphNode>& node) {
    node->Save(writer);
  }
  inline static void Read(dmlc::JSONReader* reader,
                          std::shared_ptr<tvm::runtime::json::JSONGraphNode>* node) {
    *node = std::make_shared<tvm::runtime::json::JSONGraphNode>();
    (*node)->Load(reader);
  }
};
}  // namespace json
}  // namespace dmlc
#endif

#endif  // TVM_RUNTIME_CONTRIB_JSON_JSON_NODE_H_
