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
 * \file src/runtime/contrib/dnnl/tvm/constant_bytes.cc
 * \brief Reads constants from a stream of TVM without trust in the numbers that it holds.
 */
#include "constant_bytes.h"

#include <tvm/runtime/container/shape_tuple.h>

#include <cstring>
#include <deque>
#include <functional>
#include <string>
#include <string_view>

#include "../../json/json_binary.h"
#include "../core/library.h"
#include "errors.h"

namespace tvm {
namespace runtime {
namespace contrib {
namespace dnnl_backend {

namespace {

/*! \brief Reads a stream that may be unable to go back. */
class StreamReader final : public ByteReader {
 public:
  using ByteReader::Read;

  StreamReader(dmlc::Stream* stream, std::deque<std::string>* copies)
      : stream_(stream), copies_(copies) {}

  size_t Read(void* out, size_t size) final {
    return json::detail::ReadBytes(stream_, out, size) ? size : 0;
  }
  bool Read(uint64_t size, std::string_view* out) final {
    *out = {};
    if (size == 0) return true;
    copies_->emplace_back();
    const bool is_there = json::detail::ReadPieces(stream_, size, &copies_->back());
    *out = copies_->back();
    return is_there;
  }

 private:
  dmlc::Stream* stream_;
  std::deque<std::string>* copies_;
};

}  // namespace

void ConstantBytes::Read(dmlc::Stream* stream, const std::function<void(ByteReader*)>& read) {
  blob_ = LibraryBlob::Of(stream);
  if (blob_ == nullptr) {
    StreamReader reader(stream, &copies_);
    WithTVMErrors([&]() { read(&reader); });
    return;
  }
  auto* seekable = static_cast<dmlc::SeekStream*>(stream);
  const size_t begin = seekable->Tell();
  BytesReader reader(blob_->bytes().substr(begin));
  WithTVMErrors([&]() { read(&reader); });
  const size_t end = blob_->bytes().size() - reader.left().size();
  part_ = blob_->bytes().substr(begin, end - begin);
  seekable->Seek(end);
}

void ConstantBytes::ReleasePages() const {
  if (IsLibrary()) dnnl_backend::ReleasePages(part_.data(), part_.data() + part_.size());
}

NDArray CopyOf(const StoredArray& stored) {
  WithTVMErrors([&stored]() { CheckComplete(stored.is_readable, "an array"); });
  NDArray array = NDArray::Empty(ShapeTuple(stored.shape), stored.dtype, {kDLCPU, 0});
  if (!stored.values.empty()) {
    std::memcpy(array->data, stored.values.data(), stored.values.size());
  }
  return array;
}

}  // namespace dnnl_backend
}  // namespace contrib
}  // namespace runtime
}  // namespace tvm
