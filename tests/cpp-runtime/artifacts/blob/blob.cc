// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/artifacts/blob/blob.cc
 * \brief Room for bytes in a library: BlobLibrary::kMostBytes of them.
 */
extern "C" {
extern const char artifacts_blob[];
const char artifacts_blob[1 << 20] = "artifacts::blob begins here";
}
