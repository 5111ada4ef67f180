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
 * \file src/relay/backend/contrib/codegen_json/op_attr_extractor.h
 * \brief Turns the attributes of a Relay op into attributes of a JSON graph node.
 */
#ifndef TVM_RELAY_BACKEND_CONTRIB_CODEGEN_JSON_OP_ATTR_EXTRACTOR_H_
#define TVM_RELAY_BACKEND_CONTRIB_CODEGEN_JSON_OP_ATTR_EXTRACTOR_H_

#include <tvm/ir/attrs.h>
#include <tvm/ir/expr.h>
#include <tvm/node/reflection.h>
#include <tvm/node/repr_printer.h>
#include <tvm/relay/base.h>
#include <tvm/relay/expr.h>
#include <tvm/runtime/container/array.h>
#include <tvm/runtime/container/map.h>
#include <tvm/runtime/container/shape_tuple.h>
#include <tvm/runtime/container/string.h>
#include <tvm/runtime/data_type.h>
#include <tvm/tir/expr.h>

#if __has_include(<tvm/runtime/container/boxed_primitive.h>)
// TVM 0.18 and newer keep some integers and flags in boxes instead of IntImm.
#include <tvm/runtime/container/boxed_primitive.h>
#define TVM_JSON_HAS_BOXED_PRIMITIVES 1
#endif

#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "../../../../runtime/contrib/json/json_node.h"

namespace tvm {
namespace relay {
namespace backend {
namespace contrib {

using JSONGraphObjectPtr = std::shared_ptr<tvm::runtime::json::JSONGraphNode>;

/*!
 * \brief Visits the attributes of an op and sets each of them on a JSON graph node.
 *
 * A value becomes rows of texts, see JSONAttr. Whatever has no number or string of its own (a
 * symbolic expression, a map) becomes the text that TVM prints for it, so that no attribute can
 * stop the code generation; a backend that needs it will say so when it reads the text.
 */
class OpAttrExtractor : public AttrVisitor {
 public:
  explicit OpAttrExtractor(JSONGraphObjectPtr node) : node_(std::move(node)) {}

  /*! \brief Set all attributes of \p attrs, which may be null, on the node. */
  void Extract(Object* attrs) {
    if (attrs != nullptr) reflection_->VisitAttrs(attrs, this);
  }

  void Visit(const char* key, double* value) final { SetText(key, *value); }
  void Visit(const char* key, int64_t* value) final { SetText(key, *value); }
  void Visit(const char* key, uint64_t* value) final { SetText(key, *value); }
  void Visit(const char* key, int* value) final { SetText(key, *value); }
  void Visit(const char* key, bool* value) final { SetText(key, *value); }
  void Visit(const char* key, std::string* value) final { node_->SetAttr(key, *value); }
  void Visit(const char* key, DataType* value) final {
    node_->SetAttr(key, runtime::DLDataType2String(*value));
  }
  // An address says nothing in another process; a tensor belongs among the constants.
  void Visit(const char* key, void**) final { node_->SetAttr(key, "handle"); }
  void Visit(const char* key, runtime::NDArray* value) final {
    node_->SetAttr(key, value->defined() ? TensorText(*value) : "");
  }
  void Visit(const char* key, runtime::ObjectRef* value) final { SetObject(key, *value); }

 private:
  using JSONAttr = tvm::runtime::json::JSONAttr;

  template <typename T>
  void SetText(const std::string& key, T value) {
    node_->SetAttr(key, tvm::runtime::json::TextOf(value));
  }

  void SetObject(const std::string& key, const ObjectRef& value) {
    if (const auto* array = value.as<runtime::ArrayNode>()) {
      node_->SetAttr(key, RowsOf(*array));
    } else if (const auto* shape = value.as<runtime::ShapeTupleObj>()) {
      JSONAttr::Row row;
      for (size_t i = 0; i < shape->size; ++i) {
        row.push_back(tvm::runtime::json::TextOf(static_cast<int64_t>(shape->data[i])));
      }
      node_->SetAttr(key, std::move(row));
    } else if (key == "__dict__" && value->IsInstance<runtime::MapNode>()) {
      // DictAttrs: its entries are the attributes.
      for (const auto& item : Downcast<Map<String, ObjectRef>>(value)) {
        SetObject(item.first, item.second);
      }
    } else {
      node_->SetAttr(key, TextOfObject(value));
    }
  }

  /*! \brief One row, or one row for each element where an element is an array itself. */
  static JSONAttr::Rows RowsOf(const runtime::ArrayNode& array) {
    bool nested = false;
    for (const ObjectRef& element : array) {
      nested = nested || (element.defined() && element->IsInstance<runtime::ArrayNode>());
    }
    JSONAttr::Rows rows;
    if (!nested) rows.emplace_back();
    for (const ObjectRef& element : array) {
      if (nested) rows.emplace_back();
      const auto* inner = element.as<runtime::ArrayNode>();
      if (inner == nullptr) {
        rows.back().push_back(TextOfObject(element));
      } else {
        for (const ObjectRef& item : *inner) rows.back().push_back(TextOfObject(item));
      }
    }
    return rows;
  }

  static std::string TextOfObject(const ObjectRef& value) {
    using tvm::runtime::json::TextOf;
    if (!value.defined()) return "";
    if (const auto* text = value.as<runtime::StringObj>()) return GetRef<String>(text);
    if (const auto* text = value.as<tir::StringImmNode>()) return text->value;
    if (const auto* number = value.as<IntImmNode>()) return TextOf(number->value);
    if (const auto* number = value.as<FloatImmNode>()) return TextOf(number->value);
#ifdef TVM_JSON_HAS_BOXED_PRIMITIVES
    if (const auto* number = value.as<runtime::Int::ContainerType>()) return TextOf(number->value);
    if (const auto* number = value.as<runtime::Float::ContainerType>()) {
      return TextOf(number->value);
    }
    if (const auto* flag = value.as<runtime::Bool::ContainerType>()) return TextOf(flag->value);
#endif
    if (value->IsInstance<tir::AnyNode>()) return "?";  // As Relay writes it.
    if (const auto* constant = value.as<ConstantNode>()) return TensorText(constant->data);
    if (value->IsInstance<runtime::NDArray::ContainerType>()) {
      return TensorText(Downcast<runtime::NDArray>(value));
    }
    std::ostringstream os;
    os << value;
    return os.str();
  }

  /*! \brief Type and shape only: constants are never part of the JSON. */
  static std::string TensorText(const runtime::NDArray& value) {
    std::ostringstream os;
    os << "tensor " << runtime::DLDataType2String(value->dtype) << value.Shape();
    return os.str();
  }

  JSONGraphObjectPtr node_;
  ReflectionVTable* reflection_ = ReflectionVTable::Global();
};

}  // namespace contrib
}  // namespace backend
}  // namespace relay
}  // namespace tvm

#endif  // TVM_RELAY_BACKEND_CONTRIB_CODEGEN_JSON_OP_ATTR_EXTRACTOR_H_
