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
 * \file src/runtime/contrib/dnnl/core/environment.h
 * \brief Numbers and switches that the environment says.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_ENVIRONMENT_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_ENVIRONMENT_H_

namespace tvm::runtime::contrib::dnnl_backend {

/*!
 * \brief The number that a variable holds; 0 if it is not set.
 * \param variable The name.
 * \param what What is counted, for the error that says that the text is no number from 1 to `max`.
 */
int NumberFromEnvironment(const char* variable, const char* what, int max);

/*! \brief Whether a variable is 1, or not set; an error if it is neither 0 nor 1. */
bool IsOnInEnvironment(const char* variable);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_ENVIRONMENT_H_
