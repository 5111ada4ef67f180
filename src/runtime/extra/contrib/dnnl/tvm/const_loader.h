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
 * \file src/runtime/extra/contrib/dnnl/tvm/const_loader.h
 * \brief A const loader for libraries: their constants are in memory once.
 */
#ifndef TVM_RUNTIME_EXTRA_CONTRIB_DNNL_TVM_CONST_LOADER_H_
#define TVM_RUNTIME_EXTRA_CONTRIB_DNNL_TVM_CONST_LOADER_H_

#include <tvm/ffi/extra/module.h>

#include <memory>
#include <string_view>

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief Bytes of a library, which stays loaded for as long as this object lives. */
struct LibraryBytes {
  std::shared_ptr<void> library;
  std::string_view bytes;
};

/*!
 * \brief A module that hands the constants in a library to the modules that it imports.
 * \throws ffi::Error that says which part is cut off or damaged.
 */
ffi::Module ConstLoaderOf(LibraryBytes stored);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_EXTRA_CONTRIB_DNNL_TVM_CONST_LOADER_H_
