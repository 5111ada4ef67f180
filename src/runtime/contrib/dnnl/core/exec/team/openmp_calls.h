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
 * \file src/runtime/contrib/dnnl/core/exec/team/openmp_calls.h
 * \brief Runs the parallel regions of a library compiled for GNU OpenMP on teams of ours.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_EXEC_TEAM_OPENMP_CALLS_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_EXEC_TEAM_OPENMP_CALLS_H_

namespace tvm::runtime::contrib::dnnl_backend {

/*!
 * \brief Have a library call our functions in the place of GNU OpenMP's, from now on.
 *
 * Parallel regions that it begins run on a Team, which suits machines with other work; each thread
 * that begins one has its own. All else stays with GNU OpenMP, the number of threads too. Nothing
 * is done without USE_DNNL_TEAM, and where that could change what a program does: if the library
 * uses functions of OpenMP that we do not have, if a variable tells OpenMP where or how its threads
 * wait (OMP_WAIT_POLICY, GOMP_SPINCOUNT, OMP_PROC_BIND, OMP_PLACES, GOMP_CPU_AFFINITY), if
 * TVM_DNNL_TEAM is 0, and on systems other than Linux on x86-64.
 *
 * \param address Anything in the library.
 * \return Whether it does so now.
 */
bool RunOnTeams(const void* address);

/*!
 * \brief Whether the calling thread has a team of so many threads: its own, which is started if
 *        need be, or, if the system allows no more threads, that of another thread.
 */
bool HasTeam(int size);

/*! \brief Our function in the place of one of GNU OpenMP, which needs a RunOnTeams before; else
 * null. */
void* FunctionOfTeams(const char* name);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_EXEC_TEAM_OPENMP_CALLS_H_
