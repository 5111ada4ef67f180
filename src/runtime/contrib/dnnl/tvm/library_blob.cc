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
 * \file src/runtime/contrib/dnnl/tvm/library_blob.cc
 * \brief The data that a library of TVM carries beside its code, where it lies in memory.
 */
#include "library_blob.h"

#include <dmlc/memory_io.h>

#include <memory>
#include <string>
#include <string_view>

#ifdef __linux__
#include <dlfcn.h>
#endif

#include "../core/library.h"

namespace tvm {
namespace runtime {
namespace contrib {
namespace dnnl_backend {

#ifdef __linux__

namespace {

/*!
 * \brief Gives the bytes of a stream, which TVM puts on the library's blob.
 *
 * dmlc keeps them private, but C++ lets an explicit instantiation name them. The other way is to
 * look through all loaded libraries for one that has the same bytes at the same place: 100 lines
 * more, and 60 ms instead of 2 for a library of 100 MB.
 */
template <char* dmlc::MemoryFixedSizeStream::* buffer, size_t dmlc::MemoryFixedSizeStream::* size>
struct StreamBytes {
  friend std::string_view BytesOf(const dmlc::MemoryFixedSizeStream& stream) {
    return {stream.*buffer, stream.*size};
  }
};
template struct StreamBytes<&dmlc::MemoryFixedSizeStream::p_buffer_,
                            &dmlc::MemoryFixedSizeStream::buffer_size_>;
std::string_view BytesOf(const dmlc::MemoryFixedSizeStream& stream);

}  // namespace

std::unique_ptr<const LibraryBlob> LibraryBlob::Of(dmlc::Stream* stream) {
  const auto* fixed = dynamic_cast<dmlc::MemoryFixedSizeStream*>(stream);
  if (fixed == nullptr) return nullptr;
  const std::string_view bytes = BytesOf(*fixed);
  const std::string path = LibraryAt(bytes.data());
  // Null for memory that is no library's, and for what is linked into the program.
  void* handle =
      path.empty() ? nullptr : dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
  if (handle == nullptr) return nullptr;
  return std::unique_ptr<const LibraryBlob>(
      new LibraryBlob(std::shared_ptr<void>(handle, dlclose), bytes));
}

#else

std::unique_ptr<const LibraryBlob> LibraryBlob::Of(dmlc::Stream*) { return nullptr; }

#endif

}  // namespace dnnl_backend
}  // namespace contrib
}  // namespace runtime
}  // namespace tvm
