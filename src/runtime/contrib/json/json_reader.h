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
 * \file src/runtime/contrib/json/json_reader.h
 * \brief Reads JSON text, value by value, as the caller asks for them.
 */
#ifndef TVM_RUNTIME_CONTRIB_JSON_JSON_READER_H_
#define TVM_RUNTIME_CONTRIB_JSON_JSON_READER_H_

#include <charconv>
#include <cstdint>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "json_attr.h"
#include "json_tvm.h"

namespace tvm {
namespace runtime {
namespace json {

/*!
 * \brief A reader with the interface of dmlc::JSONReader, of which releases after Relay have none.
 *
 * The caller says how deep the text is nested, except for a JSONAttr, whose depth and size are
 * bounded: no text exhausts the stack, or much more memory than it has bytes. The text must outlive
 * the reader.
 */
class JSONReader {
 public:
  explicit JSONReader(const std::string& text)
      : begin_(text.data()), next_(begin_), end_(begin_ + text.size()) {}

  void BeginObject() { Begin('{'); }
  /*! \brief The key of the next item, whose value is to be read next; false after the last. */
  bool NextObjectItem(std::string* key) {
    if (!NextItem('}')) return false;
    Read(key);
    Expect(':');
    return true;
  }

  void BeginArray() { Begin('['); }
  bool NextArrayItem() { return NextItem(']'); }

  void Read(std::string* out) {
    Expect('"');
    out->clear();
    while (true) {
      JSON_CHECK(next_ != end_ && *next_ != '\n' && *next_ != '\r')
          << "Expected the end of a string" << Where();
      const char c = *next_++;
      if (c == '"') return;
      if (c == '\\') {
        ReadEscape(out);
      } else {
        *out += c;
      }
    }
  }

  void Read(int64_t* out) {
    Peek();
    const std::from_chars_result result = std::from_chars(next_, end_, *out);
    JSON_CHECK(result.ec == std::errc()) << "Expected a 64-bit number" << Where();
    next_ = result.ptr;
    JSON_CHECK(next_ == end_ || std::strchr(",]} \t\n\r", *next_) != nullptr)
        << "Expected an integer" << Where();
  }

  /*! \brief Read any value. */
  void Read(JSONAttr* out) { ReadValue(out, 0); }

  template <typename T>
  void Read(std::vector<T>* out) {
    out->clear();
    BeginArray();
    while (NextArrayItem()) {
      out->emplace_back();
      Read(&out->back());
    }
  }

  /*! \brief Read an object that knows how to load itself. */
  template <typename T>
  auto Read(T* out) -> decltype(out->Load(this)) {
    return out->Load(this);
  }

  /*! \brief Fail if anything but blanks follows. */
  void ExpectEnd() {
    JSON_CHECK(Peek() == '\0' && next_ == end_) << "There is text after the end" << Where();
  }

 private:
  /*! \brief Far above what a graph has: lists of lists in a post-op are five deep. */
  static constexpr int kMaxDepth = 16;
  static constexpr size_t kMaxValues = 1 << 22;

  std::string Where() const { return " at byte " + std::to_string(next_ - begin_); }

  /*! \brief The next character that is not blank, where the reader stays; 0 at the end. */
  char Peek() {
    while (next_ != end_ && std::strchr(" \t\n\r", *next_) != nullptr && *next_ != '\0') ++next_;
    return next_ == end_ ? '\0' : *next_;
  }

  void Expect(char c) {
    JSON_CHECK(Peek() == c && next_ != end_) << "Expected '" << c << "'" << Where();
    ++next_;
  }

  void Begin(char bracket) {
    Expect(bracket);
    is_first_.push_back(true);
  }

  bool NextItem(char bracket) {
    if (Peek() == bracket) {
      Expect(bracket);
      is_first_.pop_back();
      return false;
    }
    if (!is_first_.back()) Expect(',');
    is_first_.back() = false;
    return true;
  }

  void ReadValue(JSONAttr* out, int depth) {
    JSON_CHECK(depth < kMaxDepth) << "A value is nested too deep" << Where();
    JSON_CHECK(++num_values_ <= kMaxValues) << "There are too many values" << Where();
    const char c = Peek();
    if (c == '{') {
      JSONAttr::Object members;
      std::string key;
      BeginObject();
      while (NextObjectItem(&key)) {
        JSON_CHECK(members.count(key) == 0) << "Attribute \"" << key << "\" appears twice";
        ReadValue(&members[key], depth + 1);
      }
      *out = JSONAttr::Of(std::move(members));
    } else if (c == '[') {
      JSONAttr::List items;
      BeginArray();
      while (NextArrayItem()) {
        items.emplace_back();
        ReadValue(&items.back(), depth + 1);
      }
      *out = JSONAttr::Of(std::move(items));
    } else if (c == '"') {
      std::string text;
      Read(&text);
      *out = JSONAttr(std::move(text));
    } else {
      ReadWord(out);
    }
  }

  /*! \brief Read a number, true, false or null. */
  void ReadWord(JSONAttr* out) {
    const char* end = next_;
    while (end != end_ && std::strchr(",:]} \t\n\r", *end) == nullptr) ++end;
    const std::string word(next_, end);
    int64_t integer = 0;
    double number = 0;
    const bool is_number = word[0] == '-' || (word[0] >= '0' && word[0] <= '9');
    if (word == "null") {
      *out = JSONAttr();
    } else if (word == "true" || word == "false") {
      *out = JSONAttr(word == "true");
    } else if (is_number && ParseText(word, &integer)) {
      *out = JSONAttr(integer);
    } else {
      // Infinities and NaN are no JSON; an integer of more bits would lose its last digits.
      JSON_CHECK(is_number && word.find_first_of(".eE") != std::string::npos &&
                 ParseText(word, &number))
          << "Expected a value" << Where();
      *out = JSONAttr(number);
    }
    next_ = end;
  }

  void ReadEscape(std::string* out) {
    static const char kEscapes[] = "\"\\/bfnrt", kMeanings[] = "\"\\/\b\f\n\r\t";
    const char c = next_ == end_ ? '\0' : *next_;
    const char* known = c == '\0' ? nullptr : std::strchr(kEscapes, c);
    if (known != nullptr) {
      ++next_;
      *out += kMeanings[known - kEscapes];
      return;
    }
    JSON_CHECK(c == 'u') << "Expected a known escape" << Where();
    uint32_t code = ReadCodeUnit();
    if (code >= 0xd800 && code < 0xdc00) {
      JSON_CHECK(end_ - next_ >= 2 && *next_++ == '\\' && *next_ == 'u')
          << "Expected a pair of surrogates" << Where();
      const uint32_t low = ReadCodeUnit();
      JSON_CHECK(low >= 0xdc00 && low < 0xe000) << "Expected a pair of surrogates" << Where();
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    AppendUTF8(code, out);
  }

  /*! \brief Read "uXXXX". */
  uint32_t ReadCodeUnit() {
    uint32_t code = 0;
    JSON_CHECK(end_ - next_ >= 5) << "Expected four digits" << Where();
    const std::from_chars_result result = std::from_chars(next_ + 1, next_ + 5, code, 16);
    JSON_CHECK(result.ec == std::errc() && result.ptr == next_ + 5)
        << "Expected four digits" << Where();
    next_ += 5;
    return code;
  }

  static void AppendUTF8(uint32_t code, std::string* out) {
    if (code < 0x80) {
      *out += static_cast<char>(code);
      return;
    }
    const int num_more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const int kFirst[] = {0, 0xc0, 0xe0, 0xf0};
    *out += static_cast<char>(kFirst[num_more] | (code >> (6 * num_more)));
    for (int i = num_more - 1; i >= 0; --i) {
      *out += static_cast<char>(0x80 | ((code >> (6 * i)) & 0x3f));
    }
  }

  const char* begin_;
  const char* next_;
  const char* end_;
  /*! \brief For each open array and object, whether no item of it was read. */
  std::vector<bool> is_first_;
  size_t num_values_{0};
};

}  // namespace json
}  // namespace runtime
}  // namespace tvm

#endif  // TVM_RUNTIME_CONTRIB_JSON_JSON_READER_H_
