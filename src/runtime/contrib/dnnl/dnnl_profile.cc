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
 * \file src/runtime/contrib/dnnl/dnnl_profile.cc
 * \brief What a plan consists of and where its time goes, as JSON text.
 */
#include "dnnl_profile.h"

#include <dmlc/json.h>
#include <tvm/runtime/logging.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <sstream>
#include <vector>

namespace tvm {
namespace runtime {
namespace contrib {
namespace dnnl_backend {

namespace {

struct DescribedStep {
  const StepInfo& info;
  void Save(dmlc::JSONWriter* writer) const {
    writer->BeginObject();
    writer->WriteObjectKeyValue("node", info.node);
    writer->WriteObjectKeyValue("op", info.op);
    writer->WriteObjectKeyValue("kind", info.kind);
    writer->WriteObjectKeyValue("impl", info.impl);
    writer->WriteObjectKeyValue("post_ops", info.post_ops);
    writer->WriteObjectKeyValue("src", info.src_layout);
    writer->WriteObjectKeyValue("dst", info.dst_layout);
    writer->EndObject();
  }
};

struct MeasuredStep {
  const StepInfo& info;
  double microseconds;
  void Save(dmlc::JSONWriter* writer) const {
    writer->BeginObject();
    writer->WriteObjectKeyValue("node", info.node);
    writer->WriteObjectKeyValue("kind", info.kind);
    writer->WriteObjectKeyValue("impl", info.impl);
    writer->WriteObjectKeyValue("microseconds", microseconds);
    writer->EndObject();
  }
};

double Median(std::vector<double>* samples) {
  const auto middle = samples->begin() + samples->size() / 2;
  std::nth_element(samples->begin(), middle, samples->end());
  return *middle;
}

double MeasureStep(Context* context, size_t step, int repeat) {
  using Clock = std::chrono::steady_clock;
  // Two runs before the timed ones bring code and data into the caches.
  for (int i = 0; i < 2; ++i) context->RunStep(step);
  std::vector<double> samples;
  for (int i = 0; i < repeat; ++i) {
    const auto start = Clock::now();
    context->RunStep(step);
    samples.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  return Median(&samples);
}

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
  writer.WriteObjectKeyValue("primitives", steps);
  writer.EndObject();
  return os.str();
}

std::string MeasurePrimitives(const std::shared_ptr<const Plan>& plan, int repeat) {
  ICHECK_GE(repeat, 1) << "measure_primitives: repeat must be at least 1, but is " << repeat;

  std::vector<std::shared_ptr<void>> storage(plan->arguments.size());
  std::vector<void*> addresses(plan->arguments.size());
  for (const Buffer& buffer : plan->buffers) {
    if (buffer.kind != BufferKind::kArgument) continue;
    storage[buffer.argument] = AllocAligned(buffer.bytes);
    addresses[buffer.argument] = storage[buffer.argument].get();
    std::memset(addresses[buffer.argument], 0, buffer.bytes);
  }
  Context context(plan);
  context.Run(addresses);

  std::vector<MeasuredStep> measured;
  for (size_t i = 0; i < plan->steps.size(); ++i) {
    measured.push_back({plan->steps[i].info, MeasureStep(&context, i, repeat)});
  }
  std::ostringstream os;
  dmlc::JSONWriter writer(&os);
  writer.Write(measured);
  return os.str();
}

}  // namespace dnnl_backend
}  // namespace contrib
}  // namespace runtime
}  // namespace tvm
