// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/harness/arrays.h
 * \brief TVM's arrays of floats from and to vectors.
 */
#ifndef TESTS_CPP_RUNTIME_HARNESS_ARRAYS_H_
#define TESTS_CPP_RUNTIME_HARNESS_ARRAYS_H_

#include <tvm/runtime/ndarray.h>

#include <algorithm>
#include <vector>

namespace tvm_test {

inline tvm::runtime::NDArray Floats(const std::vector<float>& values) {
  const auto array = tvm::runtime::NDArray::Empty({static_cast<int64_t>(values.size())},
                                                  {kDLFloat, 32, 1}, {kDLCPU, 0});
  std::copy(values.begin(), values.end(), static_cast<float*>(array->data));
  return array;
}

inline std::vector<float> Values(const tvm::runtime::NDArray& array) {
  const auto* data = static_cast<const float*>(array->data);
  return std::vector<float>(data, data + array->shape[0]);
}

}  // namespace tvm_test

#endif  // TESTS_CPP_RUNTIME_HARNESS_ARRAYS_H_
