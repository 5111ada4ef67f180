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
 * \brief What a library of TVM carries beside its code, where it lies in memory.
 */
#include "library_blob.h"

#include <tvm/runtime/module.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#ifdef __linux__
#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>
#endif

#include "../core/plan/allocator.h"

namespace tvm {
namespace runtime {
namespace contrib {
namespace dnnl_backend {

#ifdef __linux__

namespace {

/*! \brief A loaded library, and from where to where it is mapped so that nobody can write to it. */
struct Library {
  std::string path;
  std::vector<std::pair<const char*, const char*>> segments;

  /*! \brief The end of the segment that an address lies in, or nullptr. */
  const char* EndBehind(const char* address) const {
    for (const auto& [begin, end] : segments) {
      if (address >= begin && address < end) return end;
    }
    return nullptr;
  }
};

int AddLibrary(struct dl_phdr_info* info, size_t, void* libraries) {
  Library library{info->dlpi_name, {}};
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& header = info->dlpi_phdr[i];
    if (header.p_type != PT_LOAD || (header.p_flags & PF_W) != 0) continue;
    const char* begin = reinterpret_cast<const char*>(info->dlpi_addr + header.p_vaddr);
    library.segments.emplace_back(begin, begin + header.p_filesz);
  }
  static_cast<std::vector<Library>*>(libraries)->push_back(std::move(library));
  return 0;
}

/*! \brief How long a blob is: eight bytes, the lowest first, stand before it. */
uint64_t BlobSize(const char* blob) {
  uint64_t size = 0;
  for (int i = 0; i < 8; ++i) {
    size |= static_cast<uint64_t>(static_cast<unsigned char>(blob[i])) << (8 * i);
  }
  return size;
}

bool HasBytes(dmlc::SeekStream* stream, size_t begin, size_t end, const char* expected) {
  std::vector<char> piece(std::min<size_t>(end - begin, 64 << 10));
  stream->Seek(begin);
  for (size_t at = begin; at < end;) {
    const size_t size = std::min(piece.size(), end - at);
    if (stream->Read(piece.data(), size) != size) return false;
    if (std::memcmp(piece.data(), expected + (at - begin), size) != 0) return false;
    at += size;
  }
  return true;
}

}  // namespace

std::shared_ptr<const LibraryBlob> LibraryBlob::Find(dmlc::SeekStream* stream, size_t begin,
                                                     size_t end) {
  std::vector<Library> libraries;
  dl_iterate_phdr(AddLibrary, &libraries);
  for (const Library& mapped : libraries) {
    if (mapped.path.empty()) continue;
    void* handle = dlopen(mapped.path.c_str(), RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
    if (handle == nullptr) continue;
    const std::shared_ptr<void> library(handle, dlclose);
    auto* blob = static_cast<const char*>(dlsym(handle, symbol::tvm_dev_mblob));
    // dlsym also finds the blob of a library that this one depends on.
    const char* segment_end = mapped.EndBehind(blob);
    if (segment_end == nullptr || segment_end - blob < 8) continue;
    const char* data = blob + 8;
    if (BlobSize(blob) < end || static_cast<size_t>(segment_end - data) < end) continue;
    if (HasBytes(stream, begin, end, data + begin)) {
      return std::shared_ptr<const LibraryBlob>(new LibraryBlob(library, data + begin, begin, end));
    }
  }
  return nullptr;
}

void LibraryBlob::ReleasePages() const {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t first = RoundUp(reinterpret_cast<size_t>(data_), page);
  const size_t last = reinterpret_cast<size_t>(data_ + (end_ - begin_)) / page * page;
  // A mere hint: where it is not heeded, memory is used and nothing else.
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

#else

std::shared_ptr<const LibraryBlob> LibraryBlob::Find(dmlc::SeekStream*, size_t, size_t) {
  return nullptr;
}

void LibraryBlob::ReleasePages() const {}

#endif

}  // namespace dnnl_backend
}  // namespace contrib
}  // namespace runtime
}  // namespace tvm
