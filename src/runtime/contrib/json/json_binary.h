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
 * \file src/runtime/contrib/json/json_binary.h
 * \brief The binary form of a JSON module: symbol, graph, names of the constants.
 */
#ifndef TVM_RUNTIME_CONTRIB_JSON_JSON_BINARY_H_
#define TVM_RUNTIME_CONTRIB_JSON_JSON_BINARY_H_

#include <algorithm>
#include <cstdint>
#include <exception>
#include <string>
#include <type_traits>
#include <vector>

#include "json_text.h"
#include "json_tvm.h"

namespace tvm {
namespace runtime {
namespace json {

/*! \brief The contents of the binary form. */
struct JSONModuleBinary {
  std::string symbol;
  std::string graph_json;
  std::vector<std::string> const_names;
};

/*! \brief Write the binary form. It is the one of TVM's other JSON modules. */
template <typename Stream>
void WriteBinary(Stream* stream, const std::string& symbol, const std::string& graph_json,
                 const std::vector<std::string>& const_names) {
  stream->Write(symbol);
  stream->Write(graph_json);
  stream->Write(const_names);
}

namespace detail {

/*! \brief Read so many bytes; false where they are not there. */
template <typename Stream>
bool ReadBytes(Stream* stream, void* out, size_t bytes) {
  try {
    return stream->Read(out, bytes) == bytes;
  } catch (const std::exception&) {
    // dmlc's streams on memory throw. What they say, nobody would understand.
    return false;
  }
}

/*! \brief Read a number or a struct of TVM's. */
template <typename Stream, typename T,
          typename = std::enable_if_t<std::is_trivially_copyable<T>::value>>
bool ReadBounded(Stream* stream, T* out) {
  try {
    return stream->Read(out);
  } catch (const std::exception&) {
    return false;
  }
}

/*!
 * \brief Read so many bytes in pieces.
 *
 * dmlc's own reader allocates as much as the file says before it looks whether it is there; a
 * damaged length would take all memory.
 */
template <typename Stream>
bool ReadPieces(Stream* stream, uint64_t left, std::string* out) {
  constexpr uint64_t kPiece = 1 << 20;
  out->clear();
  while (left > 0) {
    const size_t piece = static_cast<size_t>(std::min(left, kPiece));
    const size_t start = out->size();
    out->resize(start + piece);
    if (!ReadBytes(stream, &(*out)[start], piece)) return false;
    left -= piece;
  }
  return true;
}

/*! \brief Read a string, with its size first. */
template <typename Stream>
bool ReadBounded(Stream* stream, std::string* out) {
  uint64_t size = 0;
  return ReadBounded(stream, &size) && ReadPieces(stream, size, out);
}

/*! \brief Read a list of strings in the same way. */
template <typename Stream>
bool ReadBounded(Stream* stream, std::vector<std::string>* out) {
  uint64_t count = 0;
  bool good = ReadBounded(stream, &count);
  out->clear();
  for (uint64_t i = 0; good && i < count; ++i) {
    out->emplace_back();
    good = ReadBounded(stream, &out->back());
  }
  return good;
}

}  // namespace detail

/*!
 * \brief Read the binary form.
 * \throws An error that says which part is cut off.
 */
template <typename Stream>
JSONModuleBinary ReadBinary(Stream* stream) {
  JSONModuleBinary binary;
  JSON_CHECK(detail::ReadBounded(stream, &binary.symbol))
      << "A JSON module in a library is cut off or damaged: its symbol cannot be read";
  JSON_CHECK(detail::ReadBounded(stream, &binary.graph_json))
      << "The JSON module '" << Printable(binary.symbol) << "' is cut off or damaged: no graph";
  JSON_CHECK(detail::ReadBounded(stream, &binary.const_names))
      << "The JSON module '" << Printable(binary.symbol)
      << "' is cut off or damaged: the names of its constants cannot be read";
  return binary;
}

}  // namespace json
}  // namespace runtime
}  // namespace tvm

#endif  // TVM_RUNTIME_CONTRIB_JSON_JSON_BINARY_H_
