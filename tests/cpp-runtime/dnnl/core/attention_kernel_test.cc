// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/dnnl/core/attention_kernel_test.cc
 * \brief The kernel of attention on strided views and pages, which ops pass to it.
 */
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "src/runtime/contrib/dnnl/core/kernels/attention.h"
#include "tests/cpp-runtime/dnnl/core/attention_case.h"

namespace dnnl_test::attention_kernel {

using namespace tvm::runtime::contrib::dnnl_backend;  // NOLINT(build/namespaces)

void Set(float value, float* element) { *element = value; }
void Set(float value, uint16_t* element) {
  std::memcpy(element, reinterpret_cast<const char*>(&value) + 2, sizeof(*element));
}
float ValueOf(float element) { return element; }
float ValueOf(uint16_t element) {
  float value = 0;
  std::memcpy(reinterpret_cast<char*>(&value) + 2, &element, sizeof(element));
  return value;
}

/*! \brief The elements of an operand in a tensor of other strides, NaN between them. */
template <typename T>
std::vector<T> Strided(const Values& values, const Shape& shape, const Shape& strides) {
  int64_t size = 1;
  for (int i = 0; i < 4; ++i) size += (shape[i] - 1) * strides[i];
  std::vector<T> result(size);
  for (T& element : result) Set(kNaN, &element);
  for (size_t i = 0; i < values.size(); ++i) {
    int64_t at = 0, rest = static_cast<int64_t>(i);
    for (int axis = 3; axis >= 0; --axis) {
      at += rest % shape[axis] * strides[axis];
      rest /= shape[axis];
    }
    Set(values[i], &result[at]);
  }
  return result;
}

/*! \brief Inputs whose scores are as large as those of models: of wide heads, they grow. */
std::vector<Values> ScaledInputsOf(const Case& c) {
  std::vector<Values> inputs = InputsOf(c);
  if (c.width > 80) {
    for (float& value : inputs[0]) value /= 2;
  }
  return inputs;
}

AttentionShape ShapeOf(const Case& c) {
  AttentionShape shape{};
  shape.batch = c.batch;
  shape.heads = c.heads;
  shape.kv_heads = c.groups;
  shape.queries = c.queries;
  shape.keys = c.keys;
  shape.width = c.width;
  shape.value_width = c.value_width;
  const int64_t row = c.heads * c.value_width;
  shape.result = {c.queries * row, c.value_width, row};
  shape.scale = kScale;
  shape.is_causal = c.causal;
  shape.allows_bfloat16 = c.is_bfloat16 || c.fpmath == std::string("bfloat16");
  return shape;
}

/*! \brief Set the strides of an operand: those of heads side by side, `gap` elements between rows.
 */
Shape SetStrides(const Shape& dims, int64_t gap, std::array<int64_t, 3>* strides) {
  const int64_t row = dims[1] * dims[3] + gap;
  *strides = {dims[2] * row, dims[3], row};
  return {dims[2] * row, dims[3], row, 1};
}

/*! \brief Run and compare; `data` has everything but the result and the workspace. */
template <typename T>
void Compare(const Case& c, const AttentionShape& shape, AttentionData<T> data,
             const std::vector<Values>& inputs) {
  const Values expected = Expected(c, inputs);
  for (int64_t threads : {1, 5}) {
    std::vector<float> workspace(AttentionWorkspace(shape, threads), kNaN);
    std::vector<T> result(expected.size());
    std::vector<float> log_sums(expected.size() / c.value_width, kNaN);
    data.workspace = workspace.data();
    data.threads = threads;
    data.result = result.data();
    data.log_sums = log_sums.data();
    Attention(shape, data);
    Values actual;
    for (int64_t n = 0; n < c.batch; ++n) {
      for (int64_t h = 0; h < c.heads; ++h) {
        for (int64_t q = 0; q < c.queries; ++q) {
          const int64_t at = n * shape.result[0] + h * shape.result[1] + q * shape.result[2];
          for (int64_t e = 0; e < c.value_width; ++e) actual.push_back(ValueOf(result[at + e]));
        }
      }
    }
    ExpectClose(c, actual, expected);
    for (float sum : log_sums) EXPECT_TRUE(std::isfinite(sum));
  }
}

template <typename T>
void CheckViews(Case c, int64_t gap) {
  c.is_bfloat16 = sizeof(T) == 2;
  AttentionShape shape = ShapeOf(c);
  const std::vector<Values> inputs = ScaledInputsOf(c);
  const std::vector<Shape> dims = c.shapes();
  std::array<int64_t, 3>* strides[] = {&shape.query, &shape.key, &shape.value};
  std::vector<std::vector<T>> tensors;
  for (int i = 0; i < 3; ++i) {
    tensors.push_back(Strided<T>(inputs[i], dims[i], SetStrides(dims[i], gap, strides[i])));
  }
  AttentionData<T> data{};
  data.query = tensors[0].data();
  data.key = tensors[1].data();
  data.value = tensors[2].data();
  if (!c.mask.empty()) {
    data.masks[0] = inputs[3].data();
    data.mask_is_float[0] = true;
    shape.masks[0] = {0, 0, c.keys, 1};
  }
  Compare(c, shape, data, inputs);
}

constexpr int64_t kWidths[] = {1, 7, 8, 24, 31, 40, 72, 80, 160};

TEST(DNNLAttentionKernel, Widths) {
  for (int64_t width : kWidths) {
    for (int64_t gap : {0, 1}) {
      for (bool causal : {false, true}) {
        Case c{2, 2, 1, 37, 141, width, width, causal ? Shape{} : Shape{37, 141}, causal};
        CheckViews<float>(c, gap);
        CheckViews<uint16_t>(c, gap);
        c.fpmath = "bfloat16";
        CheckViews<float>(c, gap);
      }
    }
    // Keys and values of different widths, and several blocks of rows.
    CheckViews<uint16_t>({1, 1, 1, 270, 150, width, 24}, 0);
    CheckViews<uint16_t>({1, 1, 1, 270, 150, 24, width, {}, true}, 0);
  }
}

TEST(DNNLAttentionKernel, CausalRowsOfGroups) {
  // Rows of several heads in a block, each of which begins with those that see few keys.
  for (int64_t keys : {50, 64, 200, 300}) {
    for (const char* fpmath : {"float32", "bfloat16"}) {
      Case c{1, 6, 2, 50, keys, 40, 40, {}, true};
      c.fpmath = fpmath;
      CheckViews<float>(c, 0);
      CheckViews<uint16_t>(c, 3);
    }
  }
}

TEST(DNNLAttentionKernel, Pages) {
  for (int64_t width : kWidths) {
    for (const char* fpmath : {"float32", "bfloat16"}) {
      Case c{1, 4, 2, 20, 90, width, width, {}, true};
      c.fpmath = fpmath;
      AttentionShape shape = ShapeOf(c);
      const std::vector<Values> inputs = ScaledInputsOf(c);
      // Pages of 16 rows, the last one first: [page, key or value, head, row, element].
      constexpr int64_t kRows = 16;
      const int64_t pages = (c.keys + kRows - 1) / kRows, head = kRows * width;
      std::vector<int32_t> numbers;
      std::vector<float> cache(pages * 2 * c.groups * head, kNaN);
      for (int64_t p = 0; p < pages; ++p) numbers.push_back(static_cast<int32_t>(pages - 1 - p));
      for (int64_t h = 0; h < c.groups; ++h) {
        for (int64_t j = 0; j < c.keys; ++j) {
          for (int64_t i : {0, 1}) {
            const int64_t at =
                ((numbers[j / kRows] * 2 + i) * c.groups + h) * head + j % kRows * width;
            const float* row = At(inputs[1 + i], c.key_shape(), {0, h, j, 0});
            std::copy(row, row + width, cache.begin() + at);
          }
        }
      }
      SetStrides(c.query_shape(), 0, &shape.query);
      const std::vector<float> query =
          Strided<float>(inputs[0], c.query_shape(), SetStrides(c.query_shape(), 0, &shape.query));
      shape.key = shape.value = {0, head, width};
      shape.page_rows = kRows;
      shape.page = 2 * c.groups * head;
      AttentionData<float> data{};
      data.query = query.data();
      data.key = cache.data();
      data.value = cache.data() + c.groups * head;
      data.pages = numbers.data();
      Compare(c, shape, data, inputs);
    }
  }
}

}  // namespace dnnl_test::attention_kernel
