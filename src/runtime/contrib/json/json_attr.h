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

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "json_text.h"

namespace tvm {
namespace runtime {
namespace json {

/*!
 * \brief Rows of texts, or (for the attribute "shape") a list of shapes.
 *
 * A scalar is one row with one text, an array is one row, an array of arrays has a row for each
 * inner array. So the JSON of `padding=[1, 1]` is `[["1", "1"]]`.
 */
class JSONAttr {
 public:
  using Row = std::vector<std::string>;
  using Rows = std::vector<Row>;
  using Shapes = std::vector<std::vector<int64_t>>;

  JSONAttr() = default;
  JSONAttr(std::string text) : rows_{Row{std::move(text)}} {}                // NOLINT(*)
  JSONAttr(const char* text) : JSONAttr(std::string(text)) {}                // NOLINT(*)
  JSONAttr(Row row) : rows_{std::move(row)} {}                               // NOLINT(*)
  JSONAttr(Rows rows) : rows_(std::move(rows)) {}                            // NOLINT(*)
  JSONAttr(Shapes shapes) : is_shapes_(true), shapes_(std::move(shapes)) {}  // NOLINT(*)
  template <typename T, typename = std::enable_if_t<std::is_arithmetic<T>::value>>
  JSONAttr(T value) : JSONAttr(TextOf(value)) {}  // NOLINT(*)

  bool operator==(const JSONAttr& other) const {
    return is_shapes_ == other.is_shapes_ && rows_ == other.rows_ && shapes_ == other.shapes_;
  }

  /*! \brief Whether this stands for an absent value, which is written as one empty text. */
  bool IsNull() const {
    return !is_shapes_ && rows_.size() == 1 && rows_[0].size() == 1 && rows_[0][0].empty();
  }

  /*!
   * \brief Read one value.
   * \return Whether this is exactly one text and the text is a T.
   */
  template <typename T>
  bool Read(T* out) const {
    return !is_shapes_ && rows_.size() == 1 && rows_[0].size() == 1 && ParseText(rows_[0][0], out);
  }

  /*!
   * \brief Read a flat array.
   * \return Whether there is at most one row and all its texts are T.
   */
  template <typename T>
  bool Read(std::vector<T>* out) const {
    if (is_shapes_ || rows_.size() > 1) return false;
    out->clear();
    return rows_.empty() || ReadRow(rows_[0], out);
  }

  /*!
   * \brief Read all rows.
   * \return Whether all texts are T.
   */
  template <typename T>
  bool Read(std::vector<std::vector<T>>* out) const {
    out->clear();
    for (const Row& row : AsRows()) {
      out->emplace_back();
      if (!ReadRow(row, &out->back())) return false;
    }
    return true;
  }

  /*! \brief Write the value as our one line of JSON, with a writer such as dmlc::JSONWriter. */
  template <typename Writer>
  void Save(Writer* writer) const {
    writer->BeginArray(false);
    if (is_shapes_) {
      writer->WriteArraySeperator();
      SaveNested(writer, shapes_);
    } else {
      for (const Row& row : rows_) {
        writer->WriteArraySeperator();
        SaveFlat(writer, row);
      }
    }
    writer->EndArray();
  }

  /*! \brief Read `[["text", ...], ...]` with a reader such as dmlc::JSONReader. */
  template <typename Reader>
  void Load(Reader* reader) {
    Rows rows;
    reader->Read(&rows);
    *this = std::move(rows);
  }

  /*!
   * \brief Read `[[[1, 2], ...]]`, as the attribute "shape" is written.
   * \return Whether it is one list of shapes.
   */
  template <typename Reader>
  bool LoadShapes(Reader* reader) {
    std::vector<Shapes> lists;
    reader->Read(&lists);
    if (lists.size() != 1) return false;
    *this = std::move(lists[0]);
    return true;
  }

  /*! \brief The value as JSON text, for error messages. A long value is cut. */
  std::string Repr() const {
    ReprWriter writer;
    Save(&writer);
    if (writer.text.size() > kMaxRepr) writer.text.replace(kMaxRepr, std::string::npos, "...");
    return writer.text;
  }

 private:
  static constexpr size_t kMaxRepr = 200;

  /*! \brief So much of dmlc::JSONWriter as Save needs. */
  struct ReprWriter {
    std::string text;

    void BeginArray(bool) { text += '['; }
    void EndArray() { text += ']'; }
    void WriteArraySeperator() {
      if (text.back() != '[') text += ", ";
    }
    void WriteArrayItem(int64_t item) {
      WriteArraySeperator();
      text += TextOf(item);
    }
    void WriteArrayItem(const std::string& item) {
      WriteArraySeperator();
      text += '"';
      for (char c : item) {
        if (c == '"' || c == '\\') text += '\\';
        text += c;
      }
      text += '"';
    }
  };

  template <typename T>
  static bool ReadRow(const Row& row, std::vector<T>* out) {
    out->reserve(row.size());
    for (const std::string& text : row) {
      T value{};
      if (!ParseText(text, &value)) return false;
      out->push_back(std::move(value));
    }
    return true;
  }

  Rows AsRows() const {
    if (!is_shapes_) return rows_;
    Rows rows;
    for (const std::vector<int64_t>& shape : shapes_) {
      rows.emplace_back();
      for (int64_t dim : shape) rows.back().push_back(TextOf(dim));
    }
    return rows;
  }

  template <typename Writer, typename T>
  static void SaveFlat(Writer* writer, const std::vector<T>& items) {
    writer->BeginArray(false);
    for (const T& item : items) writer->WriteArrayItem(item);
    writer->EndArray();
  }

  template <typename Writer>
  static void SaveNested(Writer* writer, const Shapes& shapes) {
    writer->BeginArray(false);
    for (const std::vector<int64_t>& shape : shapes) {
      writer->WriteArraySeperator();
      SaveFlat(writer, shape);
    }
    writer->EndArray();
  }

  // Not a std::variant: if memory ends while one is copied that has vectors, libstdc++ destroys the
  // vector that it has not constructed.
  bool is_shapes_{false};
  Rows rows_;
  Shapes shapes_;
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
