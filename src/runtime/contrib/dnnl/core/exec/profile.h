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
 * \file src/runtime/contrib/dnnl/core/exec/profile.h
 * \brief Describes the steps of a plan and where its time goes, as JSON text.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_EXEC_PROFILE_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_EXEC_PROFILE_H_

#include <memory>
#include <string>

#include "../graph.h"
#include "../plan/plan.h"
#include "../plan/plan_cache.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*!
 * \brief The plan as JSON: symbol, arena_bytes, arena_bytes_unshared, scratchpad_bytes, and for
 * each primitive node, op, kind, impl, variant, post_ops, types, src, dst, threads, and whether
 * oneDNN has only its slow reference code for it.
 */
std::string DescribePlan(const std::string& symbol, const Plan& plan);

/*!
 * \brief The plans of a graph with open dimensions as JSON: symbol, what the cache holds and did,
 * and each plan, that of the latest shape first, with the shapes of its inputs and the number of
 * its stages.
 */
std::string DescribePlans(const Graph& graph, const PlanCache& plans);

/*!
 * \brief Time each primitive of the plan, on inputs of zeros.
 * \param repeat How many timed runs each gets, at least 1.
 * \param is_alone Whether each runs again and again, so that its weights are in the caches, or in
 * its turn with the others as in a run of the plan.
 * \return JSON: a list of what DescribePlan tells of each primitive, with flops and microseconds,
 * the median.
 */
std::string MeasurePrimitives(const std::shared_ptr<const Plan>& plan, int repeat, bool is_alone);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_EXEC_PROFILE_H_
