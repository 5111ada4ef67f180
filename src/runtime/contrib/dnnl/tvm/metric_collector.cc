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
 * \file src/runtime/contrib/dnnl/tvm/metric_collector.cc
 * \brief Shows TVM's profiler the primitives in a partition.
 *
 * TVM's profiler has one row for a call of a partition. The collector adds what the primitives of
 * that call took, and has a report of its own with one row for each of them.
 */
#include <tvm/runtime/profiling.h>
#include <tvm/runtime/registry.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../core/desc.h"
#include "../core/exec/recorder.h"
#include "../core/library.h"
#include "../core/onednn.h"

namespace tvm {
namespace runtime {
namespace contrib {
namespace dnnl_backend {

namespace {

using Metrics = Map<String, ObjectRef>;
using profiling::CountNode;
using profiling::DurationNode;
using profiling::PercentNode;

ObjectRef Count(int64_t count) { return ObjectRef(make_object<CountNode>(count)); }
ObjectRef Duration(double us) { return ObjectRef(make_object<DurationNode>(us)); }
ObjectRef Percent(double part, double total) {
  return ObjectRef(make_object<PercentNode>(total > 0 ? 100 * part / total : 0));
}

/*! \brief GFLOP/s as text: TVM prints a ratio with two digits, and adds up counts. */
String Rate(double flops, double microseconds) {
  if (flops <= 0 || microseconds <= 0) return String("");
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f", flops / microseconds / 1e3);
  return String(text);
}

/*! \brief "tvmgen_default_dnnl_main_0, node 3 nn.conv2d: reorder". */
std::string NameOf(const RecordedStep& recorded) {
  const StepInfo& info = recorded.step().info;
  std::string name = recorded.caller.empty() ? info.node : recorded.caller;
  if (name.find(info.op) == std::string::npos) name += ": " + info.op;
  return name;
}

/*! \brief Types and shapes of what a primitive reads and writes, in oneDNN's words. */
std::string ShapesOf(const RecordedStep& recorded) {
  std::string text;
  for (const auto& [arg, tensor] : recorded.step().args) {
    if (arg == DNNL_ARG_SCRATCHPAD) continue;
    const dnnl::memory::desc& md = recorded.plan->tensors[tensor].md;
    text += (text.empty() ? "" : ", ") +
            std::string(dnnl_dt2str(dnnl::memory::convert_to_c(md.get_data_type()))) +
            ToText(md.get_dims());
  }
  return text;
}

std::string Join(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

/*! \brief The row of a primitive. TVM wants Name, Duration (us) and Device of every row. */
Metrics RowOf(const RecordedStep& recorded, double total) {
  const StepInfo& info = recorded.step().info;
  Metrics row;
  row.Set("Name", String(NameOf(recorded)));
  row.Set("Duration (us)", Duration(recorded.microseconds));
  row.Set("Percent", Percent(recorded.microseconds, total));
  row.Set("Device", String("cpu0"));
  row.Set("Count", Count(1));
  row.Set("Argument Shapes", String(ShapesOf(recorded)));
  row.Set("Primitive", String(info.kind));
  row.Set("Implementation", String(info.impl));
  row.Set("Layouts", String(info.src_layout + " > " + info.dst_layout));
  row.Set("Post-ops", String(Join(info.post_ops)));
  row.Set("GFLOP/s", Rate(info.flops, recorded.microseconds));
  row.Set("Threads", String(std::to_string(info.num_threads)));
  row.Set("Reference", String(IsReference(info) ? "yes" : ""));
  return row;
}

/*! \brief The sums over the primitives of one call; nothing where there were none. */
Metrics Summary(const std::vector<RecordedStep>& steps) {
  if (steps.empty()) return {};
  double microseconds = 0, flops = 0;
  int64_t references = 0;
  for (const RecordedStep& recorded : steps) {
    microseconds += recorded.microseconds;
    flops += recorded.step().info.flops;
    references += IsReference(recorded.step().info);
  }
  const RecordedStep& slowest = *std::max_element(
      steps.begin(), steps.end(),
      [](const auto& a, const auto& b) { return a.microseconds < b.microseconds; });
  Metrics metrics;
  metrics.Set("oneDNN Primitives", Count(static_cast<int64_t>(steps.size())));
  metrics.Set("oneDNN Duration (us)", Duration(microseconds));
  metrics.Set("oneDNN GFLOP/s", Rate(flops, microseconds));
  metrics.Set("oneDNN Reference", Count(references));
  metrics.Set("oneDNN Slowest", String(NameOf(slowest) + ", " + slowest.step().info.impl));
  return metrics;
}

/*! \brief One call that is being profiled. */
class CallNode : public Object {
 public:
  explicit CallNode(const std::shared_ptr<Recorder>& recorder)
      : watch(recorder), first(recorder->size()), start(std::chrono::steady_clock::now()) {}

  Recorder::Watch watch;
  /*! \brief How many primitives there were before. */
  const size_t first;
  const std::chrono::steady_clock::time_point start;

  static constexpr const char* _type_key = "runtime.profiling.DNNLCall";
  TVM_DECLARE_FINAL_OBJECT_INFO(CallNode, Object);
};

/*! \brief Collects the primitives that run while TVM's profiler does. One profile at a time. */
class DNNLMetricCollectorNode : public profiling::MetricCollectorNode {
 public:
  void Init(Array<profiling::DeviceWrapper>) final {
    recorder_->Clear();
    total_ = 0;
  }

  ObjectRef Start(Device dev) final {
    if (dev.device_type != kDLCPU) return ObjectRef(nullptr);
    return ObjectRef(make_object<CallNode>(recorder_));
  }

  Map<String, ObjectRef> Stop(ObjectRef call) final {
    const auto* node = call.as<CallNode>();
    ICHECK(node != nullptr) << "DNNLMetricCollector: Stop got " << call->GetTypeKey();
    const std::chrono::duration<double, std::micro> time =
        std::chrono::steady_clock::now() - node->start;
    // Calls are nested, so the last one to stop is that of the whole run.
    total_ = time.count();
    return Summary(recorder_->Since(node->first));
  }

  /*! \brief A row for each primitive of the latest profile, in the order in which they ran. */
  profiling::Report Report() const {
    const std::vector<RecordedStep> steps = recorder_->Since(0);
    auto report = make_object<profiling::ReportNode>();
    for (const RecordedStep& recorded : steps) report->calls.push_back(RowOf(recorded, total_));
    const Metrics totals = {{"Duration (us)", Duration(total_)}, {"Device", String("cpu0")}};
    report->device_metrics.Set("cpu0", totals);
    report->configuration.Set("oneDNN", String(LibraryVersion()));
    return profiling::Report(ObjectPtr<Object>(std::move(report)));
  }

  static constexpr const char* _type_key = "runtime.profiling.DNNLMetricCollector";
  TVM_DECLARE_FINAL_OBJECT_INFO(DNNLMetricCollectorNode, profiling::MetricCollectorNode);

 private:
  std::shared_ptr<Recorder> recorder_ = std::make_shared<Recorder>();
  double total_{0};
};

TVM_REGISTER_OBJECT_TYPE(CallNode);
TVM_REGISTER_OBJECT_TYPE(DNNLMetricCollectorNode);

}  // namespace

TVM_REGISTER_GLOBAL("runtime.profiling.DNNLMetricCollector").set_body_typed([]() {
  return profiling::MetricCollector(make_object<DNNLMetricCollectorNode>());
});

TVM_REGISTER_GLOBAL("runtime.profiling.DNNLReport")
    .set_body_typed([](profiling::MetricCollector collector) {
      const auto* node = collector.as<DNNLMetricCollectorNode>();
      ICHECK(node != nullptr) << "DNNLReport expects a DNNLMetricCollector, but got "
                              << collector->GetTypeKey();
      return node->Report();
    });

}  // namespace dnnl_backend
}  // namespace contrib
}  // namespace runtime
}  // namespace tvm
