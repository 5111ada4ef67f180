// SPDX-License-Identifier: Apache-2.0
/*!
 * \file tests/cpp-runtime/dnnl/core/int8_matrices_test.cc
 * \brief The kernel of 8-bit matmuls against integers.
 */
#include "src/runtime/contrib/dnnl/core/kernels/int8_matrices.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/cpp-runtime/harness/test.h"

namespace dnnl_test::int8_matrices {

using namespace tvm::runtime::contrib::dnnl_backend;  // NOLINT(build/namespaces)

struct Case {
  int64_t rows, inner, columns, matrices{1};
  bool is_transposed{false}, is_src_signed{false}, is_signed{true}, is_rounded{false};
};

/*! \brief Bytes that differ from place to place, with the smallest and the largest. */
std::vector<uint8_t> Bytes(int64_t count, uint32_t state) {
  std::vector<uint8_t> bytes(count);
  for (uint8_t& byte : bytes) {
    state = state * 1664525u + 1013904223u;
    byte = (state >> 16) % 8 == 0 ? (state >> 20) % 2 * 127 + 1 : state >> 24;
  }
  return bytes;
}

int Element(uint8_t byte, bool is_signed) { return is_signed ? static_cast<int8_t>(byte) : byte; }

void Check(const Case& c) {
  const Int8Matrix matrix = {c.inner, c.columns, c.is_transposed ? 1 : c.columns,
                             c.is_transposed ? c.inner : 1, c.is_signed};
  const auto src = Bytes(c.rows * c.inner, 1), weights = Bytes(c.matrices * c.inner * c.columns, 2);
  std::vector<int8_t> packed(c.matrices * matrix.packed_bytes(), 99);
  PackInt8Matrices(matrix, c.matrices, weights.data(), packed.data());
  const int64_t padded = matrix.panels() * Int8Matrix::kPanel;
  std::vector<float> scales(padded), bias(padded);
  for (int64_t n = 0; n < c.columns; ++n) {
    scales[n] = c.is_rounded ? 0x1p-8f * (1 + n % 3) : 1;
    bias[n] = c.is_rounded ? 0.25f * n : 0;
  }
  const int src_zero = c.is_src_signed ? -128 : 255, zero = c.is_signed ? 127 : 7;
  Int8Finish finish = {scales.data(),
                       bias.data(),
                       1,
                       zero,
                       c.is_rounded ? -100.f : -1e30f,
                       c.is_rounded ? 155.f : 1e30f,
                       100,
                       c.is_rounded};
  std::vector<int16_t> workspace(Int8Workspace(matrix, c.rows), -1);
  const int64_t bytes = c.is_rounded ? 1 : 4, size = c.rows * c.columns;
  std::vector<uint8_t> dst(size * bytes + 64, 0x5a);
  MultiplyInt8({src.data(), c.is_src_signed, c.rows, src_zero}, matrix, c.matrices, packed.data(),
               finish, workspace.data(), dst.data());
  EXPECT_TRUE(std::all_of(dst.begin() + size * bytes, dst.end(),
                          [](uint8_t byte) { return byte == 0x5a; }));
  const int64_t rows = c.rows / c.matrices;
  for (int64_t i = 0; i < size; ++i) {
    const int64_t m = i / c.columns, n = i % c.columns;
    int64_t sum = 0;
    for (int64_t k = 0; k < c.inner; ++k) {
      const int64_t at = c.is_transposed ? n * c.inner + k : k * c.columns + n;
      sum += (Element(src[m * c.inner + k], c.is_src_signed) - src_zero) *
             (Element(weights[m / rows * c.inner * c.columns + at], c.is_signed) - zero);
    }
    float actual = dst[i], expected = sum;
    if (c.is_rounded) {
      // Multiplication and addition are one operation.
      const double value = static_cast<double>(expected) * scales[n] + bias[n];
      expected = std::nearbyint(std::clamp<double>(value, -100, 155)) + 100;
    } else {
      std::copy_n(dst.data() + 4 * i, 4, reinterpret_cast<uint8_t*>(&actual));
    }
    if (!EXPECT_EQ(actual, expected)) return;
  }
}

TEST(DNNLInt8Matrices, AreMultipliedExactly) {
  if (!HasInt8Matrices()) return;
  for (int64_t rows : {1, 2, 3, 4, 11, 13}) {
    for (int64_t inner : {1, 2, 7, 64}) {
      for (int64_t columns : {1, 15, 16, 37}) {
        for (int bits = 0; bits < 16; ++bits) {
          Case c{rows, inner, columns};
          c.is_transposed = (bits & 1) != 0;
          c.is_src_signed = (bits & 2) != 0;
          c.is_signed = (bits & 4) != 0;
          c.is_rounded = (bits & 8) != 0;
          Check(c);
          c.matrices = 3;
          c.rows *= 3;
          Check(c);
        }
      }
    }
  }
}

TEST(DNNLInt8Matrices, OfManyRowsAndLongSums) {
  if (!HasInt8Matrices()) return;
  for (bool is_rounded : {false, true}) {
    Check({300, 770, 200, 1, true, false, true, is_rounded});
    Check({2, 20001, 40, 1, false, true, true, is_rounded});
    Check({12, 5000, 33, 2, true, true, false, is_rounded});
  }
}

}  // namespace dnnl_test::int8_matrices
