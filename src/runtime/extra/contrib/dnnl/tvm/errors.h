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
 * \file src/runtime/extra/contrib/dnnl/tvm/errors.h
 * \brief The errors of the core as errors of tvm-ffi.
 */
#ifndef TVM_RUNTIME_EXTRA_CONTRIB_DNNL_TVM_ERRORS_H_
#define TVM_RUNTIME_EXTRA_CONTRIB_DNNL_TVM_ERRORS_H_

#include <tvm/ffi/error.h>

#include <string>

#include "../../../../contrib/dnnl/core/error.h"
#include "../../../../contrib/json/json_text.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief Call a function of the core; what it throws is what tvm-ffi's own checks would throw. */
template <typename Function>
auto WithFFIErrors(const Function& function) -> decltype(function()) {
  try {
    return function();
  } catch (const Error& error) {
    const TVMFFIByteArray* trace = TVMFFIBacktrace(error.file(), error.line(), "", 0);
    throw ffi::Error("InternalError", json::Printable(error.what()),
                     std::string(trace->data, trace->size));
  }
}

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_EXTRA_CONTRIB_DNNL_TVM_ERRORS_H_
