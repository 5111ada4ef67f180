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
 * \file src/runtime/extra/contrib/dnnl/tvm/stored_constants.cc
 * \brief The sizes in the bytes of a const loader, checked before anything is read by them.
 */
#include "stored_constants.h"

#include <cstdint>
#include <limits>

#include "../../../../contrib/dnnl/core/error.h"
#include "bytes_stream.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

void CheckComplete(bool good, const char* what) {
  CORE_CHECK(good) << "The constants of a library are cut off or damaged: " << what
                   << " cannot be read. Export the library again.";
}

/*! \brief Go past a list of texts; returns how many there are. */
uint64_t SkipTexts(BytesReader* reader, const char* what) {
  uint64_t count = 0;
  std::string_view text;
  bool good = reader->Read(&count);
  for (uint64_t i = 0; good && i < count; ++i) good = reader->Read(&text);
  CheckComplete(good, what);
  return count;
}

/*! \brief Go past an array as TVM writes it, if its type and shape need no more than it has. */
bool SkipArray(BytesReader* reader) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  int32_t rank = 0;
  uint8_t code = 0, bits = 0;
  uint16_t lanes = 0;
  // A magic number, one that is reserved, and the device.
  if (!reader->Skip(3, sizeof(uint64_t)) || !reader->Read(&rank) || rank < 0 ||
      !reader->Read(&code) || !reader->Read(&bits) || !reader->Read(&lanes)) {
    return false;
  }
  int64_t needed = int64_t{bits} * lanes;
  for (int i = 0; i < rank; ++i) {
    int64_t dim = 0;
    if (!reader->Read(&dim) || dim < 0 || (dim > 0 && needed > kMax / dim)) return false;
    needed *= dim;
  }
  int64_t size = 0;
  // Elements of a few bits may lie in a byte each.
  return reader->Read(&size) && size >= 0 && needed / 8 <= size && reader->Skip(size, 1);
}

}  // namespace

void CheckConstants(std::string_view bytes) {
  BytesReader reader(bytes);
  const uint64_t named = SkipTexts(&reader, "the names");
  uint64_t count = 0;
  CheckComplete(reader.Read(&count) && count == named, "the number of arrays");
  for (uint64_t i = 0; i < count; ++i) CheckComplete(SkipArray(&reader), "an array");
  const uint64_t functions = SkipTexts(&reader, "the names of the functions");
  CheckComplete(reader.Read(&count) && count == functions, "the number of functions");
  for (uint64_t i = 0; i < count; ++i) SkipTexts(&reader, "the constants of a function");
}

}  // namespace tvm::runtime::contrib::dnnl_backend
