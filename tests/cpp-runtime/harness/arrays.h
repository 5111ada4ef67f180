/*
 * Licensed to the Apache Software Foundation (ASF) under one
 * or more contributor license agreements.  See the NOTICE file
 * distributed with this work for additional information
 * regarding copyright ownership.  The ASF licenses this file
 * to you under the Apache License, Version 2.0 (the
 * "License"); you may not use this file except in compliance
 * with the License.  You may obtain a copy of the License at
 *
 *   http://www.apache.org/licenses/LICENSE-2.0
 *
 * Unless required by applicable law or agreed to in writing,
 * software distributed under the License is distributed on an
 * "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
 * KIND, either express or implied.  See the License for the
 * specific language governing permissions and limitations
 * under the License.
 */

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
