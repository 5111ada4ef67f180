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
 * \file src/runtime/contrib/dnnl/tvm/stored_array.h
 * \brief Reading the constants of a library without trust in the numbers that it holds.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_TVM_STORED_ARRAY_H_
#define TVM_RUNTIME_CONTRIB_DNNL_TVM_STORED_ARRAY_H_

#include <dmlc/io.h>
#include <tvm/runtime/ndarray.h>

#include <string>

namespace tvm {
namespace runtime {
namespace contrib {
namespace dnnl_backend {

/*! \brief Fails where a part of the constants of a library could not be read. */
void CheckComplete(bool good, const std::string& what);

/*! \brief Read an array that NDArray::Save has written; none is allocated that is not there. */
NDArray ReadArray(dmlc::Stream* stream);

/*! \brief Go past such an array, once it is known to be whole. */
void SkipArray(dmlc::SeekStream* stream);

}  // namespace dnnl_backend
}  // namespace contrib
}  // namespace runtime
}  // namespace tvm

#endif  // TVM_RUNTIME_CONTRIB_DNNL_TVM_STORED_ARRAY_H_
