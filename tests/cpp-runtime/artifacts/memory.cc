// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/artifacts/memory.cc
 * \brief Tensors between pages that nobody may touch, and a count of what is allocated.
 */
#include "memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <new>

#ifdef __SANITIZE_ADDRESS__
// gcc has the library's functions, but not its header sanitizer/allocator_interface.h.
extern "C" {
int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void*, size_t),
                                              void (*on_free)(const volatile void*));
size_t __sanitizer_get_allocated_size(const volatile void* address);
}
#endif

namespace artifacts {

namespace {

constexpr char kUntouched = '\xa5';

size_t PageSize() {
  static const auto size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

std::atomic<int64_t> in_use{0};
std::atomic<int64_t> most_in_use{0};

#ifdef __SANITIZE_ADDRESS__
void OnMalloc(const volatile void*, size_t size) {
  const int64_t now = in_use += static_cast<int64_t>(size);
  int64_t most = most_in_use;
  while (now > most && !most_in_use.compare_exchange_weak(most, now)) continue;
}

void OnFree(const volatile void* address) {
  if (address != nullptr) in_use -= static_cast<int64_t>(__sanitizer_get_allocated_size(address));
}

[[maybe_unused]] const int installed = __sanitizer_install_malloc_and_free_hooks(OnMalloc, OnFree);
#endif

}  // namespace

Guarded::Guarded(size_t bytes, size_t alignment) : bytes_(bytes) {
  const size_t page = PageSize();
  const size_t inner = (bytes + alignment + page - 1) / page * page;
  mapped_ = inner + 2 * page;
  void* pages = mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) throw std::bad_alloc();
  pages_ = static_cast<char*>(pages);
  mprotect(pages_ + page, inner, PROT_READ | PROT_WRITE);
  data_ = pages_ + page + (inner - bytes) / alignment * alignment;
  std::memset(pages_ + page, kUntouched, inner);
}

Guarded::~Guarded() { munmap(pages_, mapped_); }

bool Guarded::IsIntact() const {
  const auto is_untouched = [](char c) { return c == kUntouched; };
  return std::all_of(pages_ + PageSize(), data_, is_untouched) &&
         std::all_of(data_ + bytes_, pages_ + mapped_ - PageSize(), is_untouched);
}

AllocationCount::AllocationCount() {
  in_use = 0;
  most_in_use = 0;
}

size_t AllocationCount::peak() const { return static_cast<size_t>(most_in_use.load()); }

}  // namespace artifacts
