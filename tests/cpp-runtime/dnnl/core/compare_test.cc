// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/dnnl/core/compare_test.cc
 * \brief The comparisons of special values, in each type and with each kind of stride.
 */
#include "src/runtime/contrib/dnnl/core/kernels/compare.h"

#include <cstdint>
#include <limits>
#include <vector>

#include "tests/cpp-runtime/harness/test.h"

namespace dnnl_test::compare {

using namespace tvm::runtime::contrib::dnnl_backend;  // NOLINT(build/namespaces)

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
const std::vector<float> kValues = {0.f, -0.f, 1.f, -1.f, 2.f, -2.f, kInfinity, -kInfinity, kNaN};
const std::vector<uint16_t> kBfloat16 = {0,      0x8000, 0x3f80, 0xbf80, 0x4000,
                                         0xc000, 0x7f80, 0xff80, 0xffc0};
const std::vector<uint16_t> kFloat16 = {0,      0x8000, 0x3c00, 0xbc00, 0x4000,
                                        0xc000, 0x7c00, 0xfc00, 0x7c01};

bool Expected(Comparison comparison, float x, float y) {
  switch (comparison) {
    case Comparison::kEqual:
      return x == y;
    case Comparison::kNotEqual:
      return x != y;
    case Comparison::kLess:
      return x < y;
    default:
      return x <= y;
  }
}

/*! \brief Compare each value with each other one; `compare` has the parameters of `Compare`. */
template <typename T, typename Run>
void CompareAll(const std::vector<T>& values, const Run& compare) {
  const auto count = static_cast<int64_t>(kValues.size());
  for (auto comparison :
       {Comparison::kEqual, Comparison::kNotEqual, Comparison::kLess, Comparison::kLessEqual}) {
    for (int64_t k = 0; k < count; ++k) {
      std::vector<T> same(count, values[k]), apart;
      for (T value : values) apart.insert(apart.end(), 2, value);
      std::vector<uint8_t> rows[4];
      for (auto& row : rows) row.assign(count, 2);
      compare(comparison, values.data(), 1, &values[k], 0, rows[0].data(), count);
      compare(comparison, values.data(), 1, same.data(), 1, rows[1].data(), count);
      compare(comparison, apart.data(), 2, same.data(), 1, rows[2].data(), count);
      compare(comparison, &values[k], 0, values.data(), 1, rows[3].data(), count);
      for (int64_t i = 0; i < count; ++i) {
        for (int row : {0, 1, 2}) {
          EXPECT_EQ(rows[row][i], Expected(comparison, kValues[i], kValues[k]));
        }
        EXPECT_EQ(rows[3][i], Expected(comparison, kValues[k], kValues[i]));
      }
    }
  }
}

TEST(DNNLCompare, SpecialValues) {
  const auto compare = [](Comparison comparison, auto... row) { Compare(comparison, row...); };
  CompareAll(kValues, compare);
  for (uint16_t infinity : {0x7f80, 0x7c00}) {
    const auto compare16 = [=](Comparison comparison, auto... row) {
      Compare(comparison, infinity, row...);
    };
    CompareAll(infinity == 0x7f80 ? kBfloat16 : kFloat16, compare16);
  }
}

}  // namespace dnnl_test::compare
