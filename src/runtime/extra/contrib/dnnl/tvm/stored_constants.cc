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
 * \brief What the bytes of a const loader hold, with all sizes checked.
 */
#include "stored_constants.h"

#include <cstdint>
#include <limits>
#include <vector>

#include "../../../../contrib/dnnl/core/error.h"
#include "bytes_stream.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

void CheckComplete(bool good, const char* what) {
  CORE_CHECK(good) << "The constants of a library are cut off or damaged: " << what
                   << " cannot be read. Export the library again.";
}

/*! \brief Read a list of texts. */
std::vector<std::string_view> ReadTexts(BytesReader* reader, const char* what) {
  uint64_t count = 0;
  std::string_view text;
  std::vector<std::string_view> texts;
  bool good = reader->Read(&count);
  for (uint64_t i = 0; good && i < count; ++i) {
    good = reader->Read(&text);
    texts.push_back(text);
  }
  CheckComplete(good, what);
  return texts;
}

/*! \brief Read an array as TVM writes it, if its type and shape need no more than it has. */
bool ReadArray(BytesReader* reader, StoredArray* array) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  // Before the arrays that TVM saves.
  constexpr uint64_t kMagic = 0xDD5E40F096B4A13F;
  uint64_t magic = 0;
  int32_t device = 0, rank = 0;
  uint8_t code = 0, bits = 0;
  uint16_t lanes = 0;
  // The magic number is followed by one that is reserved, and the device by its index.
  if (!reader->Read(&magic) || !reader->Skip(1, sizeof(uint64_t)) || !reader->Read(&device) ||
      !reader->Skip(1, sizeof(int32_t)) || !reader->Read(&rank) || rank < 0 ||
      !reader->Read(&code) || !reader->Read(&bits) || !reader->Read(&lanes)) {
    return false;
  }
  array->dtype = {code, bits, lanes};
  int64_t needed = int64_t{bits} * lanes, bytes = (needed + 7) / 8;
  for (int i = 0; i < rank; ++i) {
    int64_t dim = 0;
    if (!reader->Read(&dim) || dim < 0 || (dim > 0 && needed > kMax / dim)) return false;
    array->shape.push_back(dim);
    needed *= dim;
    bytes = dim > 0 && bytes > kMax / dim ? kMax : bytes * dim;
  }
  int64_t size = 0;
  // Elements of a few bits may lie in a byte each.
  const bool is_there = reader->Read(&size) && size >= 0 && needed / 8 <= size &&
                        reader->Read(static_cast<uint64_t>(size), &array->values);
  array->is_readable = magic == kMagic && device == kDLCPU && bytes == size;
  return is_there;
}

}  // namespace

StoredConstants ReadConstants(std::string_view bytes) {
  StoredConstants stored;
  BytesReader reader(bytes);
  const std::vector<std::string_view> names = ReadTexts(&reader, "the names");
  uint64_t count = 0;
  CheckComplete(reader.Read(&count) && count == names.size(), "the number of arrays");
  for (const std::string_view name : names) {
    stored.arrays.push_back({name});
    CheckComplete(ReadArray(&reader, &stored.arrays.back()), "an array");
  }
  for (const std::string_view symbol : ReadTexts(&reader, "the names of the functions")) {
    stored.functions.push_back({symbol});
  }
  CheckComplete(reader.Read(&count) && count == stored.functions.size(), "the number of functions");
  for (StoredFunction& function : stored.functions) {
    function.constants = ReadTexts(&reader, "the constants of a function");
  }
  return stored;
}

}  // namespace tvm::runtime::contrib::dnnl_backend
