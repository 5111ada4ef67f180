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
 * \file src/relay/backend/contrib/dnnl/json_codegen.h
 * \brief Relay function -> module of the DNNL JSON runtime.
 */
#ifndef TVM_RELAY_BACKEND_CONTRIB_DNNL_JSON_CODEGEN_H_
#define TVM_RELAY_BACKEND_CONTRIB_DNNL_JSON_CODEGEN_H_

#include <tvm/relay/function.h>
#include <tvm/runtime/container/array.h>
#include <tvm/runtime/container/string.h>
#include <tvm/runtime/module.h>
#include <tvm/runtime/ndarray.h>

#include <string>

namespace tvm {
namespace relay {
namespace contrib {
namespace dnnl {

/*! \brief A partition as the graph that the runtime knows. */
struct SerializedPartition {
  std::string symbol;
  std::string graph_json;
  /*! \brief The constants in the order in which the runtime wants them. */
  Array<String> const_names;
  /*! \brief Their values. */
  Array<runtime::NDArray> constants;
};

/*!
 * \brief An attribute with the partition, of a function that only has its type.
 *
 * TVM infers the types in the bodies of all functions after each of its passes. `compile` of
 * `dnnl.py` lets it have bodies of one op.
 */
constexpr const char* kPartitionAttr = "dnnl_partition";

/*! \brief The partition that a function is or has as its attribute. */
Function PartitionOf(const Function& function);

/*! \brief Serialise a partition: what both codegens begin with. */
SerializedPartition SerializePartition(const Function& function);

/*! \brief Create the runtime module of a partition. */
runtime::Module CompileToJSON(const Function& function, const SerializedPartition& partition);

}  // namespace dnnl
}  // namespace contrib
}  // namespace relay
}  // namespace tvm

#endif  // TVM_RELAY_BACKEND_CONTRIB_DNNL_JSON_CODEGEN_H_
