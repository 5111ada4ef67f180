// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/dnnl/core/norm_test.cc
 * \brief The kernel of layer and RMS normalization: short rows together, long ones alone.
 */
#include "src/runtime/contrib/dnnl/core/kernels/norm.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "tests/cpp-runtime/harness/bfloat16.h"
#include "tests/cpp-runtime/harness/test.h"

namespace dnnl_test::norm {

using namespace tvm::runtime::contrib::dnnl_backend;  // NOLINT(build/namespaces)

constexpr float kEpsilon = 1e-5F;

template <typename T>
std::vector<T> Rounded(const std::vector<float>& values) {
  std::vector<T> result(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    // Truncated: the numbers are drawn, so their last digits do not matter.
    if constexpr (sizeof(T) == 2) {
      result[i] = UpperHalf(values[i]);
    } else {
      result[i] = values[i];
    }
  }
  return result;
}

double Real(float value) { return value; }
double Real(uint16_t value) { return FromBFloat16(value); }

/*! \brief Rows around different means, with factors and shifts. */
struct Case {
  int64_t rows, columns;
  bool is_centered;
  std::vector<float> data, gamma, beta;

  Case(int64_t rows, int64_t columns, bool is_centered = true)
      : rows(rows), columns(columns), is_centered(is_centered) {
    std::mt19937 random(rows * 1000 + columns);
    std::normal_distribution<float> normal;
    for (int64_t row = 0; row < rows; ++row) {
      const float mean = row % 3 == 0 ? 0.F : row % 3 == 1 ? 100.F : -3.F;
      for (int64_t i = 0; i < columns; ++i) data.push_back(mean + normal(random));
    }
    for (int64_t i = 0; i < columns; ++i) {
      gamma.push_back(1 + normal(random) / 4);
      beta.push_back(is_centered ? normal(random) : 0.F);
    }
  }

  template <typename T, typename Result>
  std::vector<Result> Run(const std::vector<T>& from, int64_t count) const {
    std::vector<Result> to(count * columns);
    const NormRows norm{count,      columns, 1, 1, kEpsilon, sizeof(T) == 2, sizeof(Result) == 2,
                        is_centered};
    NormalizeRows(norm, from.data(), gamma.data(), is_centered ? beta.data() : nullptr, to.data());
    return to;
  }

  /*! \brief Whether a result is that of float64, within some units of float32 and rounding. */
  template <typename T, typename Result>
  bool IsRight() const {
    const std::vector<T> from = Rounded<T>(data);
    const std::vector<Result> to = Run<T, Result>(from, rows);
    for (int64_t row = 0; row < rows; ++row) {
      double sum = 0, squares = 0;
      for (int64_t i = 0; i < columns; ++i) sum += Real(from[row * columns + i]);
      const double mean = is_centered ? sum / columns : 0;
      for (int64_t i = 0; i < columns; ++i) {
        squares += std::pow(Real(from[row * columns + i]) - mean, 2);
      }
      const double factor = 1 / std::sqrt(squares / columns + kEpsilon);
      for (int64_t i = 0; i < columns; ++i) {
        const double scaled = (Real(from[row * columns + i]) - mean) * factor * gamma[i];
        const double right = scaled + beta[i];
        // The factor and each of five operations round once or twice: ten units of 2^-24.
        const double rounding = 10 * 0x1p-24 * (std::abs(scaled) + std::abs(right) + 1);
        const double error = std::abs(Real(to[row * columns + i]) - right);
        if (!(error <= rounding + (sizeof(Result) == 2 ? 0x1p-8 * std::abs(right) : 0))) {
          return false;
        }
      }
    }
    return true;
  }
};

TEST(DNNLNorm, AnyNumberOfColumnsAndRows) {
  for (int64_t columns : {1, 7, 16, 32, 40, 64, 96, 160, 512, 768, 1024, 2048}) {
    for (int64_t rows : {1, 5, 16, 35}) {
      for (bool is_centered : {false, true}) {
        const Case drawn(rows, columns, is_centered);
        const bool of_floats = drawn.IsRight<float, float>();
        const bool of_bfloats = drawn.IsRight<uint16_t, uint16_t>();
        const bool to_bfloats = drawn.IsRight<float, uint16_t>();
        EXPECT_TRUE(of_floats && of_bfloats && to_bfloats);
      }
    }
  }
}

// Threads share rows out, and there may be more of them or fewer.
TEST(DNNLNorm, ARowDoesNotDependOnOthers) {
  for (int64_t columns : {32, 160}) {
    const Case drawn(37, columns);
    const auto all = drawn.Run<float, float>(drawn.data, 37);
    for (int64_t first : {1, 15, 36}) {
      const std::vector<float> rest(drawn.data.begin() + first * columns, drawn.data.end());
      const auto some = drawn.Run<float, float>(rest, 37 - first);
      EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin() + first * columns));
    }
  }
}

TEST(DNNLNorm, NaNStaysInItsRow) {
  Case drawn(20, 64);
  drawn.data[3 * 64 + 5] = NAN;
  const auto result = drawn.Run<float, float>(drawn.data, 20);
  for (int64_t i = 0; i < 20 * 64; ++i) EXPECT_EQ(std::isnan(result[i]), i / 64 == 3);
}

TEST(DNNLNorm, EqualElementsAreZero) {
  Case drawn(17, 32);
  std::fill(drawn.data.begin(), drawn.data.end(), 1e6F);
  const auto result = drawn.Run<float, float>(drawn.data, 17);
  for (int64_t i = 0; i < 17 * 32; ++i) EXPECT_EQ(result[i], drawn.beta[i % 32]);
}

}  // namespace dnnl_test::norm
