// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/dnnl/core/attention_mask_test.cc
 * \brief Masks of attention, and keys that they hide.
 */
#include <algorithm>
#include <limits>
#include <vector>

#include "tests/cpp-runtime/dnnl/core/attention_case.h"

namespace dnnl_test::attention_mask {

using namespace tvm::runtime::contrib::dnnl_backend;  // NOLINT(build/namespaces)

TEST(DNNLAttention, Masks) {
  const std::vector<Shape> masks = {{2, 4, 3, 70}, {2, 1, 1, 70}, {1, 4, 3, 1}, {1, 1, 3, 70},
                                    {3, 70},       {70},          {1},          {4, 1, 70}};
  for (const Shape& mask : masks) {
    Check({2, 4, 2, 3, 70, 16, 16, mask});
    Check({2, 4, 2, 3, 70, 16, 16, mask, true});
    Check({2, 4, 2, 3, 70, 16, 16, mask, true, "nn.softmax", false, {4, 3, 70}});
  }
}

TEST(DNNLAttention, RowsWithoutAFiniteScore) {
  for (const char* softmax : {"nn.softmax", "dnnl.masked_softmax", "dnnl.nan_safe_softmax"}) {
    for (int64_t queries : {3, 20}) {
      const Case c{1, 2, 1, queries, 150, 16, 16, {1, 1, queries, 150}, false, softmax};
      std::vector<Values> inputs = InputsOf(c);
      Values& mask = inputs[3];
      std::fill(mask.begin(), mask.begin() + 150, -kInf);
      // A block of -inf alone first, then a finite score.
      std::fill(mask.begin() + 150, mask.begin() + 299, -kInf);
      mask[2 * 150 + 70] = kNaN;
      Check(c, inputs);
      mask[2 * 150 + 70] = kInf;
      Check(c, inputs);
      inputs[2][5] = kNaN;
      Check(c, inputs);
    }
  }
}

/*! \brief A mask that hides later keys with a number, and the first `padding` keys. */
Values CausalMask(int64_t rows, int64_t keys, float hidden, int64_t padding = 0) {
  Values mask(rows * keys);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < keys; ++j) {
      if (j < padding || j > i + keys - rows) mask[i * keys + j] = hidden;
    }
  }
  return mask;
}

TEST(DNNLAttention, BlocksOfHiddenKeys) {
  for (float hidden : {std::numeric_limits<float>::lowest(), -kInf, -2e30f, -1e4f}) {
    for (int64_t past : {0, 70}) {
      const int64_t rows = 150, keys = rows + past;
      const Case c{1, 4, 2, rows, keys, 24, 16, {1, 1, rows, keys}};
      std::vector<Values> inputs = InputsOf(c);
      inputs[3] = CausalMask(rows, keys, hidden);
      Check(c, inputs);
      // The first rows of these see no key; scores of -1e4 have few digits in float32.
      if (hidden == -1e4f) continue;
      inputs[3] = CausalMask(rows, keys, hidden, past + 80);
      Check(c, inputs);
    }
  }
}

TEST(DNNLAttention, HiddenKeysThatAreNotFinite) {
  const int64_t rows = 140;
  const Case c{1, 2, 1, rows, rows, 16, 20, {1, 1, rows, rows}};
  for (float value : {kNaN, kInf, 1e30f}) {
    for (size_t input : {0, 1, 2}) {
      std::vector<Values> inputs = InputsOf(c);
      inputs[3] = CausalMask(rows, rows, std::numeric_limits<float>::lowest());
      // Of the last row, which the first rows do not see.
      inputs[input][inputs[input].size() - 3] = value;
      Check(c, inputs);
    }
  }
}

}  // namespace dnnl_test::attention_mask
