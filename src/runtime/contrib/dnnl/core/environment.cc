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
 * \file src/runtime/contrib/dnnl/core/environment.cc
 * \brief Numbers and switches that the environment says.
 */
#include "environment.h"

#include <cstdint>
#include <cstdlib>

#include "error.h"

namespace tvm::runtime::contrib::dnnl_backend {

int NumberFromEnvironment(const char* variable, const char* what, int max) {
  const char* text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return 0;
  char* end = nullptr;
  const int64_t value = std::strtol(text, &end, 10);
  CORE_CHECK(*end == '\0' && value > 0 && value <= max)
      << variable << " must be a number of " << what << " from 1 to " << max << ", but is \""
      << text << "\"";
  return static_cast<int>(value);
}

bool IsOnInEnvironment(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return true;
  CORE_CHECK((*text == '0' || *text == '1') && text[1] == '\0')
      << variable << " must be 0 or 1, but is \"" << text << "\"";
  return *text == '1';
}

}  // namespace tvm::runtime::contrib::dnnl_backend
