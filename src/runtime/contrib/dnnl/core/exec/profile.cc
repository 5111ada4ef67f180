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
 * \file src/runtime/contrib/dnnl/core/exec/profile.cc
 * \brief Describes the steps of a plan and where its time goes, as JSON text.
 */
#include "profile.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "../../../json/json_text.h"
#include "../desc.h"
#include "../error.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (char c : json::Printable(text)) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return quoted + '"';
}

std::string InBrackets(const std::vector<std::string>& items, const char* separator) {
  std::string text = "[";
  for (const std::string& item : items) text += (text.size() > 1 ? separator : "") + item;
  return text + "]";
}

/*! \brief The text of a JSON object. */
class JSONObject {
 public:
  JSONObject& Add(const char* key, const std::string& text) { return AddJSON(key, Quoted(text)); }
  JSONObject& Add(const char* key, const std::vector<std::string>& texts) {
    std::vector<std::string> items;
    for (const std::string& text : texts) items.push_back(Quoted(text));
    return AddJSON(key, InBrackets(items, ", "));
  }
  JSONObject& Add(const char* key, bool value) { return AddJSON(key, value ? "true" : "false"); }
  template <typename Number, typename = std::enable_if_t<std::is_arithmetic_v<Number>>>
  JSONObject& Add(const char* key, Number number) {
    return AddJSON(key, json::TextOf(number));
  }
  JSONObject& AddJSON(const char* key, const std::string& value) {
    text_ += (text_.empty() ? "" : ", ") + Quoted(key) + ": " + value;
    return *this;
  }
  std::string str() const { return "{" + text_ + "}"; }

 private:
  std::string text_;
};

JSONObject ObjectOf(const StepInfo& info, const NodeNames* names) {
  return JSONObject()
      .Add("node", NodeOf(info, names))
      .Add("op", info.op)
      .Add("kind", info.kind)
      .Add("impl", info.impl)
      .Add("reference", IsReference(info))
      .Add("variant", info.variant)
      .Add("post_ops", info.post_ops)
      .Add("types", info.types)
      .Add("src", info.src_layout)
      .Add("dst", info.dst_layout)
      .Add("threads", info.num_threads);
}

/*! \brief The plans that have the steps, a plan itself or its stages, with the names of nodes. */
std::vector<std::pair<const Plan*, const NodeNames*>> PlansOf(const Plan& plan) {
  if (plan.stages.empty()) return {{&plan, nullptr}};
  std::vector<std::pair<const Plan*, const NodeNames*>> plans;
  for (const PlanStage& stage : plan.stages) {
    plans.emplace_back(stage.ready->plan.get(), stage.names.get());
  }
  return plans;
}

/*! \brief An object with all that is to be told of a plan. */
JSONObject Describe(JSONObject object, const Plan& plan) {
  std::vector<std::string> steps;
  // What stages hand to each other is in memory besides what is theirs, and so is what is passed.
  size_t arena = 0, unshared = 0, scratchpad = 0, constants = 0, constants_shared = 0;
  if (!plan.stages.empty()) {
    arena = plan.arena_bytes;
    unshared = plan.arena_bytes_unshared;
    constants = plan.constant_bytes;
    constants_shared = plan.constant_bytes_shared;
  }
  for (const auto& [part, names] : PlansOf(plan)) {
    for (const Step& step : part->steps) steps.push_back(ObjectOf(step.info, names).str());
    arena += part->arena_bytes;
    unshared += part->arena_bytes_unshared;
    scratchpad += part->scratchpad_bytes;
    constants += part->constant_bytes;
    constants_shared += part->constant_bytes_shared;
  }
  return object.Add("arena_bytes", arena)
      .Add("arena_bytes_unshared", unshared)
      .Add("scratchpad_bytes", scratchpad)
      .Add("constant_bytes", constants)
      .Add("constant_bytes_shared", constants_shared)
      .AddJSON("primitives", InBrackets(steps, ",\n"));
}

/*! \brief What the runs of a plan write but for its stages, those in progress not counted. */
size_t RunBytes(const ReadyPlan& ready) {
  return ready.contexts.size() * (ready.plan->arena_bytes + ready.plan->scratchpad_bytes);
}

double Median(std::vector<double>* samples) {
  const auto middle = samples->begin() + samples->size() / 2;
  std::nth_element(samples->begin(), middle, samples->end());
  return *middle;
}

/*! \brief Runs steps and notes how long each takes. */
class StopWatch {
 public:
  StopWatch(Context* context, size_t num_steps) : context_(context), samples_(num_steps) {}

  void Run(size_t step, bool is_timed) {
    const double microseconds = context_->RunStep(step);
    if (is_timed) samples_[step].push_back(microseconds);
  }
  double MedianOf(size_t step) { return Median(&samples_[step]); }

 private:
  Context* context_;
  std::vector<std::vector<double>> samples_;
};

/*! \brief So many runs before the timed ones bring code and data into the caches. */
constexpr int kWarmUp = 2;

/*! \brief Measure the steps of a plan that has no stages. */
std::vector<std::string> MeasureSteps(const std::shared_ptr<const Plan>& plan,
                                      const NodeNames* names, int repeat, bool is_alone) {
  std::vector<std::shared_ptr<void>> storage(plan->arguments.size());
  std::vector<void*> addresses(plan->arguments.size());
  for (const PassedConstant& passed : plan->passed) addresses.push_back(passed.data.get());
  for (const Buffer& buffer : plan->buffers) {
    const bool is_passed = buffer.argument >= static_cast<int>(storage.size());
    if (buffer.kind != BufferKind::kArgument || is_passed) continue;
    storage[buffer.argument] = AllocAligned(buffer.bytes);
    addresses[buffer.argument] = storage[buffer.argument].get();
    if (buffer.bytes > 0) std::memset(addresses[buffer.argument], 0, buffer.bytes);
  }
  Context context(plan);
  context.Run(addresses, nullptr);

  const size_t num_steps = plan->steps.size();
  StopWatch watch(&context, num_steps);
  // Either all runs of a step one after the other, or run by run all steps.
  for (size_t i = 0; is_alone && i < num_steps; ++i) {
    for (int run = -kWarmUp; run < repeat; ++run) watch.Run(i, run >= 0);
  }
  for (int run = -kWarmUp; !is_alone && run < repeat; ++run) {
    for (size_t i = 0; i < num_steps; ++i) watch.Run(i, run >= 0);
  }
  std::vector<std::string> measured;
  for (size_t i = 0; i < num_steps; ++i) {
    JSONObject object = ObjectOf(plan->steps[i].info, names);
    object.Add("flops", plan->steps[i].info.flops).Add("microseconds", watch.MedianOf(i));
    measured.push_back(object.str());
  }
  return measured;
}

}  // namespace

std::string DescribePlan(const std::string& symbol, const Plan& plan) {
  return Describe(JSONObject().Add("symbol", symbol), plan).str();
}

std::string DescribePlans(const Graph& graph, const PlanCache& plans) {
  const auto counts = plans.counts();
  size_t graph_bytes = 0, run_bytes = 0;
  for (const Constant& constant : graph.constants) {
    graph_bytes += BytesOf(constant.edge.argument.type);
  }
  // Plans share constants with each other, and with the graph those that need no packing.
  std::map<const void*, size_t> constants;
  std::set<const ReadyPlan*> shared;
  std::vector<std::string> described;
  for (const std::shared_ptr<ReadyPlan>& ready : plans.values()) {
    std::vector<std::string> shapes;
    for (size_t i = 0; i < graph.inputs.size(); ++i) {
      shapes.push_back(ToText(ready->plan->arguments[i].type.shape));
    }
    run_bytes += RunBytes(*ready);
    for (const PlanStage& stage : ready->plan->stages) {
      const bool is_new = !stage.is_shared || shared.insert(stage.ready.get()).second;
      if (is_new) run_bytes += RunBytes(*stage.ready);
      for (size_t i = 0; i < stage.constants.size(); ++i) {
        constants[stage.constants[i].get()] = stage.ready->plan->passed[i].bytes;
      }
    }
    for (const auto& part : PlansOf(*ready->plan)) {
      for (const Buffer& buffer : part.first->buffers) {
        if (buffer.kind == BufferKind::kConstant) constants[buffer.data.get()] = buffer.bytes;
      }
    }
    JSONObject object;
    object.AddJSON("input_shapes", InBrackets(shapes, ", "))
        .Add("contexts", ready->contexts.size())
        .Add("stages", ready->plan->stages.size());
    described.push_back(Describe(std::move(object), *ready->plan).str());
  }
  for (const Constant& constant : graph.constants) constants.erase(constant.data.get());
  constants.erase(nullptr);
  size_t packed_bytes = 0;
  for (const auto& [data, bytes] : constants) packed_bytes += bytes;
  return JSONObject()
      .Add("symbol", graph.symbol)
      .Add("plan_cache_size", plans.capacity())
      .Add("hits", counts.hits)
      .Add("misses", counts.misses)
      .Add("bytes", graph_bytes + packed_bytes + run_bytes)
      .Add("graph_constant_bytes", graph_bytes)
      .Add("packed_constant_bytes", packed_bytes)
      .Add("run_bytes", run_bytes)
      .AddJSON("plans", InBrackets(described, ",\n"))
      .str();
}

std::string MeasurePrimitives(const std::shared_ptr<const Plan>& plan, int repeat, bool is_alone) {
  CORE_CHECK(repeat >= 1) << "repeat must be at least 1, but is " << repeat;
  if (plan->stages.empty()) {
    return InBrackets(MeasureSteps(plan, nullptr, repeat, is_alone), ",\n");
  }
  std::vector<std::string> measured;
  for (const PlanStage& stage : plan->stages) {
    const auto steps = MeasureSteps(stage.ready->plan, stage.names.get(), repeat, is_alone);
    measured.insert(measured.end(), steps.begin(), steps.end());
  }
  return InBrackets(measured, ",\n");
}

}  // namespace tvm::runtime::contrib::dnnl_backend
