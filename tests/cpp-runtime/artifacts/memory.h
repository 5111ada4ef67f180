// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/artifacts/memory.h
 * \brief Tensors between pages that nobody may touch, and a count of what is allocated.
 */
#ifndef TESTS_CPP_RUNTIME_ARTIFACTS_MEMORY_H_
#define TESTS_CPP_RUNTIME_ARTIFACTS_MEMORY_H_

#include <cstddef>

namespace artifacts {

/*!
 * \brief Memory whose end is the end of a page. The pages before and after it end the process when
 *        they are touched, and `IsIntact` tells whether the rest of its first page is as it was.
 *
 * oneDNN makes its code at run time, so that no sanitizer looks after what that reads and writes.
 */
class Guarded {
 public:
  /*! \param alignment Of the first byte; after the last one there may be that much less one. */
  Guarded(size_t bytes, size_t alignment);
  ~Guarded();
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  bool IsIntact() const;

 private:
  size_t bytes_;
  size_t mapped_;
  char* pages_;
  char* data_;
};

/*!
 * \brief Counts what the allocator of AddressSanitizer has given away since it was made.
 *
 * Without that sanitizer nothing is counted.
 */
class AllocationCount {
 public:
  AllocationCount();
  /*! \brief The most bytes that were in use at once. */
  size_t peak() const;
};

}  // namespace artifacts

#endif  // TESTS_CPP_RUNTIME_ARTIFACTS_MEMORY_H_
