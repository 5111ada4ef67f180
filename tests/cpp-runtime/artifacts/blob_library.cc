// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/artifacts/blob_library.cc
 * \brief A library that carries bytes beside its code, as one of TVM does.
 */
#include "blob_library.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <stdexcept>

namespace artifacts {

namespace {

/*! \brief What the blob holds in the file; see blob/blob.cc. */
const std::string& Mark() {
  static const std::string mark = std::string("artifacts::") + "blob begins here";
  return mark;
}

const std::string& FileOf(const std::string& path) {
  static const std::string bytes = [&path]() {
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }();
  return bytes;
}

void Check(bool good, const std::string& what) {
  if (!good) throw std::logic_error("BlobLibrary: " + what);
}

}  // namespace

BlobLibrary::BlobLibrary(const std::string& path, const std::string& bytes) {
  std::string copy = FileOf(path);
  const size_t at = copy.find(Mark());
  Check(at != std::string::npos, path + " has no blob");
  Check(bytes.size() <= kMostBytes, "the blob is too small");
  copy.replace(at, bytes.size(), bytes);
  file_ = memfd_create("blob", 0);
  Check(file_ >= 0, "no file");
  Check(write(file_, copy.data(), copy.size()) == static_cast<ssize_t>(copy.size()), "no memory");
  handle_ = dlopen(("/proc/self/fd/" + std::to_string(file_)).c_str(), RTLD_NOW | RTLD_LOCAL);
  Check(handle_ != nullptr, "it cannot be loaded");
  blob_ = static_cast<char*>(dlsym(handle_, "artifacts_blob"));
  Check(blob_ != nullptr, "no symbol");
}

BlobLibrary::~BlobLibrary() {
  dlclose(handle_);
  close(file_);
}

}  // namespace artifacts
