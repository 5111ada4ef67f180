// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/dnnl/core/pool_test.cc
 * \brief The kernels of max and average pools against plain loops.
 */
#include "src/runtime/contrib/dnnl/core/kernels/pool.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "src/runtime/contrib/dnnl/core/kernels/byte_means.h"
#include "tests/cpp-runtime/harness/test.h"

namespace dnnl_test::pool {

using namespace tvm::runtime::contrib::dnnl_backend;  // NOLINT(build/namespaces)

/*! \brief Small integers, the sums of which are exact in float32. */
template <typename T>
std::vector<T> Values(int64_t count) {
  std::vector<T> values(count);
  uint32_t state = 1;
  for (T& value : values) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<T>(static_cast<int>(state >> 24) - (std::is_same_v<T, uint8_t> ? 0 : 128));
  }
  return values;
}

/*! \brief The results of a pool in double precision: the largest values, or means. */
template <typename T>
std::vector<double> Expected(const PoolShape& shape, const std::vector<T>& src, bool is_max,
                             bool counts_padding) {
  const auto& [depth, height, width] = shape.axes;
  std::vector<double> results;
  for (int64_t i = 0; i < shape.planes * depth.dst * height.dst * width.dst; ++i) {
    const int64_t plane = i / width.dst / height.dst / depth.dst;
    double sum = 0, largest = std::numeric_limits<T>::lowest();
    int64_t count = 0, taps = depth.kernel * height.kernel * width.kernel;
    for (int64_t tap = 0; tap < taps; ++tap) {
      const auto at = [](const WindowAxis& axis, int64_t result, int64_t k) {
        return result % axis.dst * axis.stride - axis.pad + k % axis.kernel * axis.step;
      };
      const int64_t x = at(width, i, tap), y = at(height, i / width.dst, tap / width.kernel);
      const int64_t z = at(depth, i / width.dst / height.dst, tap / width.kernel / height.kernel);
      const auto is_inside = [](const WindowAxis& axis, int64_t position) {
        return position >= 0 && position < axis.src;
      };
      if (!is_inside(width, x) || !is_inside(height, y) || !is_inside(depth, z)) continue;
      const double value = src[((plane * depth.src + z) * height.src + y) * width.src + x];
      sum += value;
      largest = std::max(largest, value);
      ++count;
    }
    results.push_back(is_max ? largest : sum / static_cast<double>(counts_padding ? taps : count));
  }
  return results;
}

template <typename T>
void Check(const PoolShape& shape) {
  const auto& [depth, height, width] = shape.axes;
  const auto src = Values<T>(shape.planes * depth.src * height.src * width.src);
  const int64_t size = shape.planes * depth.dst * height.dst * width.dst;
  std::vector<T> largest(size);
  MaxPool(shape, src.data(), largest.data());
  const auto expected = Expected(shape, src, true, false);
  EXPECT_TRUE(std::equal(largest.begin(), largest.end(), expected.begin()));
  if constexpr (std::is_same_v<T, float>) {
    for (bool counts_padding : {false, true}) {
      std::vector<float> means(size);
      AveragePool(shape, counts_padding, src.data(), means.data());
      const auto quotients = Expected(shape, src, false, counts_padding);
      EXPECT_TRUE(
          std::equal(means.begin(), means.end(), quotients.begin(),
                     [](float value, double exact) { return value == static_cast<float>(exact); }));
    }
  }
}

/*! \brief An axis with as many windows as fit, or one more that ends after the padding. */
WindowAxis Axis(int64_t src, int64_t kernel, int64_t stride, int64_t step, int64_t pad,
                bool is_ceiled = false) {
  WindowAxis axis{src, 1, kernel, stride, step, pad};
  axis.dst = (src + 2 * pad - axis.span()) / stride + 1 + (is_ceiled ? 1 : 0);
  return axis;
}

void CheckAll(const PoolShape& shape) {
  Check<float>(shape);
  Check<uint8_t>(shape);
  Check<int8_t>(shape);
}

TEST(DNNLPool, OfImages) {
  for (int64_t width : {1, 3, 7, 16, 50}) {
    for (int64_t kernel : {1, 2, 3, 7}) {
      for (int64_t stride : {1, 2, 3}) {
        for (int64_t pad : {int64_t{0}, (kernel - 1) / 2, kernel - 1}) {
          if (width + 2 * pad < kernel) continue;
          const WindowAxis row = Axis(width, kernel, stride, 1, pad);
          const bool has_more = (row.dst * stride) < width + pad;
          CheckAll({3, {WindowAxis(), Axis(9, 3, 2, 1, 1), row}});
          if (has_more) {
            CheckAll({2, {WindowAxis(), row, Axis(width, kernel, stride, 1, pad, true)}});
          }
        }
      }
    }
  }
}

TEST(DNNLPool, OfVolumesAndDilatedWindows) {
  CheckAll({2, {Axis(5, 3, 1, 1, 1), Axis(6, 2, 2, 1, 0), Axis(17, 3, 2, 1, 1)}});
  CheckAll({2, {Axis(5, 2, 1, 3, 0), Axis(9, 3, 1, 2, 0), Axis(40, 4, 1, 3, 2)}});
  CheckAll({1, {Axis(4, 4, 1, 1, 0), Axis(5, 5, 1, 1, 0), Axis(13, 13, 1, 1, 0)}});
}

TEST(DNNLPool, OfLongRows) {
  CheckAll({1, {WindowAxis(), WindowAxis(), Axis(5000, 3, 1, 1, 1)}});
  CheckAll({1, {WindowAxis(), WindowAxis(), Axis(5000, 5, 2, 1, 2)}});
  CheckAll({2, {WindowAxis(), WindowAxis(), Axis(kMaxPoolSpan, kMaxPoolSpan, 1, 1, 0)}});
  CheckAll({2, {WindowAxis(), Axis(2, 2, 1, 1, 0), Axis(999, 999, 1, 1, 0)}});
}

/*! \brief Rows of an extreme value, whose sums are the largest; the last element is another. */
template <typename T>
void CheckMeans() {
  for (T value : {std::numeric_limits<T>::min(), std::numeric_limits<T>::max()}) {
    for (int64_t columns : {1, 31, 32, 49, 8191, 8192, 8193, 100000}) {
      std::vector<T> rows(3 * columns, value);
      rows.back() = 1;
      float means[3];
      MeansOfBytes(rows.data(), 3, columns, means);
      const double other = (static_cast<double>(value) * (columns - 1) + 1) / columns;
      EXPECT_EQ(means[0], static_cast<float>(value));
      EXPECT_EQ(means[1], static_cast<float>(value));
      EXPECT_EQ(means[2], static_cast<float>(other));
    }
  }
}

TEST(DNNLPool, MeansOfExtremeBytes) {
  CheckMeans<uint8_t>();
  CheckMeans<int8_t>();
}

}  // namespace dnnl_test::pool
