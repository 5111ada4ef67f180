// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/dnnl/core/reduce_test.cc
 * \brief The kernel of reductions against sums in float64.
 */
#include "src/runtime/contrib/dnnl/core/kernels/reduce.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "tests/cpp-runtime/harness/bfloat16.h"
#include "tests/cpp-runtime/harness/test.h"

namespace dnnl_test::reduce {

using namespace tvm::runtime::contrib::dnnl_backend;  // NOLINT(build/namespaces)

constexpr ReduceKind kKinds[] = {ReduceKind::kSum, ReduceKind::kMean,         ReduceKind::kMax,
                                 ReduceKind::kMin, ReduceKind::kSumOfSquares, ReduceKind::kProd};

/*! \brief Numbers that bfloat16 holds; most are near one, so that products stay finite. */
std::vector<float> Values(int64_t count) {
  std::vector<float> values(count);
  uint32_t state = 1;
  for (float& value : values) {
    state = state * 1664525u + 1013904223u;
    value = (1 + static_cast<float>(state >> 26) / 4096) * ((state >> 20) % 3 == 0 ? -1.f : 1.f);
  }
  for (float& value : values) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    bits &= 0xffff0000u;
    std::memcpy(&value, &bits, sizeof(bits));
  }
  return values;
}

void Check(const std::vector<ReduceDim>& dims, ReduceKind kind, bool is_bfloat16, float special) {
  int64_t size = 1, last = 0, results = 1, reduced = 1;
  for (const ReduceDim& dim : dims) {
    size *= dim.size;
    last += (dim.size - 1) * dim.src_stride;
    (dim.is_reduced() ? reduced : results) *= dim.size;
  }
  std::vector<float> src = Values(last + 1);
  if (special != 0) src[last / 2] = special;
  std::vector<uint16_t> narrow(last + 1);
  std::transform(src.begin(), src.end(), narrow.begin(), UpperHalf);
  const bool is_mean = kind == ReduceKind::kMean;
  const bool is_square = kind == ReduceKind::kSumOfSquares;
  const double infinity = std::numeric_limits<double>::infinity();
  const double begin = kind == ReduceKind::kMax    ? -infinity
                       : kind == ReduceKind::kMin  ? infinity
                       : kind == ReduceKind::kProd ? 1
                                                   : 0;
  std::vector<double> expected(results, begin), sizes(results, 0);
  for (int64_t i = 0; i < size; ++i) {
    int64_t rest = i, from = 0, to = 0;
    for (auto dim = dims.rbegin(); dim != dims.rend(); ++dim) {
      from += rest % dim->size * dim->src_stride;
      if (!dim->is_reduced()) to += rest % dim->size * dim->dst_stride;
      rest /= dim->size;
    }
    const double x = src[from];
    double& joined = expected[to];
    sizes[to] += is_square ? x * x : std::abs(x);
    if (kind == ReduceKind::kMax) {
      joined = std::isnan(joined) || joined > x ? joined : x;
    } else if (kind == ReduceKind::kMin) {
      joined = std::isnan(joined) || joined < x ? joined : x;
    } else if (kind == ReduceKind::kProd) {
      joined *= x;
    } else {
      joined += is_square ? x * x : x;
    }
  }
  const ReduceKernel kernel(kind, is_bfloat16, dims);
  std::vector<char> scratch(kernel.scratch_bytes());
  std::vector<float> dst(results + 8, 99);
  kernel.Run(is_bfloat16 ? static_cast<void*>(narrow.data()) : src.data(), dst.data(),
             scratch.data());
  EXPECT_TRUE(std::all_of(dst.begin() + results, dst.end(), [](float x) { return x == 99; }));
  for (int64_t i = 0; i < results; ++i) {
    const bool is_exact = kind == ReduceKind::kMax || kind == ReduceKind::kMin;
    const double value = is_mean ? expected[i] / reduced : expected[i];
    // 64 roundings of float32 in a sum, and one for each factor of a product.
    const double of_sum = 4e-6 * sizes[i] / (is_mean ? reduced : 1);
    const double of_product = 6e-8 * reduced * std::abs(value);
    const double bound = is_exact ? 0 : kind == ReduceKind::kProd ? of_product : of_sum;
    const bool is_near = std::isnan(value) ? std::isnan(dst[i])
                                           : dst[i] == value || std::abs(dst[i] - value) <= bound;
    if (!EXPECT_TRUE(is_near)) return;
  }
}

void CheckAll(const std::vector<ReduceDim>& dims, float special = 0) {
  int64_t reduced = 1;
  for (const ReduceDim& dim : dims) reduced *= dim.is_reduced() ? dim.size : 1;
  for (ReduceKind kind : kKinds) {
    // Longer products are infinite.
    if (kind == ReduceKind::kProd && reduced > 5000) continue;
    for (bool is_bfloat16 : {false, true}) Check(dims, kind, is_bfloat16, special);
  }
}

TEST(DNNLReduce, ContiguousRowsOfAnyLength) {
  for (int64_t rows : {1, 2, 37}) {
    for (int64_t length : {1, 2, 3, 4, 5, 15, 16, 17, 31, 32, 49, 63, 64, 100, 960, 1031, 3000}) {
      CheckAll({{rows, length, 1}, {length, 1, -1}});
    }
  }
}

TEST(DNNLReduce, OuterAndMiddleAxes) {
  for (int64_t columns : {1, 3, 7, 8, 33, 64, 300}) {
    for (int64_t rows : {2, 3, 16, 70, 130}) {
      CheckAll({{rows, columns, -1}, {columns, 1, 1}});
      CheckAll({{5, rows * columns, columns}, {rows, columns, -1}, {columns, 1, 1}});
      CheckAll({{2, 5 * rows * columns, -1},
                {5, rows * columns, columns},
                {rows, columns, -1},
                {columns, 1, 1}});
    }
  }
}

TEST(DNNLReduce, StridedRowsAndPartsOfLongSums) {
  CheckAll({{9, 120, 1}, {40, 3, -1}});
  CheckAll({{9, 3, 1}, {40, 27, -1}});
  CheckAll({{1, 1, 1}, {200000, 1, -1}});
  CheckAll({{3, 100000, 1}, {100000, 1, -1}});
  CheckAll({{30000, 3, -1}, {3, 1, 1}});
}

TEST(DNNLReduce, NaNAndInfinity) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (float special : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
    for (int64_t length : {3, 16, 49, 64, 1031}) {
      for (ReduceKind kind : {ReduceKind::kMax, ReduceKind::kMin}) {
        Check({{5, length, 1}, {length, 1, -1}}, kind, false, special);
        Check({{length, 5, -1}, {5, 1, 1}}, kind, true, special);
      }
    }
  }
}

}  // namespace dnnl_test::reduce
