// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/artifacts/blob_library.h
 * \brief A library that carries bytes beside its code, as one of TVM does.
 */
#ifndef TESTS_CPP_RUNTIME_ARTIFACTS_BLOB_LIBRARY_H_
#define TESTS_CPP_RUNTIME_ARTIFACTS_BLOB_LIBRARY_H_

#include <cstddef>
#include <string>

namespace artifacts {

/*!
 * \brief A copy of a library, made and loaded with other bytes in its blob.
 *
 * The copy is a file, if one in memory: a module gives back the pages that it does not need, and
 * the system reads them again from there.
 */
class BlobLibrary {
 public:
  /*! \brief The room in the library. */
  static constexpr size_t kMostBytes = 1 << 20;

  /*! \param path The library, which blob/blob.cc makes. */
  BlobLibrary(const std::string& path, const std::string& bytes);
  ~BlobLibrary();
  BlobLibrary(const BlobLibrary&) = delete;
  BlobLibrary& operator=(const BlobLibrary&) = delete;

  char* blob() const { return blob_; }

 private:
  int file_;
  void* handle_;
  char* blob_;
};

}  // namespace artifacts

#endif  // TESTS_CPP_RUNTIME_ARTIFACTS_BLOB_LIBRARY_H_
