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
 * \file src/runtime/contrib/dnnl/tvm/constant_bytes.h
 * \brief Reads constants from a stream of TVM without trust in the numbers that it holds.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_TVM_CONSTANT_BYTES_H_
#define TVM_RUNTIME_CONTRIB_DNNL_TVM_CONSTANT_BYTES_H_

#include <dmlc/io.h>
#include <tvm/runtime/ndarray.h>

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "../core/stored_constants.h"
#include "library_blob.h"

namespace tvm {
namespace runtime {
namespace contrib {
namespace dnnl_backend {

/*! \brief The memory of constants: a library that is loaded, or a copy of what was in a stream. */
class ConstantBytes {
 public:
  /*!
   * \brief Read a part of a stream, after which it goes on. Call it once.
   * \param read Reads the part. What it gets stays valid for as long as this object lives.
   * \throws TVM's error for what \p read throws.
   */
  void Read(dmlc::Stream* stream, const std::function<void(ByteReader*)>& read);

  /*! \brief Whether they are in a library. */
  bool IsLibrary() const { return blob_ != nullptr; }

  /*! \brief Tell the system that those in a library are not needed for now. To look is safe. */
  void ReleasePages() const;

 private:
  /*! \brief Null for other streams. */
  std::unique_ptr<const LibraryBlob> blob_;
  std::string_view part_;
  std::deque<std::string> copies_;
};

/*! \brief A copy of an array. Fails if it is none of scalars on the CPU. */
NDArray CopyOf(const StoredArray& stored);

}  // namespace dnnl_backend
}  // namespace contrib
}  // namespace runtime
}  // namespace tvm

#endif  // TVM_RUNTIME_CONTRIB_DNNL_TVM_CONSTANT_BYTES_H_
