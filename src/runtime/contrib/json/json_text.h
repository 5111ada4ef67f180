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
 * \file src/runtime/contrib/json/json_text.h
 * \brief How numbers become text and back. In version 1 of the JSON graph all attributes are text.
 *
 * The process may run under a locale with another decimal point or with digit grouping, so
 * everything here is done in the classic locale.
 */
#ifndef TVM_RUNTIME_CONTRIB_JSON_JSON_TEXT_H_
#define TVM_RUNTIME_CONTRIB_JSON_JSON_TEXT_H_

#include <charconv>
#include <cmath>
#include <limits>
#include <locale>
#include <sstream>
#include <string>
#include <type_traits>

namespace tvm {
namespace runtime {
namespace json {

template <typename T>
using EnableIfInteger =
    std::enable_if_t<std::is_integral<T>::value && !std::is_same<T, bool>::value>;

/*! \brief The text of an integer. */
template <typename T, typename = EnableIfInteger<T>>
std::string TextOf(T value) {
  return std::to_string(value);
}

/*! \brief The text of a flag, "1" or "0". */
inline std::string TextOf(bool value) { return value ? "1" : "0"; }

/*!
 * \brief The text of a floating point number with so many digits that reading it gives back the
 *        same bits ("inf", "-inf" and "nan" are their own texts).
 */
inline std::string TextOf(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::ostringstream os;
  os.imbue(std::locale::classic());
  os.precision(std::numeric_limits<double>::max_digits10);
  os << value;
  return os.str();
}

inline std::string TextOf(float value) { return TextOf(static_cast<double>(value)); }

/*! \brief Read an integer. The whole text must be one, within the range of T. */
template <typename T, typename = EnableIfInteger<T>>
bool ParseText(const std::string& text, T* out) {
  const char* end = text.data() + text.size();
  std::from_chars_result result = std::from_chars(text.data(), end, *out);
  return result.ec == std::errc() && result.ptr == end;
}

/*! \brief Read a flag, as our writer ("1"), Python ("True") or C++ ("true") print it. */
inline bool ParseText(const std::string& text, bool* out) {
  *out = text == "1" || text == "True" || text == "true";
  return *out || text == "0" || text == "False" || text == "false";
}

/*! \brief Read a floating point number. The whole text must be one that a double can hold. */
inline bool ParseText(const std::string& text, double* out) {
  using Limits = std::numeric_limits<double>;
  if (text == "nan" || text == "-nan") {
    *out = Limits::quiet_NaN();
  } else if (text == "inf" || text == "-inf") {
    *out = text[0] == '-' ? -Limits::infinity() : Limits::infinity();
  } else {
    std::istringstream is(text);
    is.imbue(std::locale::classic());
    is >> std::noskipws >> *out;
    return !is.fail() && is.peek() == std::istringstream::traits_type::eof();
  }
  return true;
}

inline bool ParseText(const std::string& text, float* out) {
  double value = 0;
  if (!ParseText(text, &value)) return false;
  // A conversion out of float's range would be undefined.
  if (std::isfinite(value) && std::abs(value) > std::numeric_limits<float>::max()) return false;
  *out = static_cast<float>(value);
  return true;
}

inline bool ParseText(const std::string& text, std::string* out) {
  *out = text;
  return true;
}

/*! \brief How many bytes the character of UTF-8 at `i` has, if it is one of several bytes. */
inline size_t WideCharacterAt(const std::string& text, size_t i) {
  const auto byte = [&text](size_t at) { return static_cast<unsigned char>(text[at]); };
  const unsigned char first = byte(i);
  size_t length = 0;
  if (first >= 0xc2 && first < 0xe0) length = 2;
  if (first >= 0xe0 && first < 0xf0) length = 3;
  if (first >= 0xf0 && first < 0xf5) length = 4;
  if (length == 0 || text.size() - i < length) return 0;
  for (size_t k = 1; k < length; ++k) {
    if ((byte(i + k) & 0xc0) != 0x80) return 0;
  }
  const unsigned char second = byte(i + 1);
  // Control characters, longer than need be, surrogates, and beyond the last one.
  const bool is_wrong = (first == 0xc2 && second < 0xa0) || (first == 0xe0 && second < 0xa0) ||
                        (first == 0xed && second > 0x9f) || (first == 0xf0 && second < 0x90) ||
                        (first == 0xf4 && second > 0x8f);
  return is_wrong ? 0 : length;
}

/*!
 * \brief Text from a file, fit for an error message.
 *
 * Python decodes error messages as UTF-8 and fails on anything else, and dmlc's messages hold
 * pieces of the file, cut anywhere. So bytes that are no printable character are written as \\xNN.
 */
inline std::string Printable(const std::string& text) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (const size_t length = WideCharacterAt(text, i)) {
      result.append(text, i, length);
      i += length - 1;
    } else if ((byte >= 0x20 && byte < 0x7f) || byte == '\n') {
      result += text[i];
    } else {
      result += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return result;
}

/*! \brief The name of the type T in error messages. */
template <typename T>
constexpr const char* TextTypeName() {
  if (std::is_same<T, bool>::value) return "bool";
  if (std::is_integral<T>::value) return "integer";
  if (std::is_floating_point<T>::value) return "number";
  return "string";
}

}  // namespace json
}  // namespace runtime
}  // namespace tvm

#endif  // TVM_RUNTIME_CONTRIB_JSON_JSON_TEXT_H_
