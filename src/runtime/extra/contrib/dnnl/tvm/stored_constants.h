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
 * \file src/runtime/extra/contrib/dnnl/tvm/stored_constants.h
 * \brief What the bytes of a const loader hold, with all sizes checked.
 */
#ifndef TVM_RUNTIME_EXTRA_CONTRIB_DNNL_TVM_STORED_CONSTANTS_H_
#define TVM_RUNTIME_EXTRA_CONTRIB_DNNL_TVM_STORED_CONSTANTS_H_

#include <dlpack/dlpack.h>

#include <cstdint>
#include <string_view>
#include <vector>

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief An array, where it is stored. Its elements may begin at any byte. */
struct StoredArray {
  std::string_view name;
  DLDataType dtype{};
  std::vector<int64_t> shape{};
  std::string_view values{};
  /*! \brief Whether the header is that of a tensor on the CPU with as many values as it says. */
  bool is_readable{false};
};

/*! \brief A function, and the names of its constants in order. */
struct StoredFunction {
  std::string_view symbol;
  std::vector<std::string_view> constants{};
};

/*! \brief Views of the bytes of a const loader. */
struct StoredConstants {
  std::vector<StoredArray> arrays;
  std::vector<StoredFunction> functions;
};

/*!
 * \brief Find the constants, without a copy.
 * \throws Error that says which part is cut off or damaged: where a number says more than there is.
 */
StoredConstants ReadConstants(std::string_view bytes);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_EXTRA_CONTRIB_DNNL_TVM_STORED_CONSTANTS_H_
