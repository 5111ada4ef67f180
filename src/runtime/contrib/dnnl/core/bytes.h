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
 * \file src/runtime/contrib/dnnl/core/bytes.h
 * \brief Reads and writes the binary form of modules.
 *
 * Numbers are written as they lie in memory: the machines that oneDNN runs on are little-endian.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_BYTES_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_BYTES_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief Appends what it is given to a string. */
class BytesWriter {
 public:
  void Write(const std::string& text) {
    WriteSize(text.size());
    bytes_ += text;
  }
  void Write(const std::vector<std::string>& texts) {
    WriteSize(texts.size());
    for (const std::string& text : texts) Write(text);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void WriteSize(uint64_t size) { bytes_.append(reinterpret_cast<const char*>(&size), 8); }

  std::string bytes_;
};

/*! \brief Reads bytes that come from memory or a stream. */
class ByteReader {
 public:
  virtual ~ByteReader() = default;

  /*! \brief Read up to so many bytes; returns how many there were. */
  virtual size_t Read(void* out, size_t size) = 0;
  /*! \brief Read so many bytes, and leave them in memory of the source; false if truncated. */
  virtual bool Read(uint64_t size, std::string_view* out) = 0;

  /*! \brief Read a number; returns whether it was there. */
  template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>>
  bool Read(T* out) {
    return Read(out, sizeof(*out)) == sizeof(*out);
  }
  /*! \brief Read a string or bytes with their size first; false if truncated. */
  bool Read(std::string_view* out) {
    uint64_t size = 0;
    return Read(&size) && Read(size, out);
  }
};

/*! \brief Reads bytes in memory, which outlive it, in place. */
class BytesReader final : public ByteReader {
 public:
  using ByteReader::Read;

  explicit BytesReader(std::string_view bytes) : left_(bytes) {}

  size_t Read(void* out, size_t size) final {
    const size_t count = std::min(size, left_.size());
    std::memcpy(out, left_.data(), count);
    left_.remove_prefix(count);
    return count;
  }
  bool Read(uint64_t size, std::string_view* out) final {
    if (size > left_.size()) return false;
    *out = left_.substr(0, size);
    left_.remove_prefix(size);
    return true;
  }
  /*! \brief Read numbers with their count first; false if truncated. */
  template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>>
  bool Read(std::vector<T>* out) {
    uint64_t count = 0;
    if (!Read(&count) || count > left_.size() / sizeof(T)) return false;
    out->resize(count);
    return Read(out->data(), count * sizeof(T)) == count * sizeof(T);
  }
  /*! \brief The bytes that were not read. */
  std::string_view left() const { return left_; }

 private:
  std::string_view left_;
};

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_BYTES_H_
