// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/dnnl/core/log_softmax_test.cc
 * \brief The kernel of log_softmax on rows with NaN, whose bits are any integer.
 */
#include "src/runtime/contrib/dnnl/core/kernels/log_softmax.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/cpp-runtime/harness/test.h"

namespace dnnl_test::log_softmax {

using namespace tvm::runtime::contrib::dnnl_backend;  // NOLINT(build/namespaces)

TEST(DNNLLogSoftmax, AnyNaN) {
  // The largest and the smallest payload of each sign.
  for (uint32_t bits : {0x7fffffffu, 0x7f800001u, 0xffffffffu, 0xff800001u}) {
    float nan;
    std::memcpy(&nan, &bits, sizeof(nan));
    for (int64_t columns : {1, 3, 16, 77, 200}) {
      std::vector<float> values(2 * columns, 1.f);
      values[columns - 1] = nan;
      LogSoftmaxOfRows(values.data(), values.data(), 2, columns);
      for (int64_t i = 0; i < columns; ++i) {
        EXPECT_TRUE(std::isnan(values[i]));
        EXPECT_TRUE(std::abs(values[columns + i] + std::log(static_cast<float>(columns))) < 1e-5f);
      }
    }
  }
}

}  // namespace dnnl_test::log_softmax
