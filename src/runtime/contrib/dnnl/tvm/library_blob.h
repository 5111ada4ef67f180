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
 * \brief The data that a library of TVM carries beside its code, where it lies in memory.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_TVM_LIBRARY_BLOB_H_
#define TVM_RUNTIME_CONTRIB_DNNL_TVM_LIBRARY_BLOB_H_

#include <dmlc/io.h>

#include <memory>
#include <string_view>
#include <utility>

namespace tvm {
namespace runtime {
namespace contrib {
namespace dnnl_backend {

/*!
 * \brief The blob of a library that this process has loaded.
 *
 * The system maps the library's file into memory, reads a page of it when it is looked at, and may
 * drop it again: to keep a copy of what lies there is a waste. The library stays loaded for as long
 * as this object lives.
 */
class LibraryBlob {
 public:
  /*! \brief The blob that a stream reads, which is a SeekStream then; null for other streams. */
  static std::unique_ptr<const LibraryBlob> Of(dmlc::Stream* stream);

  /*! \brief Its bytes, which begin at any address. */
  std::string_view bytes() const { return bytes_; }

 private:
  LibraryBlob(std::shared_ptr<void> library, std::string_view bytes)
      : library_(std::move(library)), bytes_(bytes) {}

  std::shared_ptr<void> library_;
  std::string_view bytes_;
};

}  // namespace dnnl_backend
}  // namespace contrib
}  // namespace runtime
}  // namespace tvm

#endif  // TVM_RUNTIME_CONTRIB_DNNL_TVM_LIBRARY_BLOB_H_
