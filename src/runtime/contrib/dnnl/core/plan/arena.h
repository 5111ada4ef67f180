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
 * \file src/runtime/contrib/dnnl/core/plan/arena.h
 * \brief Where the intermediates of a plan lie.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_PLAN_ARENA_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_PLAN_ARENA_H_

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "../onednn.h"
#include "plan.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief A step that can compute its result in the memory of one of its operands. */
struct InPlaceOffer {
  size_t step;
  /*! \brief The argument (DNNL_ARG_*) that is the operand. */
  int arg;
  /*!
   * \brief Makes the primitive that finds the operand in its result's memory, and so has no such
   * argument; empty where the same primitive may be given one memory for both.
   */
  std::function<dnnl::primitive()> create;
  /*! \brief With `create`: which of the step's post-ops it changes. */
  size_t post_op;
  /*! \brief With `create`: other arguments, and what the new primitive calls them. */
  std::map<int, int> renumbered;
};

/*!
 * \brief Take the offers that change no value: nobody reads the operand's memory later, the step
 * itself reads it once, and it is laid out as the result is.
 */
void ComputeInPlace(const std::vector<InPlaceOffer>& offers, Plan* plan);

/*!
 * \brief Give the intermediates their offsets, so that two share memory only when no step needs
 * both. Called once, when all steps are there.
 */
void PlaceArena(Plan* plan);

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_PLAN_ARENA_H_
