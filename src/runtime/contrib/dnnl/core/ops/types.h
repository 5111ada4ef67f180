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
 * \file src/runtime/contrib/dnnl/core/ops/types.h
 * \brief Shared by the functions that infer the types of ops: checks whose errors name the node.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_TYPES_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_TYPES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "../node_reader.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief The largest size, stride or padding that an attribute may be. */
constexpr int64_t kMaxSize = 2147483647;

bool operator==(const DLDataType& a, const DLDataType& b);
inline bool operator!=(const DLDataType& a, const DLDataType& b) { return !(a == b); }

constexpr DLDataType kBool{kDLUInt, 1, 1};
constexpr DLDataType kFloat32{kDLFloat, 32, 1};
constexpr DLDataType kBFloat16{kDLBfloat, 16, 1};
constexpr DLDataType kInt32{kDLInt, 32, 1};
constexpr DLDataType kInt8{kDLInt, 8, 1};
constexpr DLDataType kUInt8{kDLUInt, 8, 1};

/*! \brief Whether the elements are of a floating-point type that ops compute in. */
bool IsReal(DLDataType dtype);

/*! \brief Whether the elements are integers of 8 bits. */
bool IsByte(DLDataType dtype);

/*!
 * \brief Refuse inputs that are not of one floating-point type.
 * \param or_bytes Whether integers of 8 bits will do: the op gives one of the elements.
 */
void CheckReal(const NodeReader& node, const Types& inputs, bool or_bytes = false);

/*! \brief Refuse an input of another rank. */
void CheckRank(const NodeReader& node, const Types& inputs, int index, size_t rank);
/*! \brief Refuse an input of a lower rank. */
void CheckMinRank(const NodeReader& node, const Types& inputs, int index, size_t rank);
/*! \brief Refuse an input that is no vector of so many elements. */
void CheckVector(const NodeReader& node, const Types& inputs, int index, int64_t size);

/*!
 * \brief Broadcast two shapes as numpy does.
 * \param what What an error calls them: "shapes".
 */
Dims BroadcastDims(const NodeReader& node, const char* what, const Dims& lhs, const Dims& rhs);

/*! \brief The data type that an attribute names; the other one where it names none. */
DLDataType ReadType(const NodeReader& node, const std::string& key, DLDataType otherwise);
/*! \brief The type of a floating-point result: that of the input, or float32. */
DLDataType ReadRealType(const NodeReader& node, const std::string& key, DLDataType input);

/*! \brief An integer within bounds. */
int64_t ReadSize(const NodeReader& node, const std::string& key, int64_t otherwise, int64_t low);
/*! \brief Refuse values outside of low to kMaxSize. */
void CheckSizes(const NodeReader& node, const std::string& key, const Dims& values, int64_t low);
/*! \brief Refuse an attribute that is there and does not say what the operands do. */
void CheckSays(const NodeReader& node, const std::string& key, int64_t expected);

/*! \brief Refuse attributes that are there and are no flags. */
void CheckFlags(const NodeReader& node, const std::vector<std::string>& keys);

/*! \brief A finite number of zero or more. */
double ReadEpsilon(const NodeReader& node, const std::string& key, double otherwise);

/*! \brief Axes from the start, none of them twice; empty where the attribute names none. */
std::vector<int> ReadAxes(const NodeReader& node, const std::string& key, int rank);

/*! \brief How many spatial dimensions an op has, as its name says: "nn.conv2d". */
size_t SpatialOf(const NodeReader& node);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_OPS_TYPES_H_
