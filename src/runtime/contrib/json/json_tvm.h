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
 * \file src/runtime/contrib/json/json_tvm.h
 * \brief The parts of TVM that reading a JSON graph needs: checks, and the texts of data types.
 *
 * Releases with Relay have both in TVM's runtime, those after it in tvm-ffi.
 */
#ifndef TVM_RUNTIME_CONTRIB_JSON_JSON_TVM_H_
#define TVM_RUNTIME_CONTRIB_JSON_JSON_TVM_H_

#include <dlpack/dlpack.h>

#include <exception>
#include <string>

#if __has_include(<tvm/ffi/extra/module.h>)
#include <tvm/ffi/dtype.h>
#include <tvm/ffi/error.h>

#define JSON_CHECK(condition) TVM_FFI_ICHECK(condition)
#define JSON_CHECK_EQ(a, b) TVM_FFI_ICHECK_EQ(a, b)
#define JSON_CHECK_LT(a, b) TVM_FFI_ICHECK_LT(a, b)
#define JSON_CHECK_LE(a, b) TVM_FFI_ICHECK_LE(a, b)
#define JSON_CHECK_GE(a, b) TVM_FFI_ICHECK_GE(a, b)
#define JSON_FAIL() TVM_FFI_THROW(InternalError)
#else
#include <tvm/runtime/data_type.h>
#include <tvm/runtime/logging.h>

#define JSON_CHECK(condition) CHECK(condition)
#define JSON_CHECK_EQ(a, b) CHECK_EQ(a, b)
#define JSON_CHECK_LT(a, b) CHECK_LT(a, b)
#define JSON_CHECK_LE(a, b) CHECK_LE(a, b)
#define JSON_CHECK_GE(a, b) CHECK_GE(a, b)
#define JSON_FAIL() LOG(FATAL)
#endif

namespace tvm {
namespace runtime {
namespace json {
namespace detail {

/*! \brief Types with codes from here on are the user's own. */
constexpr int kFirstCustomType = 129;

#if __has_include(<tvm/ffi/extra/module.h>)
using TVMError = ffi::Error;

inline DLDataType TypeFromText(const std::string& text) { return ffi::StringToDLDataType(text); }
inline std::string TextFromType(DLDataType dtype) { return ffi::DLDataTypeToString(dtype); }
#else
using TVMError = InternalError;

inline DLDataType TypeFromText(const std::string& text) { return String2DLDataType(text); }
inline std::string TextFromType(DLDataType dtype) { return DLDataType2String(dtype); }
#endif

/*! \brief The message of an error without the stack trace that TVM appends. */
inline std::string ErrorMessage(const std::exception& error) {
  const auto* of_tvm = dynamic_cast<const TVMError*>(&error);
  return of_tvm ? std::string(of_tvm->message()) : error.what();
}

}  // namespace detail
}  // namespace json
}  // namespace runtime
}  // namespace tvm

#endif  // TVM_RUNTIME_CONTRIB_JSON_JSON_TVM_H_
