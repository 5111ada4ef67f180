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
 * \file src/runtime/contrib/json/json_attr.h
 * \brief The value of one attribute of a JSON graph node.
 *
 * It needs the C++ library only, so that a backend whose core knows no TVM can read attributes.
 */
#ifndef TVM_RUNTIME_CONTRIB_JSON_JSON_ATTR_H_
#define TVM_RUNTIME_CONTRIB_JSON_JSON_ATTR_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "json_text.h"

namespace tvm {
namespace runtime {
namespace json {

/*!
 * \brief A value of JSON: null, a flag, an integer, a number, a string, a list or an object.
 *
 * Version 1 of the format has strings only, in rows: `padding=[1, 1]` is `[["1", "1"]]` and
 * `axis=1` is `[["1"]]`. Such rows become the string, the list of strings, or the list of such
 * lists that they stand for. All reading functions convert, so that a caller need not know which
 * version a value comes from: a string that is a number reads as a number and vice versa, a scalar
 * as a list of one item, and a list of one list as that list.
 *
 * A value never changes; copies share their contents.
 */
class JSONAttr {
 public:
  using Row = std::vector<std::string>;
  using Rows = std::vector<Row>;
  using Shapes = std::vector<std::vector<int64_t>>;
  using List = std::vector<JSONAttr>;
  using Object = std::map<std::string, JSONAttr>;
  enum class Kind : uint8_t { kNull, kBool, kInteger, kNumber, kString, kList, kObject };

  JSONAttr() = default;
  JSONAttr(std::string text) : JSONAttr(Kind::kString, std::move(text)) {}  // NOLINT(*)
  JSONAttr(const char* text) : JSONAttr(std::string(text)) {}               // NOLINT(*)
  JSONAttr(const Row& row) : JSONAttr(OfScalarOrRow(row)) {}                // NOLINT(*)
  JSONAttr(const Rows& rows)                                                // NOLINT(*)
      : JSONAttr(rows.size() == 1 ? OfScalarOrRow(rows[0]) : OfItems(rows)) {}
  JSONAttr(const Shapes& shapes) : JSONAttr(OfItems(shapes)) {}  // NOLINT(*)
  template <typename T, typename = std::enable_if_t<std::is_arithmetic<T>::value>>
  JSONAttr(T value) {  // NOLINT(*)
    if constexpr (std::is_floating_point<T>::value) {
      kind_ = Kind::kNumber;
      number_ = static_cast<double>(value);
    } else if (static_cast<int64_t>(value) < 0 && std::is_unsigned<T>::value) {
      *this = JSONAttr(TextOf(value));
    } else {
      kind_ = std::is_same<T, bool>::value ? Kind::kBool : Kind::kInteger;
      integer_ = static_cast<int64_t>(value);
    }
  }
  static JSONAttr Of(List items) { return JSONAttr(Kind::kList, std::move(items)); }
  static JSONAttr Of(Object members) { return JSONAttr(Kind::kObject, std::move(members)); }

  Kind kind() const { return kind_; }
  /*! \brief The items of a list; none of anything else. */
  const List& items() const { return Contents<List>(Kind::kList); }
  /*! \brief The members of an object; none of anything else. */
  const Object& members() const { return Contents<Object>(Kind::kObject); }

  bool operator==(const JSONAttr& other) const {
    if (kind_ != other.kind_) return false;
    switch (kind_) {
      case Kind::kString:
        return string() == other.string();
      case Kind::kList:
        return items() == other.items();
      case Kind::kObject:
        return members() == other.members();
      case Kind::kNumber:
        // The bits, so that NaN equals itself.
        return std::memcmp(&number_, &other.number_, sizeof(number_)) == 0;
      default:
        return integer_ == other.integer_;
    }
  }

  /*! \brief Whether the value is absent: null, or an empty string, as version 1 has it. */
  bool IsNull() const {
    return kind_ == Kind::kNull || (kind_ == Kind::kString && string().empty());
  }

  /*!
   * \brief Read one value.
   * \return Whether this is exactly one value and can be converted to T.
   */
  template <typename T>
  bool Read(T* out) const {
    const JSONAttr* value = this;
    while (value->items().size() == 1) value = &value->items()[0];
    return value->ReadScalar(out);
  }

  /*!
   * \brief Read a flat list.
   * \return Whether all items are scalars and can be converted to T.
   */
  template <typename T>
  bool Read(std::vector<T>* out) const {
    const JSONAttr* list = this;
    while (list->items().size() == 1 && list->items()[0].kind_ == Kind::kList) {
      list = &list->items()[0];
    }
    out->clear();
    return list->ReadRow(out);
  }

  /*!
   * \brief Read a list of lists.
   * \return Whether all items of the lists are scalars and can be converted to T.
   */
  template <typename T>
  bool Read(std::vector<std::vector<T>>* out) const {
    out->clear();
    const auto is_list = [](const JSONAttr& item) { return item.kind_ == Kind::kList; };
    const bool is_one_row =
        kind_ != Kind::kList ||
        (!items().empty() && std::none_of(items().begin(), items().end(), is_list));
    if (is_one_row) {
      out->emplace_back();
      return ReadRow(&out->back());
    }
    for (const JSONAttr& item : items()) {
      out->emplace_back();
      if (!item.ReadRow(&out->back())) return false;
    }
    return true;
  }

  /*! \brief Append the value as JSON. Infinities and NaN, which JSON lacks, become strings. */
  void AppendTo(std::string* text) const {
    if (kind_ == Kind::kList) {
      AppendItems('[', items(), ']', text, [text](const JSONAttr& item) { item.AppendTo(text); });
    } else if (kind_ == Kind::kObject) {
      AppendItems('{', members(), '}', text, [text](const auto& member) {
        AppendQuoted(member.first, text);
        *text += ": ";
        member.second.AppendTo(text);
      });
    } else if (kind_ == Kind::kString || (kind_ == Kind::kNumber && !std::isfinite(number_))) {
      AppendQuoted(Text(), text);
    } else if (kind_ == Kind::kNull || kind_ == Kind::kBool) {
      *text += kind_ == Kind::kNull ? "null" : integer_ ? "true" : "false";
    } else {
      const std::string digits = Text();
      *text += digits;
      const bool is_whole = digits.find_first_of(".e") == std::string::npos;
      if (kind_ == Kind::kNumber && is_whole) *text += ".0";
    }
  }

  /*! \brief The value as JSON, for error messages. A long value is cut. */
  std::string Repr() const {
    std::string text;
    AppendTo(&text);
    if (text.size() > kMaxRepr) text.replace(kMaxRepr, std::string::npos, "...");
    return text;
  }

  /*! \brief Append a string as JSON. */
  static void AppendQuoted(const std::string& value, std::string* text) {
    constexpr char kHex[] = "0123456789abcdef";
    *text += '"';
    for (char c : value) {
      if (c == '"' || c == '\\') {
        *text += {'\\', c};
      } else if (static_cast<unsigned char>(c) < 0x20) {
        *text += "\\u00";
        *text += {kHex[c >> 4], kHex[c & 15]};
      } else {
        *text += c;
      }
    }
    *text += '"';
  }

 private:
  static constexpr size_t kMaxRepr = 200;

  template <typename T>
  JSONAttr(Kind kind, T contents)
      : kind_(kind), contents_(std::make_shared<const T>(std::move(contents))) {}

  template <typename Values>
  static JSONAttr OfItems(const Values& values) {
    return Of(List(values.begin(), values.end()));
  }
  static JSONAttr OfItems(const Rows& rows) {
    List list;
    for (const Row& row : rows) list.push_back(OfItems(row));
    return Of(std::move(list));
  }
  static JSONAttr OfItems(const Shapes& shapes) {
    List list;
    for (const std::vector<int64_t>& shape : shapes) list.push_back(OfItems(shape));
    return Of(std::move(list));
  }
  static JSONAttr OfScalarOrRow(const Row& row) {
    return row.size() == 1 ? JSONAttr(row[0]) : OfItems(row);
  }

  template <typename T>
  const T& Contents(Kind kind) const {
    static const T kNone{};
    return kind_ == kind ? *static_cast<const T*>(contents_.get()) : kNone;
  }
  const std::string& string() const { return Contents<std::string>(Kind::kString); }

  /*! \brief A scalar as version 1 has it. */
  std::string Text() const {
    switch (kind_) {
      case Kind::kBool:
        return TextOf(integer_ != 0);
      case Kind::kInteger:
        return TextOf(integer_);
      case Kind::kNumber:
        return TextOf(number_);
      default:
        return string();
    }
  }

  bool IsScalar() const { return kind_ != Kind::kList && kind_ != Kind::kObject; }

  bool ReadScalar(std::string* out) const {
    if (IsScalar()) *out = Text();
    return IsScalar();
  }

  template <typename T, typename = std::enable_if_t<std::is_arithmetic<T>::value>>
  bool ReadScalar(T* out) const {
    if (kind_ == Kind::kString) return ParseText(string(), out);
    if constexpr (std::is_floating_point<T>::value) {
      const bool is_number = kind_ == Kind::kNumber;
      if (!is_number && kind_ != Kind::kInteger && kind_ != Kind::kBool) return false;
      const double value = is_number ? number_ : static_cast<double>(integer_);
      // A conversion out of the range of T would be undefined.
      if (std::isfinite(value) && std::abs(value) > std::numeric_limits<T>::max()) return false;
      *out = static_cast<T>(value);
      return true;
    }
    if (kind_ != Kind::kInteger && kind_ != Kind::kBool) return false;
    *out = static_cast<T>(integer_);
    return static_cast<int64_t>(*out) == integer_ && (integer_ >= 0 || std::is_signed<T>::value);
  }

  template <typename T>
  bool ReadRow(std::vector<T>* out) const {
    const size_t count = kind_ == Kind::kList ? items().size() : 1;
    out->reserve(count);
    for (size_t i = 0; i < count; ++i) {
      T value{};
      if (!(kind_ == Kind::kList ? items()[i] : *this).ReadScalar(&value)) return false;
      out->push_back(std::move(value));
    }
    return true;
  }

  template <typename Items, typename Function>
  static void AppendItems(char begin, const Items& items, char end, std::string* text,
                          const Function& append) {
    *text += begin;
    bool is_first = true;
    for (const auto& item : items) {
      if (!is_first) *text += ", ";
      is_first = false;
      append(item);
    }
    *text += end;
  }

  Kind kind_{Kind::kNull};
  union {
    int64_t integer_{0};
    double number_;
  };
  /*! \brief A std::string, a List or an Object, as kind_ says. */
  std::shared_ptr<const void> contents_;
};

/*! \brief The name of a C++ type in error messages. */
template <typename T>
struct AttrTypeName {
  static std::string Get() { return TextTypeName<T>(); }
};
template <typename T>
struct AttrTypeName<std::vector<T>> {
  static std::string Get() { return "list of " + AttrTypeName<T>::Get(); }
};

}  // namespace json
}  // namespace runtime
}  // namespace tvm

#endif  // TVM_RUNTIME_CONTRIB_JSON_JSON_ATTR_H_
