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
 * \file tests/cpp-runtime/dnnl/core/library_test.cc
 * \brief The versions of oneDNN that the backend runs on.
 */
#include "src/runtime/contrib/dnnl/core/library.h"

#include "src/runtime/contrib/dnnl/core/onednn.h"
#include "tests/cpp-runtime/harness/test.h"

namespace dnnl_test::library {

using tvm::runtime::contrib::dnnl_backend::CheckVersion;

TEST(DNNLLibrary, AcceptsNewerOnesOfTheSameMajorVersion) {
  CheckVersion(DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR);
  CheckVersion(DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR + 11);
  EXPECT_THROWS(CheckVersion(DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR - 1), "was loaded",
                "an older one lacks functions");
  EXPECT_THROWS(CheckVersion(DNNL_VERSION_MAJOR - 1, 99), "an older one lacks functions");
  EXPECT_THROWS(CheckVersion(DNNL_VERSION_MAJOR + 1, 0), "another interface");
}

}  // namespace dnnl_test::library
