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
 * \brief What a plan consists of and where its time goes, as JSON text.
 */
#include "profile.h"

#include <dmlc/json.h>
#include <tvm/runtime/logging.h>

#include <algorithm>
#include <cstring>
#include <sstream>
#include <vector>

namespace tvm {
namespace runtime {
namespace contrib {
namespace dnnl_backend {

namespace {

void WriteInfo(const StepInfo& info, dmlc::JSONWriter* writer) {
  writer->WriteObjectKeyValue("node", info.node);
  writer->WriteObjectKeyValue("op", info.op);
  writer->WriteObjectKeyValue("kind", info.kind);
  writer->WriteObjectKeyValue("impl", info.impl);
  writer->WriteObjectKeyValue("form", info.form);
  writer->WriteObjectKeyValue("post_ops", info.post_ops);
  writer->WriteObjectKeyValue("src", info.src_layout);
  writer->WriteObjectKeyValue("dst", info.dst_layout);
  writer->WriteObjectKeyValue("threads", info.num_threads);
}

struct DescribedStep {
  const StepInfo& info;
  void Save(dmlc::JSONWriter* writer) const {
    writer->BeginObject();
    WriteInfo(info, writer);
    writer->EndObject();
  }
};

struct MeasuredStep {
  const StepInfo& info;
  double microseconds;
  void Save(dmlc::JSONWriter* writer) const {
    writer->BeginObject();
    WriteInfo(info, writer);
    writer->WriteObjectKeyValue("flops", info.flops);
    writer->WriteObjectKeyValue("microseconds", microseconds);
    writer->EndObject();
  }
};

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

}  // namespace

std::string DescribePlan(const std::string& symbol, const Plan& plan) {
  std::vector<DescribedStep> steps;
  for (const Step& step : plan.steps) steps.push_back({step.info});
  std::ostringstream os;
  dmlc::JSONWriter writer(&os);
  writer.BeginObject();
  writer.WriteObjectKeyValue("symbol", symbol);
  writer.WriteObjectKeyValue("arena_bytes", plan.arena_bytes);
  writer.WriteObjectKeyValue("arena_bytes_unshared", plan.arena_bytes_unshared);
  writer.WriteObjectKeyValue("scratchpad_bytes", plan.scratchpad_bytes);
  writer.WriteObjectKeyValue("constant_bytes", plan.constant_bytes);
  writer.WriteObjectKeyValue("constant_bytes_shared", plan.constant_bytes_shared);
  writer.WriteObjectKeyValue("primitives", steps);
  writer.EndObject();
  return os.str();
}

std::string MeasurePrimitives(const std::shared_ptr<const Plan>& plan, int repeat, bool is_alone) {
  ICHECK_GE(repeat, 1) << "repeat must be at least 1, but is " << repeat;

  std::vector<std::shared_ptr<void>> storage(plan->arguments.size());
  std::vector<void*> addresses(plan->arguments.size());
  for (const Buffer& buffer : plan->buffers) {
    if (buffer.kind != BufferKind::kArgument) continue;
    storage[buffer.argument] = AllocAligned(buffer.bytes);
    addresses[buffer.argument] = storage[buffer.argument].get();
    std::memset(addresses[buffer.argument], 0, buffer.bytes);
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
  std::vector<MeasuredStep> measured;
  for (size_t i = 0; i < num_steps; ++i)
    measured.push_back({plan->steps[i].info, watch.MedianOf(i)});
  std::ostringstream os;
  dmlc::JSONWriter writer(&os);
  writer.Write(measured);
  return os.str();
}

}  // namespace dnnl_backend
}  // namespace contrib
}  // namespace runtime
}  // namespace tvm
