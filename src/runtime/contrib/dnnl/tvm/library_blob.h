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
 * \file src/runtime/contrib/dnnl/tvm/library_blob.h
 * \brief What a library of TVM carries beside its code, where it lies in memory.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_TVM_LIBRARY_BLOB_H_
#define TVM_RUNTIME_CONTRIB_DNNL_TVM_LIBRARY_BLOB_H_

#include <dmlc/io.h>

#include <cstddef>
#include <memory>
#include <utility>

namespace tvm {
namespace runtime {
namespace contrib {
namespace dnnl_backend {

/*!
 * \brief A piece of the blob of a library that this process has loaded.
 *
 * The system maps the library's file into memory, reads a page of it when it is looked at, and may
 * drop it again: to keep a copy of what lies there is a waste. The library stays loaded for as long
 * as this object lives.
 */
class LibraryBlob {
 public:
  /*!
   * \brief Find what the bytes from `begin` to `end` of a stream were read from.
   *
   * A stream does not tell where it reads; what is found has been compared byte for byte.
   * \return Null if no loaded library has these bytes there. The stream is anywhere then, else at
   *         `end`.
   */
  static std::shared_ptr<const LibraryBlob> Find(dmlc::SeekStream* stream, size_t begin,
                                                 size_t end);

  /*! \brief The address of what is at `position` of the stream; not aligned in any way. */
  const char* At(size_t position) const { return data_ + (position - begin_); }

  /*! \brief Tell the system that the pages are not needed for now. To look at them is safe. */
  void ReleasePages() const;

 private:
  LibraryBlob(std::shared_ptr<void> library, const char* data, size_t begin, size_t end)
      : library_(std::move(library)), data_(data), begin_(begin), end_(end) {}

  std::shared_ptr<void> library_;
  const char* data_;
  size_t begin_;
  size_t end_;
};

}  // namespace dnnl_backend
}  // namespace contrib
}  // namespace runtime
}  // namespace tvm

#endif  // TVM_RUNTIME_CONTRIB_DNNL_TVM_LIBRARY_BLOB_H_
