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
 * \file src/runtime/contrib/dnnl/dnnl_json_runtime.cc
 * \brief The module that runs a subgraph with oneDNN. What the ops are, it does not know.
 */
#include <tvm/runtime/ndarray.h>
#include <tvm/runtime/registry.h>

#include <memory>
#include <string>
#include <vector>

#include "../json/json_node.h"
#include "../json/json_runtime.h"
#include "core/exec/fork.h"
#include "core/exec/profile.h"
#include "core/exec/recorder.h"
#include "core/node_reader.h"
#include "core/op_table.h"
#include "core/plan/plan.h"
#include "core/plan/plan_builder.h"
#include "tvm/named_composites.h"

namespace tvm {
namespace runtime {
namespace contrib {

using tvm::runtime::json::JSONGraphNodeEntry;
using tvm::runtime::json::JSONRuntimeBase;

namespace dnnl_backend {

/*! \brief Whether the tensor is dense and row-major. */
bool IsCompact(const DLTensor& tensor) {
  if (tensor.strides == nullptr) return true;
  int64_t expected = 1;
  for (int i = tensor.ndim - 1; i >= 0; --i) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != expected) return false;
    expected *= tensor.shape[i];
  }
  return true;
}

bool HasShape(const DLTensor& tensor, const std::vector<int64_t>& shape) {
  return static_cast<size_t>(tensor.ndim) == shape.size() &&
         std::equal(shape.begin(), shape.end(), tensor.shape);
}

class DNNLJSONRuntime : public JSONRuntimeBase {
 public:
  DNNLJSONRuntime(const std::string& symbol_name, const std::string& graph_json,
                  const Array<String>& const_names)
      : JSONRuntimeBase(symbol_name, graph_json, const_names) {}

  const char* type_key() const final { return "dnnl_json"; }

  void Init(const Array<NDArray>& consts) final {
    CheckLibraryVersion();
    CheckConstants(consts);
    plan_ = CallWithOpenMP([&]() { return MakePlan(consts); });
    contexts_ = std::make_unique<ContextPool>(plan_);
  }

  void Run() final { LOG(FATAL) << "a call goes through Invoke"; }

  /*! \brief Safe on any number of threads at once: each run has a context of its own. */
  void Invoke(const TVMArgs& args) final {
    std::unique_ptr<Context> context = contexts_->Take();
    std::vector<void*>* addresses = context->addresses();
    ICHECK_EQ(args.size(), addresses->size())
        << symbol_name_ << ": " << addresses->size() << " inputs and outputs are expected, but "
        << args.size() << " were passed";
    for (int i = 0; i < args.size(); ++i) (*addresses)[i] = Address(args[i], i);
    Recorder* recorder = Recorder::OfThread();
    CallWithOpenMP([&]() { context->Run(*addresses, recorder); });
    contexts_->Return(std::move(context));
  }

  PackedFunc GetFunction(const String& name, const ObjectPtr<Object>& sptr_to_self) final {
    if (name == "get_plan") {
      return TypedPackedFunc<String()>([sptr_to_self, this]() {
        CheckInitialised("get_plan");
        return DescribePlan(symbol_name_, *plan_);
      });
    }
    if (name == "holds_own_constants") {
      // The const loader asks: it need not keep those that this module has packed.
      return TypedPackedFunc<bool()>([]() { return true; });
    }
    if (name == "measure_primitives" || name == "profile_primitives") {
      const bool is_alone = name == "measure_primitives";
      return TypedPackedFunc<String(int)>([sptr_to_self, this, name, is_alone](int repeat) {
        CheckInitialised(name.c_str());
        return CallWithOpenMP([&]() { return MeasurePrimitives(plan_, repeat, is_alone); });
      });
    }
    return JSONRuntimeBase::GetFunction(name, sptr_to_self);
  }

 private:
  std::shared_ptr<const Plan> MakePlan(const Array<NDArray>& consts) {
    PlanBuilder builder(symbol_name_, /*owns_constants=*/true, NumThreadsOfModel());
    for (uint32_t eid : input_var_eid_) AddInput(eid, &builder);
    for (size_t i = 0; i < const_idx_.size(); ++i) {
      const uint32_t id = const_idx_[i];
      builder.AddConstant({id, 0, 0}, consts[i], symbol_name_ + ": " + nodes_[id].GetOpName());
    }
    for (size_t id = 0; id < nodes_.size(); ++id) {
      if (nodes_[id].GetOpType() != "kernel") continue;
      AddPostOpsByName(&nodes_, id);
      LowerNode(NodeReader(nodes_[id], id, symbol_name_), &builder);
    }
    for (size_t i = 0; i < outputs_.size(); ++i) {
      builder.AddOutput(outputs_[i], DescribeArgument(outputs_[i], "output " + std::to_string(i)));
    }
    return builder.Finish();
  }

  Argument DescribeArgument(const JSONGraphNodeEntry& entry, const std::string& name) const {
    const auto& node = nodes_[entry.id_];
    return Argument{name, node.GetOpShape()[entry.index_], node.GetOpDataType()[entry.index_]};
  }

  /*! \brief Add the input variable whose entry id is `eid`. */
  void AddInput(uint32_t eid, PlanBuilder* builder) const {
    for (uint32_t id : input_nodes_) {
      const uint32_t first = EntryID(id, 0);
      if (eid < first || eid >= first + nodes_[id].GetNumOutput()) continue;
      const JSONGraphNodeEntry entry(id, eid - first, 0);
      builder->AddInput(entry, DescribeArgument(entry, "input " + nodes_[id].GetOpName()));
    }
  }

  /*! \brief How many threads the model was compiled for: all of its kernels say the same. */
  int NumThreadsOfModel() const {
    for (size_t id = 0; id < nodes_.size(); ++id) {
      if (nodes_[id].GetOpType() != "kernel") continue;
      return NodeReader(nodes_[id], id, symbol_name_).NumThreads();
    }
    return 0;
  }

  void CheckInitialised(const char* name) const {
    ICHECK(plan_ != nullptr) << symbol_name_ << ": " << name
                             << " is there after the first run or __init_" << symbol_name_;
  }

  /*! \brief The address of the i-th tensor of a call, once it is known to be what was planned. */
  void* Address(const TVMArgValue& value, int i) const {
    const Argument& expected = plan_->arguments[i];
    const DLTensor* tensor = value.operator DLTensor*();
    ICHECK(tensor != nullptr && tensor->data != nullptr)
        << symbol_name_ << ": " << expected.name << " is null";
    ICHECK(HasShape(*tensor, expected.shape) && TypeEqual(tensor->dtype, expected.dtype))
        << symbol_name_ << ": " << expected.name << " must be " << DLDataType2String(expected.dtype)
        << " " << ToText(expected.shape) << ", but is " << DLDataType2String(tensor->dtype) << " "
        << ToText(Dims(tensor->shape, tensor->shape + tensor->ndim));
    ICHECK(IsCompact(*tensor)) << symbol_name_ << ": " << expected.name
                               << " has strides that are not those of a row-major tensor";
    ICHECK(tensor->device.device_type == kDLCPU)
        << symbol_name_ << ": " << expected.name << " must be on the CPU";
    return static_cast<char*>(tensor->data) + tensor->byte_offset;
  }

  std::shared_ptr<const Plan> plan_;
  std::unique_ptr<ContextPool> contexts_;
};

}  // namespace dnnl_backend

Module DNNLJSONRuntimeCreate(String symbol_name, String graph_json,
                             const Array<String>& const_names) {
  return Module(make_object<dnnl_backend::DNNLJSONRuntime>(symbol_name, graph_json, const_names));
}

TVM_REGISTER_GLOBAL("runtime.DNNLJSONRuntimeCreate").set_body_typed(DNNLJSONRuntimeCreate);

TVM_REGISTER_GLOBAL("runtime.module.loadbinary_dnnl_json")
    .set_body_typed(JSONRuntimeBase::LoadFromBinary<dnnl_backend::DNNLJSONRuntime>);

TVM_REGISTER_GLOBAL("runtime.contrib.dnnl.version").set_body_typed([]() -> String {
  return dnnl_backend::LibraryVersion();
});

TVM_REGISTER_GLOBAL("runtime.contrib.dnnl.computes").set_body_typed([](DataType dtype) {
  return dnnl_backend::Computes(dtype);
});

TVM_REGISTER_GLOBAL("runtime.contrib.dnnl.ops").set_body_typed([]() {
  Array<String> names;
  for (const std::string& name : dnnl_backend::OpNames()) names.push_back(name);
  return names;
});

}  // namespace contrib
}  // namespace runtime
}  // namespace tvm
