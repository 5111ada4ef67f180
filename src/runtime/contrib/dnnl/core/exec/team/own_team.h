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
 * \file src/runtime/contrib/dnnl/core/exec/team/own_team.h
 * \brief The team of each thread that begins parallel regions.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_EXEC_TEAM_OWN_TEAM_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_EXEC_TEAM_OWN_TEAM_H_

#include "team.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*!
 * \brief The team of the calling thread, for so many threads or more; it ends with the thread.
 *
 * Where the limits of the system allow no more threads, it is that of another thread, which both
 * use in turns.
 * \return Null if there is none and none can be started.
 */
Team* TeamOfThread(int size);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_EXEC_TEAM_OWN_TEAM_H_
