// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/dnnl/core/prelu_test.cc
 * \brief The rectifier of special values and slopes, in each type, in place, too.
 */
#include "src/runtime/contrib/dnnl/core/kernels/prelu.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "tests/cpp-runtime/harness/bfloat16.h"
#include "tests/cpp-runtime/harness/test.h"

namespace dnnl_test::prelu {

using namespace tvm::runtime::contrib::dnnl_backend;  // NOLINT(build/namespaces)

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
// All are numbers in bfloat16, and so are their products.
const std::vector<float> kValues = {1.f, -1.f, 0.f, -2.f, 3.f, kInfinity, -kInfinity, kNaN, -0.5f};
const std::vector<float> kSlopes = {0.25f, kInfinity, kNaN, -1.f, 0.f, 2.f, -kInfinity};

void ExpectSame(float got, float want) {
  EXPECT_EQ(std::isnan(got), std::isnan(want));
  if (!std::isnan(want)) EXPECT_EQ(got, want);
}

TEST(DNNLPReLU, SpecialValuesAndSlopes) {
  for (int64_t period : {1, 3, 8, 16, 70}) {
    for (int64_t count : {1, 7, 8, 45, 300}) {
      std::vector<float> src, slopes, dst(count), want;
      std::vector<uint16_t> halves;
      for (int64_t i = 0; i < period; ++i) slopes.push_back(kSlopes[i % kSlopes.size()]);
      for (int64_t i = 0; i < count; ++i) {
        const float x = kValues[i % kValues.size()];
        src.push_back(x);
        halves.push_back(UpperHalf(x));
        want.push_back(x > 0 ? x : slopes[i % period] * x);
      }
      PReLU(src.data(), slopes.data(), period, dst.data(), count);
      PReLU(src.data(), slopes.data(), period, src.data(), count);
      PReLU(halves.data(), slopes.data(), period, halves.data(), count);
      for (int64_t i = 0; i < count; ++i) {
        ExpectSame(dst[i], want[i]);
        ExpectSame(src[i], want[i]);
        ExpectSame(FromBFloat16(halves[i]), want[i]);
      }
    }
  }
}

}  // namespace dnnl_test::prelu
