// SPDX-License-Identifier: Apache-2.0

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
