// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/dnnl/core/attr_copy_test.cc
 * \brief Copies of attributes while memory ends.
 */
#include <cstdlib>
#include <map>
#include <new>
#include <string>

#include "src/runtime/contrib/json/json_attr.h"
#include "tests/cpp-runtime/harness/test.h"

namespace dnnl_test::attr_copy {

/*! \brief How many allocations of this thread succeed before one fails; -1 for all. */
thread_local int allocations_left = -1;

void* Allocate(std::size_t bytes) {
  if (allocations_left >= 0 && allocations_left-- == 0) throw std::bad_alloc();
  void* data = std::malloc(bytes == 0 ? 1 : bytes);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}

}  // namespace dnnl_test::attr_copy

// Every form that the library calls: a sanitizer's own does not go with the delete below.
void* operator new(std::size_t bytes) { return dnnl_test::attr_copy::Allocate(bytes); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return dnnl_test::attr_copy::Allocate(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* data) noexcept { std::free(data); }
void operator delete(void* data, std::size_t) noexcept { std::free(data); }

namespace dnnl_test::attr_copy {

using tvm::runtime::json::JSONAttr;

TEST(DNNLAttr, CopyWhileMemoryEnds) {
  const std::string text(40, 'x');
  std::map<std::string, JSONAttr> attrs;
  for (int i = 0; i < 6; ++i) {
    attrs["text" + std::to_string(i)] = JSONAttr(JSONAttr::Row{text, text});
    attrs["shape" + std::to_string(i)] = JSONAttr(JSONAttr::Shapes{{1, 2}, {3}});
  }
  int failed = 0;
  for (int count = 0; count < 200; ++count) {
    bool is_whole = true;
    try {
      allocations_left = count;
      const std::map<std::string, JSONAttr> copy = attrs;
      allocations_left = -1;
      EXPECT_TRUE(copy == attrs);
    } catch (const std::bad_alloc&) {
      is_whole = false;
    }
    allocations_left = -1;
    failed += is_whole ? 0 : 1;
  }
  EXPECT_TRUE(failed > 10 && failed < 200);
}

}  // namespace dnnl_test::attr_copy
