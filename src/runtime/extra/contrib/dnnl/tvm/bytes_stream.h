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
 * \file src/runtime/extra/contrib/dnnl/tvm/bytes_stream.h
 * \brief Streams on bytes in memory, for the binary form of a module.
 *
 * Numbers are written as they lie in memory: the machines that oneDNN runs on are little-endian.
 */
#ifndef TVM_RUNTIME_EXTRA_CONTRIB_DNNL_TVM_BYTES_STREAM_H_
#define TVM_RUNTIME_EXTRA_CONTRIB_DNNL_TVM_BYTES_STREAM_H_

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

/*! \brief Reads bytes that outlive it. */
class BytesReader {
 public:
  explicit BytesReader(std::string_view bytes) : left_(bytes) {}

  /*! \brief Read up to so many bytes; returns how many there were. */
  size_t Read(void* out, size_t size) {
    const size_t count = std::min(size, left_.size());
    std::memcpy(out, left_.data(), count);
    left_.remove_prefix(count);
    return count;
  }
  /*! \brief Read a number; returns whether it was there. */
  template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>>
  bool Read(T* out) {
    return Read(out, sizeof(*out)) == sizeof(*out);
  }
  /*! \brief Read numbers with their count first; false if truncated. */
  template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>>
  bool Read(std::vector<T>* out) {
    uint64_t count = 0;
    if (!Read(&count) || count > left_.size() / sizeof(T)) return false;
    out->resize(count);
    return Read(out->data(), count * sizeof(T)) == count * sizeof(T);
  }
  /*! \brief Read a string or bytes with their size first, in place; false if truncated. */
  bool Read(std::string_view* out) {
    uint64_t size = 0;
    return Read(&size) && Read(size, out);
  }
  /*! \brief Read so many bytes, where they lie; false if there are fewer. */
  bool Read(uint64_t size, std::string_view* out) {
    *out = left_.substr(0, size);
    return Skip(size, 1);
  }
  /*! \brief Go past so many elements; returns whether they were there. */
  bool Skip(uint64_t count, size_t size) {
    if (count > left_.size() / size) return false;
    left_.remove_prefix(count * size);
    return true;
  }

 private:
  std::string_view left_;
};

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_EXTRA_CONTRIB_DNNL_TVM_BYTES_STREAM_H_
