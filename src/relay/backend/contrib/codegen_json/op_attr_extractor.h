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
 * Numbers, flags, strings and lists of them become a JSONAttr of their type. Whatever else there is
 * (a symbolic expression, a map) becomes the text that TVM prints for it, so that no attribute can
 * stop the code generation; a backend that needs it will say so when it reads the text.
 */
class OpAttrExtractor : public AttrVisitor {
 public:
  explicit OpAttrExtractor(JSONGraphObjectPtr node) : node_(std::move(node)) {}

  /*! \brief Set all attributes of \p attrs, which may be null, on the node. */
  void Extract(Object* attrs) {
    if (attrs != nullptr) reflection_->VisitAttrs(attrs, this);
  }

  void Visit(const char* key, double* value) final { node_->SetAttr(key, *value); }
  void Visit(const char* key, int64_t* value) final { node_->SetAttr(key, *value); }
  void Visit(const char* key, uint64_t* value) final { node_->SetAttr(key, *value); }
  void Visit(const char* key, int* value) final { node_->SetAttr(key, *value); }
  void Visit(const char* key, bool* value) final { node_->SetAttr(key, *value); }
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

  void SetObject(const std::string& key, const ObjectRef& value) {
    if (key == "__dict__" && value->IsInstance<runtime::MapNode>()) {
      // DictAttrs: its entries are the attributes.
      for (const auto& item : Downcast<Map<String, ObjectRef>>(value)) {
        SetObject(item.first, item.second);
      }
    } else {
      node_->SetAttr(key, ValueOf(value));
    }
  }

  /*! \brief The value of an object inside so many arrays. Version 1 holds two. */
  static JSONAttr ValueOf(const ObjectRef& value, int depth = 0) {
    if (!value.defined()) return JSONAttr();
    const auto* array = value.as<runtime::ArrayNode>();
    if (array != nullptr && depth < 2) {
      JSONAttr::List items;
      for (const ObjectRef& element : *array) items.push_back(ValueOf(element, depth + 1));
      return JSONAttr::Of(std::move(items));
    }
    if (const auto* shape = value.as<runtime::ShapeTupleObj>()) {
      return JSONAttr::Of(JSONAttr::List(shape->data, shape->data + shape->size));
    }
    if (const auto* number = value.as<IntImmNode>()) {
      return number->dtype.is_bool() ? JSONAttr(number->value != 0) : JSONAttr(number->value);
    }
    if (const auto* number = value.as<FloatImmNode>()) return JSONAttr(number->value);
#ifdef TVM_JSON_HAS_BOXED_PRIMITIVES
    if (const auto* number = value.as<runtime::Int::ContainerType>()) return number->value;
    if (const auto* number = value.as<runtime::Float::ContainerType>()) return number->value;
    if (const auto* flag = value.as<runtime::Bool::ContainerType>()) return flag->value;
#endif
    return JSONAttr(TextOfObject(value));
  }

  static std::string TextOfObject(const ObjectRef& value) {
    if (const auto* text = value.as<runtime::StringObj>()) return GetRef<String>(text);
    if (const auto* text = value.as<tir::StringImmNode>()) return text->value;
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
