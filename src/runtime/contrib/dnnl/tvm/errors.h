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
 * \file src/runtime/contrib/dnnl/tvm/errors.h
 * \brief The errors of the core as errors of TVM.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_TVM_ERRORS_H_
#define TVM_RUNTIME_CONTRIB_DNNL_TVM_ERRORS_H_

#include <tvm/runtime/logging.h>

#include <string>

#include "../../json/json_text.h"
#include "../core/error.h"

namespace tvm {
namespace runtime {
namespace contrib {
namespace dnnl_backend {

/*! \brief Call a function of the core; what it throws is what TVM's own checks would throw. */
template <typename Function>
auto WithTVMErrors(const Function& function) -> decltype(function()) {
  try {
    return function();
  } catch (const Error& error) {
    const std::string text = json::Printable(error.what());
    // Python reads the word before the colon as the class of the error.
    const bool is_check = text.rfind("Check failed", 0) == 0;
    throw InternalError(error.file(), error.line(), (is_check ? "InternalError: " : "") + text);
  }
}

}  // namespace dnnl_backend
}  // namespace contrib
}  // namespace runtime
}  // namespace tvm

#endif  // TVM_RUNTIME_CONTRIB_DNNL_TVM_ERRORS_H_
