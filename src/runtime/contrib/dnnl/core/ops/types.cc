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
 * \file src/runtime/contrib/dnnl/core/ops/types.cc
 * \brief Shared by the functions that infer the types of ops: checks whose errors name the node.
 */
#include "types.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

constexpr DLDataType kKnownTypes[] = {
    kFloat32, {kDLBfloat, 16, 1}, {kDLFloat, 16, 1}, kInt32, kInt8, {kDLUInt, 8, 1}, kBool};

/*! \brief "input 1, float32 [8, 4],": the middle of an error. */
std::string InputText(const Types& inputs, int index) {
  return "input " + std::to_string(index) + ", " + ToText(inputs.at(index)) + ",";
}

}  // namespace

bool operator==(const DLDataType& a, const DLDataType& b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

bool IsReal(DLDataType dtype) {
  return dtype.code == kDLBfloat || (dtype.code == kDLFloat && dtype.bits <= 32);
}

bool IsByte(DLDataType dtype) {
  return (dtype.code == kDLInt || dtype.code == kDLUInt) && dtype.bits == 8;
}

void CheckReal(const NodeReader& node, const Types& inputs, bool or_bytes) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    CORE_CHECK(IsReal(inputs[i].dtype) || (or_bytes && IsByte(inputs[i].dtype)))
        << node.Where() << ": " << InputText(inputs, i) << " is not floating-point";
    CORE_CHECK(inputs[i].dtype == inputs[0].dtype)
        << node.Where() << ": " << InputText(inputs, i) << " has a different type than input 0, "
        << ToText(inputs[0]);
  }
}

void CheckRank(const NodeReader& node, const Types& inputs, int index, size_t rank) {
  CORE_CHECK(inputs.at(index).shape.size() == rank)
      << node.Where() << ": " << InputText(inputs, index) << " does not have rank " << rank;
}

void CheckMinRank(const NodeReader& node, const Types& inputs, int index, size_t rank) {
  CORE_CHECK(inputs.at(index).shape.size() >= rank)
      << node.Where() << ": " << InputText(inputs, index) << " does not have rank " << rank
      << " or more";
}

void CheckVector(const NodeReader& node, const Types& inputs, int index, int64_t size) {
  CORE_CHECK(inputs.at(index).shape == std::vector<int64_t>{size})
      << node.Where() << ": " << InputText(inputs, index) << " is not a vector of " << size
      << " elements";
}

Dims BroadcastDims(const NodeReader& node, const char* what, const Dims& lhs, const Dims& rhs) {
  const size_t rank = std::max(lhs.size(), rhs.size());
  Dims dims(rank, 1);
  for (const Dims* operand : {&lhs, &rhs}) {
    for (size_t i = rank - operand->size(), k = 0; i < rank; ++i, ++k) {
      const int64_t size = (*operand)[k];
      CORE_CHECK(size == dims[i] || size == 1 || dims[i] == 1)
          << node.Where() << ": " << what << " " << ToText(lhs) << " and " << ToText(rhs)
          << " do not broadcast";
      if (size != 1) dims[i] = size;
    }
  }
  return dims;
}

DLDataType ReadType(const NodeReader& node, const std::string& key, DLDataType otherwise) {
  if (!node.Has(key)) return otherwise;
  const auto name = node.Get<std::string>(key);
  // Relay writes this for none.
  if (name == "void") return otherwise;
  for (DLDataType dtype : kKnownTypes) {
    if (name == ToText(dtype)) return dtype;
  }
  CORE_FAIL() << node.Where() << ": " << key << " is " << name << ", which oneDNN lacks";
}

DLDataType ReadRealType(const NodeReader& node, const std::string& key, DLDataType input) {
  const DLDataType dtype = ReadType(node, key, input);
  CORE_CHECK(dtype == input || dtype == kFloat32)
      << node.Where() << ": " << key << " is " << ToText(dtype) << ", expected: " << ToText(input)
      << " or float32";
  return dtype;
}

int64_t ReadSize(const NodeReader& node, const std::string& key, int64_t otherwise, int64_t low) {
  const auto value = node.Get<int64_t>(key, otherwise);
  CheckSizes(node, key, {value}, low);
  return value;
}

void CheckSizes(const NodeReader& node, const std::string& key, const Dims& values, int64_t low) {
  for (int64_t value : values) {
    CORE_CHECK(value >= low && value <= kMaxSize) << node.Where() << ": " << key << " has " << value
                                                  << ", outside of " << low << " to " << kMaxSize;
  }
}

void CheckSays(const NodeReader& node, const std::string& key, int64_t expected) {
  const auto value = node.Get<int64_t>(key, expected);
  CORE_CHECK(value == expected) << node.Where() << ": " << key << " is " << value
                                << ", but the inputs make it " << expected;
}

void CheckFlags(const NodeReader& node, const std::vector<std::string>& keys) {
  for (const std::string& key : keys) node.Get<bool>(key, false);
}

double ReadEpsilon(const NodeReader& node, const std::string& key, double otherwise) {
  const double value = node.Get<double>(key, otherwise);
  CORE_CHECK(value >= 0 && std::isfinite(value)) << node.Where() << ": " << key << " is " << value
                                                 << ", which is not a finite non-negative number";
  return value;
}

std::vector<int> ReadAxes(const NodeReader& node, const std::string& key, int rank) {
  std::vector<int> axes;
  for (int64_t listed : node.Get<std::vector<int64_t>>(key, {})) {
    CORE_CHECK(listed >= -rank && listed < rank)
        << node.Where() << ": " << key << " has " << listed << ", outside of rank " << rank;
    const int axis = static_cast<int>(listed < 0 ? listed + rank : listed);
    CORE_CHECK(std::count(axes.begin(), axes.end(), axis) == 0)
        << node.Where() << ": " << key << " has axis " << listed << " twice";
    axes.push_back(axis);
  }
  return axes;
}

size_t SpatialOf(const NodeReader& node) {
  const std::string& name = node.OpName();
  const size_t digit = name.find_first_of("123");
  // nn.upsampling is that of images.
  return digit == std::string::npos ? 2 : name[digit] - '0';
}

}  // namespace tvm::runtime::contrib::dnnl_backend
