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
 * \file src/runtime/contrib/dnnl/core/stored_constants.cc
 * \brief Reads the binary form of a const loader, which is the same in both TVMs.
 */
#include "stored_constants.h"

#include <cstdint>
#include <limits>
#include <string>
#include <unordered_map>
#include <vector>

#include "error.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief Read a list of texts. */
std::vector<std::string_view> ReadTexts(ByteReader* reader, const char* what) {
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

}  // namespace

void CheckComplete(bool good, const std::string& what) {
  CORE_CHECK(good) << "The constants of a library are cut off or damaged: " << what
                   << " cannot be read. Export the library again.";
}

bool ReadArray(ByteReader* reader, StoredArray* array) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  constexpr int32_t kMaxRank = 32;
  // Before the arrays that TVM saves.
  constexpr uint64_t kMagic = 0xDD5E40F096B4A13F;
  uint64_t magic = 0, reserved = 0;
  int32_t device = 0, device_id = 0, rank = 0;
  uint8_t code = 0, bits = 0;
  uint16_t lanes = 0;
  if (!reader->Read(&magic) || !reader->Read(&reserved) || !reader->Read(&device) ||
      !reader->Read(&device_id) || !reader->Read(&rank) || rank < 0 || !reader->Read(&code) ||
      !reader->Read(&bits) || !reader->Read(&lanes)) {
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
  array->is_readable =
      magic == kMagic && device == kDLCPU && rank <= kMaxRank && lanes == 1 && bytes == size;
  return is_there;
}

StoredConstants ReadConstants(ByteReader* reader) {
  StoredConstants stored;
  std::unordered_map<std::string_view, size_t> index;
  for (const std::string_view name : ReadTexts(reader, "the names")) {
    CheckComplete(index.emplace(name, stored.arrays.size()).second, "a name that is there twice");
    stored.arrays.push_back({name});
  }
  uint64_t count = 0;
  CheckComplete(reader->Read(&count) && count == stored.arrays.size(), "the number of arrays");
  for (StoredArray& array : stored.arrays) CheckComplete(ReadArray(reader, &array), "an array");
  for (const std::string_view symbol : ReadTexts(reader, "the names of the functions")) {
    stored.functions.push_back({symbol});
  }
  CheckComplete(reader->Read(&count) && count == stored.functions.size(),
                "the number of functions");
  for (StoredFunction& function : stored.functions) {
    for (const std::string_view name : ReadTexts(reader, "the constants of a function")) {
      const auto known = index.find(name);
      if (known == index.end()) {
        CheckComplete(false, "constant '" + std::string(name) + "' of '" +
                                 std::string(function.symbol) + "'");
      }
      function.constants.push_back(known->second);
    }
  }
  return stored;
}

}  // namespace tvm::runtime::contrib::dnnl_backend
