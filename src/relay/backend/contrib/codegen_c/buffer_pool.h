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
 * \file src/relay/backend/contrib/codegen_c/buffer_pool.h
 * \brief The buffers of a C function: which value lives where, and when.
 */
#ifndef TVM_RELAY_BACKEND_CONTRIB_CODEGEN_C_BUFFER_POOL_H_
#define TVM_RELAY_BACKEND_CONTRIB_CODEGEN_C_BUFFER_POOL_H_

#include <tvm/runtime/data_type.h>

#include <algorithm>
#include <string>
#include <vector>

namespace tvm {
namespace relay {
namespace contrib {

/*! \brief A buffer of the generated code. */
struct CBuffer {
  std::string name;
  DataType dtype;
  int64_t bytes;
  /*! \brief How many more reads its present value has; 0 if it is free. */
  int pending_reads;
};

/*!
 * \brief Hands out buffers in the order of the calls, and a buffer again once its value was read
 * for the last time.
 */
class BufferPool {
 public:
  /*!
   * \brief A buffer for a new value.
   * \param reads How often the value will be read.
   */
  std::string Take(DataType dtype, int64_t bytes, int reads) {
    CBuffer* best = nullptr;
    for (CBuffer& buffer : buffers_) {
      if (buffer.pending_reads > 0 || buffer.dtype != dtype) continue;
      // The smallest that is large enough, else the largest, which then grows.
      const bool is_better =
          best == nullptr ||
          (buffer.bytes >= bytes ? best->bytes < bytes || buffer.bytes < best->bytes
                                 : buffer.bytes > best->bytes);
      if (is_better) best = &buffer;
    }
    if (best == nullptr) {
      buffers_.push_back({"buf_" + std::to_string(buffers_.size()), dtype, 0, 0});
      best = &buffers_.back();
    }
    best->bytes = std::max(best->bytes, bytes);
    best->pending_reads = reads;
    return best->name;
  }

  /*! \brief Say that a value was read once. Names of other tensors are ignored. */
  void Read(const std::string& name) {
    for (CBuffer& buffer : buffers_) {
      if (buffer.name == name) --buffer.pending_reads;
    }
  }

  const std::vector<CBuffer>& buffers() const { return buffers_; }

 private:
  std::vector<CBuffer> buffers_;
};

}  // namespace contrib
}  // namespace relay
}  // namespace tvm

#endif  // TVM_RELAY_BACKEND_CONTRIB_CODEGEN_C_BUFFER_POOL_H_
