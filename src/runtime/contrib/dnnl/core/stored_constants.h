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
 * \file src/runtime/contrib/dnnl/core/stored_constants.h
 * \brief Reads the binary form of a const loader, which is the same in both TVMs.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_STORED_CONSTANTS_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_STORED_CONSTANTS_H_

#include <dlpack/dlpack.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bytes.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief An array, where it is stored. Its elements may begin at any byte. */
struct StoredArray {
  std::string_view name;
  DLDataType dtype{};
  std::vector<int64_t> shape{};
  std::string_view values{};
  /*! \brief Whether this is a tensor of scalars on the CPU with as many values as it says. */
  bool is_readable{false};
};

/*! \brief A function, and its constants in order. */
struct StoredFunction {
  std::string_view symbol;
  /*! \brief Indices of StoredConstants::arrays. */
  std::vector<size_t> constants{};
};

/*! \brief Views of what was read. */
struct StoredConstants {
  std::vector<StoredArray> arrays;
  std::vector<StoredFunction> functions;
};

/*! \brief Fails with an error that says which part of a library's constants cannot be read. */
void CheckComplete(bool good, const std::string& what);

/*! \brief Read an array, if memory for its type and shape is there. */
bool ReadArray(ByteReader* reader, StoredArray* array);

/*!
 * \brief Read the constants, without a copy if the reader makes none.
 * \throws Error that says which part is cut off or damaged. No size is trusted: memory is allocated
 *         for what is there only.
 */
StoredConstants ReadConstants(ByteReader* reader);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_STORED_CONSTANTS_H_
