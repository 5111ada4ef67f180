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
 * \file src/runtime/contrib/dnnl/core/error.h
 * \brief The errors of the core, and the checks that throw them.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_ERROR_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_ERROR_H_

#include <sstream>
#include <stdexcept>
#include <string>

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief The error that the core throws. The shells around it turn it into one of theirs. */
class Error : public std::runtime_error {
 public:
  Error(const char* file, int line, const std::string& text)
      : std::runtime_error(text), file_(file), line_(line) {}

  const char* file() const { return file_; }
  int line() const { return line_; }

 private:
  const char* file_;
  int line_;
};

/*! \brief A message in the making. */
class ErrorText {
 public:
  template <typename T>
  ErrorText& operator<<(const T& part) {
    text_ << part;
    return *this;
  }
  std::string str() const { return text_.str(); }

 private:
  std::ostringstream text_;
};

/*! \brief Throws the message that follows its `&`, which binds less tightly than `<<`. */
struct ErrorThrower {
  const char* file;
  int line;

  [[noreturn]] void operator&(const ErrorText& text) const { throw Error(file, line, text.str()); }
};

}  // namespace tvm::runtime::contrib::dnnl_backend

/*! \brief CORE_FAIL() << "what is wrong". */
#define CORE_FAIL()                                                         \
  ::tvm::runtime::contrib::dnnl_backend::ErrorThrower{__FILE__, __LINE__} & \
      ::tvm::runtime::contrib::dnnl_backend::ErrorText()

/*! \brief CORE_CHECK(condition) << "what is wrong where it does not hold". */
#define CORE_CHECK(condition) \
  (condition) ? (void)0 : CORE_FAIL() << "Check failed: (" #condition ") is false: "

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_ERROR_H_
