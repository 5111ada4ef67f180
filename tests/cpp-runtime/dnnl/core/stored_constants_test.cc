// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/dnnl/core/stored_constants_test.cc
 * \brief The binary form of a const loader, read in place.
 */
#include "src/runtime/contrib/dnnl/core/stored_constants.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/runtime/contrib/dnnl/core/bytes.h"
#include "tests/cpp-runtime/harness/test.h"

namespace dnnl_test::stored_constants {

using namespace tvm::runtime::contrib::dnnl_backend;  // NOLINT(build/namespaces)

template <typename T>
void Append(T number, std::string* bytes) {
  bytes->append(reinterpret_cast<const char*>(&number), sizeof(number));
}

/*! \brief A tensor of float32 as TVM writes it, which claims to have `size` bytes. */
std::string Array(const std::vector<int64_t>& shape, int64_t size, uint16_t lanes = 1) {
  std::string bytes;
  Append(uint64_t{0xDD5E40F096B4A13F}, &bytes);
  Append(uint64_t{0}, &bytes);
  Append(int32_t{kDLCPU}, &bytes);
  Append(int32_t{0}, &bytes);
  Append(static_cast<int32_t>(shape.size()), &bytes);
  Append(uint8_t{kDLFloat}, &bytes);
  Append(uint8_t{32}, &bytes);
  Append(lanes, &bytes);
  for (int64_t dim : shape) Append(dim, &bytes);
  Append(size, &bytes);
  return bytes + std::string(static_cast<size_t>(size), 'v');
}

/*! \brief The constants a and b, of which f needs some. */
std::string Binary(const std::vector<std::string>& names, const std::string& array,
                   const std::vector<std::string>& needed = {"b", "a"}) {
  BytesWriter first, symbols, last;
  first.Write(names);
  symbols.Write(std::vector<std::string>{"f"});
  last.Write(needed);
  std::string bytes = first.bytes();
  Append(uint64_t{2}, &bytes);
  bytes += array + array + symbols.bytes();
  Append(uint64_t{1}, &bytes);
  return bytes + last.bytes();
}

StoredConstants Read(std::string_view bytes) {
  BytesReader reader(bytes);
  return ReadConstants(&reader);
}

TEST(StoredConstants, AreReadInPlace) {
  const std::string bytes = Binary({"a", "b"}, Array({2}, 8)) + "more";
  BytesReader reader(bytes);
  const StoredConstants stored = ReadConstants(&reader);
  EXPECT_EQ(std::string(reader.left()), "more");
  ASSERT_EQ(stored.arrays.size(), 2U);
  for (const StoredArray& array : stored.arrays) {
    EXPECT_TRUE(array.is_readable && array.shape == std::vector<int64_t>{2});
    EXPECT_EQ(array.values.size(), 8U);
    EXPECT_TRUE(array.values.data() > bytes.data() &&
                array.values.data() < bytes.data() + bytes.size());
  }
  ASSERT_EQ(stored.functions.size(), 1U);
  EXPECT_TRUE(stored.functions[0].constants == (std::vector<size_t>{1, 0}));
}

TEST(StoredConstants, AreRefusedWhereverTheyAreCutOff) {
  const std::string bytes = Binary({"a", "b"}, Array({2}, 8));
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THROWS(Read(std::string_view(bytes).substr(0, size)), "cut off or damaged");
  }
}

TEST(StoredConstants, AreRefusedByName) {
  const std::string array = Array({2}, 8);
  EXPECT_THROWS(Read(Binary({"a", "a"}, array)), "a name that is there twice");
  EXPECT_THROWS(Read(Binary({"a", "b"}, array, {"x"})), "constant 'x' of 'f'");
  EXPECT_THROWS(Read(Binary({"a"}, array)), "the number of arrays");
}

TEST(StoredConstants, MustHaveTheElementsOfTheirShape) {
  EXPECT_THROWS(Read(Binary({"a", "b"}, Array({3}, 8))), "an array");
  EXPECT_THROWS(Read(Binary({"a", "b"}, Array({INT64_MAX, 4}, 8))), "an array");
  EXPECT_THROWS(Read(Binary({"a", "b"}, Array({-1}, 8))), "an array");
  const auto is_readable = [](const std::string& array) {
    return Read(Binary({"a", "b"}, array)).arrays[0].is_readable;
  };
  EXPECT_TRUE(is_readable(Array({0}, 0)));
  // Those are for TVM to judge.
  EXPECT_TRUE(!is_readable(Array({1}, 8)));
  EXPECT_TRUE(!is_readable(Array({1}, 8, 2)));
  EXPECT_TRUE(!is_readable(Array(std::vector<int64_t>(33, 1), 4)));
}

}  // namespace dnnl_test::stored_constants
