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
 * \file src/runtime/contrib/dnnl/core/faults_int8.h
 * \brief Faults of int8 convolutions whose data is compensated, for a zero point or a sign.
 *
 * oneDNN subtracts sums of the weights. At a border they are of the taps that are not padding.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_FAULTS_INT8_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_FAULTS_INT8_H_

#include "faults.h"

namespace tvm::runtime::contrib::dnnl_backend {

bool HasWrongBorder(const Kernel& kernel);
bool ExceedsSumsOfRows(const Kernel& kernel);
bool LacksCompensation(const Kernel& kernel);
bool MisindexesBorder(const Kernel& kernel);
bool MiscountsEndsOfRows(const Kernel& kernel);
bool MiscountsPaddedRows(const Kernel& kernel);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_FAULTS_INT8_H_
