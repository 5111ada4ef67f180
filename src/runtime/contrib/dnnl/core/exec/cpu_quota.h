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
 * \file src/runtime/contrib/dnnl/core/exec/cpu_quota.h
 * \brief How many CPUs the control groups of this process let it use.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_EXEC_CPU_QUOTA_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_EXEC_CPU_QUOTA_H_

#include <string>

namespace tvm::runtime::contrib::dnnl_backend {

/*!
 * \brief The CPU time that the process may use for each second, in CPUs, rounded up.
 *
 * A container with two CPUs of 64 may run on all of them, so its affinity says 64. Its 64 threads
 * use up the quota of a period in a moment, and all of them stand still for the rest of it. The
 * quota is the least one of the process's control group and of those that this one is in, of
 * version 1 (cpu.cfs_quota_us) and 2 (cpu.max).
 *
 * \param root Goes before each path, for a file system that lies elsewhere.
 * \return At least 1, or 0 without a quota.
 */
int CpuQuota(const std::string& root = "");

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_EXEC_CPU_QUOTA_H_
