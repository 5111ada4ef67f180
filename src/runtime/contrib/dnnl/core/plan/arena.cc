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
 * \file src/runtime/contrib/dnnl/core/plan/arena.cc
 * \brief Where the intermediates of a plan lie.
 */
#include "arena.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "../exec/threads.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief The first and the last step that use a buffer. */
struct Lifetime {
  int buffer;
  int first{-1};
  int last{-1};
  bool Overlaps(const Lifetime& other) const { return first <= other.last && other.first <= last; }
};

/*! \brief The buffer that the memory of a tensor belongs to in the end. */
int RootOf(const Plan& plan, int tensor) { return plan.Locate(plan.tensors[tensor].buffer).first; }

/*! \brief Lifetimes by buffer. A part keeps the whole alive and has none of its own. */
std::vector<Lifetime> FindLifetimes(const Plan& plan) {
  std::vector<Lifetime> lifetimes(plan.buffers.size());
  for (size_t i = 0; i < lifetimes.size(); ++i) lifetimes[i].buffer = static_cast<int>(i);
  for (size_t step = 0; step < plan.steps.size(); ++step) {
    for (const auto& [arg, tensor] : plan.steps[step].args) {
      Lifetime& lifetime = lifetimes[RootOf(plan, tensor)];
      if (lifetime.first < 0) lifetime.first = static_cast<int>(step);
      lifetime.last = static_cast<int>(step);
    }
  }
  return lifetimes;
}

/*! \brief Whether the step's result may be computed in the memory of its argument `operand`. */
bool MayShare(const Plan& plan, const std::vector<Lifetime>& lifetimes, int step, int operand,
              int result) {
  const Tensor& from = plan.tensors[operand];
  const Tensor& to = plan.tensors[result];
  const int root = RootOf(plan, operand);
  const Buffer& own = plan.buffers[to.buffer];
  if (from.md != to.md || plan.buffers[root].kind != BufferKind::kArena) return false;
  // The result must be an intermediate that begins here, not a part of another one.
  if (own.kind != BufferKind::kArena || own.bytes != to.md.get_size()) return false;
  if (to.buffer == root || lifetimes[to.buffer].first != step) return false;
  if (lifetimes[root].last != step) return false;
  const auto& args = plan.steps[step].args;
  return std::count_if(args.begin(), args.end(),
                       [&](const auto& arg) { return RootOf(plan, arg.second) == root; }) == 1;
}

}  // namespace

void ComputeInPlace(const std::vector<InPlaceOffer>& offers, Plan* plan) {
  std::vector<Lifetime> lifetimes = FindLifetimes(*plan);
  for (const InPlaceOffer& offer : offers) {
    Step& step = plan->steps[offer.step];
    const auto operand = step.FindArg(offer.arg);
    const auto result = step.FindArg(DNNL_ARG_DST);
    if (operand == step.args.end() || result == step.args.end()) continue;
    const int from = operand->second;
    const int to = result->second;
    if (!MayShare(*plan, lifetimes, static_cast<int>(offer.step), from, to)) continue;
    const auto [root, offset] = plan->Locate(plan->tensors[from].buffer);
    const int buffer = plan->tensors[to].buffer;
    if (offer.create) {
      const ThreadScope threads(step.info.num_threads);
      step.primitive = offer.create();
      step.args.erase(operand);
      for (auto& [arg, tensor] : step.args) {
        const auto it = offer.renumbered.find(arg);
        if (it != offer.renumbered.end()) arg = it->second;
      }
      step.info.post_ops[offer.post_op] = "sum";
    }
    // Of the whole: parts of parts would make a long chain of steps slow to look up.
    plan->buffers[buffer].kind = BufferKind::kPart;
    plan->buffers[buffer].parent = root;
    plan->buffers[buffer].offset = offset;
    lifetimes[root].last = lifetimes[buffer].last;
    lifetimes[buffer].first = lifetimes[buffer].last = -1;
  }
}

void PlaceArena(Plan* plan) {
  std::vector<Buffer>& buffers = plan->buffers;
  std::vector<Lifetime> pending;
  for (const Lifetime& lifetime : FindLifetimes(*plan)) {
    const bool is_used = lifetime.first >= 0;
    if (is_used && buffers[lifetime.buffer].kind == BufferKind::kArena) pending.push_back(lifetime);
  }
  // The largest first: they are the hardest to place, the small ones fill the gaps.
  std::stable_sort(pending.begin(), pending.end(), [&](const Lifetime& a, const Lifetime& b) {
    return buffers[a.buffer].bytes > buffers[b.buffer].bytes;
  });

  std::vector<Lifetime> placed;  // sorted by offset
  for (const Lifetime& lifetime : pending) {
    Buffer& buffer = buffers[lifetime.buffer];
    size_t offset = 0;
    for (const Lifetime& other : placed) {
      if (!lifetime.Overlaps(other)) continue;
      const Buffer& occupied = buffers[other.buffer];
      if (offset + buffer.bytes <= occupied.offset) break;
      offset = std::max(offset, RoundUp(occupied.offset + occupied.bytes));
    }
    buffer.offset = offset;
    plan->arena_bytes = std::max(plan->arena_bytes, RoundUp(offset + buffer.bytes));
    plan->arena_bytes_unshared += RoundUp(buffer.bytes);
    const auto position = std::upper_bound(
        placed.begin(), placed.end(), offset,
        [&](size_t value, const Lifetime& l) { return value < buffers[l.buffer].offset; });
    placed.insert(position, lifetime);
  }
}

}  // namespace tvm::runtime::contrib::dnnl_backend
