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
 * \file src/runtime/extra/contrib/dnnl/tvm/stored_constants.h
 * \brief The sizes in the bytes of a const loader, checked before anything is read by them.
 */
#ifndef TVM_RUNTIME_EXTRA_CONTRIB_DNNL_TVM_STORED_CONSTANTS_H_
#define TVM_RUNTIME_EXTRA_CONTRIB_DNNL_TVM_STORED_CONSTANTS_H_

#include <string_view>

namespace tvm::runtime::contrib::dnnl_backend {

/*!
 * \brief Refuse constants of which a number says more than there is.
 *
 * They are the names, the arrays, and the names of functions with those of the constants of each.
 *
 * \throws Error that says which part is cut off or damaged.
 */
void CheckConstants(std::string_view bytes);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_EXTRA_CONTRIB_DNNL_TVM_STORED_CONSTANTS_H_
