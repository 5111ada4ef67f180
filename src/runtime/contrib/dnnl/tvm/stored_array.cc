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
 * \file src/runtime/contrib/dnnl/tvm/stored_array.cc
 * \brief Reading the constants of a library without trust in the numbers that it holds.
 */
#include "stored_array.h"

#include <tvm/runtime/container/shape_tuple.h>
#include <tvm/runtime/logging.h>

#include <limits>
#include <string>
#include <vector>

#include "../../json/json_binary.h"
#include "../../json/json_graph_check.h"

namespace tvm {
namespace runtime {
namespace contrib {
namespace dnnl_backend {

namespace {

using json::detail::ReadBounded;
using json::detail::ReadBytes;

constexpr const char* kArray = "an array";

/*! \brief The header before the values of an array. */
struct ArrayHeader {
  std::vector<int64_t> shape;
  DLDataType dtype;
  size_t bytes;
};

/*! \brief The bytes of a tensor; -1 where that is no number. */
int64_t BytesOf(const std::vector<int64_t>& shape, DLDataType dtype) {
  int64_t bytes = (dtype.bits + 7) / 8;
  for (int64_t dim : shape) {
    if (dim < 0 || (dim > 0 && bytes > std::numeric_limits<int64_t>::max() / dim)) return -1;
    bytes *= dim;
  }
  return bytes;
}

ArrayHeader ReadHeader(dmlc::Stream* stream) {
  ArrayHeader header;
  uint64_t magic = 0, reserved = 0;
  DLDevice device;
  int32_t rank = 0;
  CheckComplete(ReadBounded(stream, &magic) && magic == kTVMNDArrayMagic &&
                    ReadBounded(stream, &reserved) && ReadBounded(stream, &device) &&
                    device.device_type == kDLCPU && ReadBounded(stream, &rank) && rank >= 0 &&
                    rank <= static_cast<int32_t>(json::JSONGraphLimits::kRank) &&
                    ReadBounded(stream, &header.dtype),
                kArray);
  header.shape.resize(rank);
  for (int64_t& dim : header.shape) CheckComplete(ReadBounded(stream, &dim), kArray);
  int64_t bytes = 0;
  CheckComplete(ReadBounded(stream, &bytes) && bytes >= 0 && header.dtype.lanes == 1 &&
                    bytes == BytesOf(header.shape, header.dtype),
                kArray);
  header.bytes = static_cast<size_t>(bytes);
  return header;
}

/*! \brief Whether a stream goes on for so many bytes. */
bool Has(dmlc::SeekStream* stream, size_t bytes) {
  if (bytes == 0) return true;
  const size_t position = stream->Tell();
  if (bytes > std::numeric_limits<size_t>::max() - position) return false;
  char last;
  stream->Seek(position + bytes - 1);
  const bool is_there = ReadBytes(stream, &last, 1);
  stream->Seek(position);
  return is_there;
}

}  // namespace

void CheckComplete(bool good, const std::string& what) {
  CHECK(good) << "The constants of a library are cut off or damaged: " << json::Printable(what)
              << " cannot be read. Export the library again.";
}

NDArray ReadArray(dmlc::Stream* stream) {
  const ArrayHeader header = ReadHeader(stream);
  // Those that cannot go back hold what TVM has just written, or what was read as a whole.
  auto* seekable = dynamic_cast<dmlc::SeekStream*>(stream);
  CheckComplete(seekable == nullptr || Has(seekable, header.bytes), kArray);
  NDArray array = NDArray::Empty(ShapeTuple(header.shape), header.dtype, {kDLCPU, 0});
  CheckComplete(ReadBytes(stream, array->data, header.bytes), kArray);
  return array;
}

void SkipArray(dmlc::SeekStream* stream) {
  const ArrayHeader header = ReadHeader(stream);
  CheckComplete(Has(stream, header.bytes), kArray);
  stream->Seek(stream->Tell() + header.bytes);
}

}  // namespace dnnl_backend
}  // namespace contrib
}  // namespace runtime
}  // namespace tvm
