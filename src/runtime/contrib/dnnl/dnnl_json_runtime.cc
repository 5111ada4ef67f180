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

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../json/json_node.h"
#include "../json/json_runtime.h"
#include "core/exec/fork.h"
#include "core/exec/profile.h"
#include "core/exec/recorder.h"
#include "core/exec/threads.h"
#include "core/infer.h"
#include "core/library.h"
#include "core/lowering.h"
#include "core/op_table.h"
#include "core/plan/plan_cache.h"
#include "tvm/errors.h"
#include "tvm/json_graph.h"

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

/*! \brief Whether the tensor has a shape, in which open dimensions stand for any size. */
bool HasShape(const DLTensor& tensor, const std::vector<int64_t>& shape) {
  return static_cast<size_t>(tensor.ndim) == shape.size() &&
         (tensor.shape != nullptr || shape.empty()) &&
         std::equal(shape.begin(), shape.end(), tensor.shape,
                    [](int64_t said, int64_t size) { return said == size || said == kOpen; });
}

/*! \brief "float32 [1, 2]", whatever the tensor says of itself. */
std::string ToText(const DLTensor& tensor) {
  const std::string type = ToText(tensor.dtype);
  const auto max_rank = static_cast<int>(json::JSONGraphLimits::kRank);
  if (tensor.ndim < 0 || tensor.ndim > max_rank || (tensor.shape == nullptr && tensor.ndim > 0)) {
    return type + " of rank " + std::to_string(tensor.ndim);
  }
  return type + " " + ToText(Dims(tensor.shape, tensor.shape + tensor.ndim));
}

/*! \brief "float32 [?, 2]", the question mark for an open dimension. */
std::string ToText(const Argument& argument) {
  std::string text;
  for (int64_t dim : argument.type.shape) {
    text += (text.empty() ? "" : ", ") + (dim == kOpen ? "?" : std::to_string(dim));
  }
  return ToText(argument.type.dtype) + " [" + text + "]";
}

/*! \brief What to do about an input of another size; nothing about other mistakes. */
const char* Remedy(const DLTensor& tensor, const Argument& expected) {
  const bool is_size = expected.name.rfind("input ", 0) == 0 && tensor.shape != nullptr &&
                       static_cast<size_t>(tensor.ndim) == expected.type.shape.size() &&
                       TypeEqual(tensor.dtype, expected.type.dtype);
  return is_size ? "; compile the model for this shape, or with open dimensions" : "";
}

class DNNLJSONRuntime : public JSONRuntimeBase {
 public:
  DNNLJSONRuntime(const std::string& symbol_name, const std::string& graph_json,
                  const Array<String>& const_names)
      : JSONRuntimeBase(symbol_name, graph_json, const_names) {}

  const char* type_key() const final { return "dnnl_json"; }

  void Init(const Array<NDArray>& consts) final {
    CheckConstants(consts);
    Graph graph = MakeGraph(consts);
    WithTVMErrors([&]() {
      if (IsDynamic(graph)) {
        CheckOps(graph);
        graph_ = std::move(graph);
        return;
      }
      only_plan_ = std::make_shared<ReadyPlan>(CallWithOpenMP([&]() { return MakePlan(graph); }));
    });
  }

  void Run() final { LOG(FATAL) << "a call goes through Invoke"; }

  /*! \brief Safe on any number of threads at once: each run has a context of its own. */
  void Invoke(const TVMArgs& args) final {
    const size_t expected = input_var_eid_.size() + outputs_.size();
    ICHECK_EQ(static_cast<size_t>(args.size()), expected)
        << symbol_name_ << ": " << expected << " inputs and outputs are expected, but "
        << args.size() << " were passed";
    std::shared_ptr<ReadyPlan> of_shape;
    if (only_plan_ == nullptr) of_shape = PlanOf(args);
    ReadyPlan* ready = only_plan_ == nullptr ? of_shape.get() : only_plan_.get();
    std::unique_ptr<Context> context = ready->contexts.Take();
    std::vector<void*>* addresses = context->addresses();
    for (int i = 0; i < args.size(); ++i) {
      const DLTensor& tensor = TensorOf(args[i], ready->plan->arguments[i]);
      (*addresses)[i] = static_cast<char*>(tensor.data) + tensor.byte_offset;
    }
    Recorder* recorder = Recorder::OfThread();
    WithTVMErrors([&]() { CallWithOpenMP([&]() { context->Run(*addresses, recorder); }); });
    ready->contexts.Return(std::move(context));
  }

  PackedFunc GetFunction(const String& name, const ObjectPtr<Object>& sptr_to_self) final {
    if (name == "get_plan") {
      return TypedPackedFunc<String()>([sptr_to_self, this]() {
        CheckInitialised("get_plan");
        return only_plan_ != nullptr ? DescribePlan(symbol_name_, *only_plan_->plan)
                                     : DescribePlans(graph_, plans_);
      });
    }
    if (name == "set_plan_cache_size") {
      return TypedPackedFunc<void(int)>([sptr_to_self, this](int size) {
        ICHECK(size >= 1 && size <= kMaxPlanCacheSize)
            << symbol_name_ << ": set_plan_cache_size: the number of plans must be from 1 to "
            << kMaxPlanCacheSize << ", but is " << size;
        plans_.SetCapacity(size);
      });
    }
    if (name == "holds_own_constants") {
      // The const loader asks: it need not keep those that this module has packed.
      return TypedPackedFunc<bool()>([]() { return true; });
    }
    if (name == "measure_primitives" || name == "profile_primitives") {
      const bool is_alone = name == "measure_primitives";
      return TypedPackedFunc<String(int)>([sptr_to_self, this, name, is_alone](int repeat) {
        const std::shared_ptr<const Plan> plan = LatestPlan(name.c_str());
        return WithTVMErrors([&]() {
          return CallWithOpenMP([&]() { return MeasurePrimitives(plan, repeat, is_alone); });
        });
      });
    }
    return JSONRuntimeBase::GetFunction(name, sptr_to_self);
  }

 private:
  /*! \brief The graph as the core reads it. */
  Graph MakeGraph(const Array<NDArray>& consts) const {
    Graph graph;
    graph.symbol = graph.name = symbol_name_;
    for (uint32_t eid : input_var_eid_) graph.inputs.push_back(InputOf(eid));
    for (size_t i = 0; i < const_idx_.size(); ++i) {
      graph.constants.push_back(ConstantOf(const_idx_[i], consts[i]));
    }
    for (uint32_t id = 0; id < nodes_.size(); ++id) {
      if (!nodes_[id].IsLeaf()) graph.nodes.push_back(NodeOf(nodes_, id));
    }
    for (size_t i = 0; i < outputs_.size(); ++i) {
      graph.outputs.push_back(EdgeOf(outputs_[i], "output " + std::to_string(i)));
    }
    return graph;
  }

  Edge EdgeOf(const JSONGraphNodeEntry& entry, const std::string& name) const {
    return {{entry.id_, entry.index_}, {name, OutputTypes(nodes_[entry.id_])[entry.index_]}};
  }

  /*! \brief The input variable whose entry id is `eid`. */
  Edge InputOf(uint32_t eid) const {
    const auto next = std::upper_bound(node_row_ptr_.begin(), node_row_ptr_.end(), eid);
    const auto id = static_cast<uint32_t>(next - node_row_ptr_.begin() - 1);
    return EdgeOf({id, eid - node_row_ptr_[id]}, "input " + nodes_[id].GetOpName());
  }

  Constant ConstantOf(uint32_t id, const NDArray& value) const {
    const std::string name = symbol_name_ + ": " + nodes_[id].GetOpName();
    ICHECK(value.IsContiguous()) << name << ": the constant is not contiguous";
    const ShapeTuple shape = value.Shape();
    void* data = static_cast<char*>(value->data) + value->byte_offset;
    // The array stays TVM's.
    return {{{id, 0}, {name, {{shape.begin(), shape.end()}, value->dtype}}},
            std::shared_ptr<void>(data, [keep = value](void*) {})};
  }

  void CheckInitialised(const char* name) const {
    // Not the plan, which another thread may be about to make.
    ICHECK(initialized_) << symbol_name_ << ": " << name
                         << " is there after the first run or __init_" << symbol_name_;
  }

  /*! \brief The plan, or that of the shape that was called last. */
  std::shared_ptr<const Plan> LatestPlan(const char* name) const {
    CheckInitialised(name);
    if (only_plan_ != nullptr) return only_plan_->plan;
    const auto plans = plans_.values();
    ICHECK(!plans.empty()) << symbol_name_ << ": " << name << " tells of the shape that was called "
                           << "last, and there is a plan of none";
    return plans.front()->plan;
  }

  /*! \brief The plan of a call of a graph with open dimensions. */
  std::shared_ptr<ReadyPlan> PlanOf(const TVMArgs& args) {
    // Kept, so that a shape that is known allocates nothing.
    static thread_local std::vector<int64_t> dims_of_thread;
    std::vector<int64_t>& open_dims = dims_of_thread;
    open_dims.clear();
    for (size_t i = 0; i < graph_.inputs.size(); ++i) {
      const Argument& input = graph_.inputs[i].argument;
      const DLTensor& tensor = TensorOf(args[static_cast<int>(i)], input);
      for (size_t j = 0; j < input.type.shape.size(); ++j) {
        if (input.type.shape[j] == kOpen) open_dims.push_back(tensor.shape[j]);
      }
    }
    return WithTVMErrors([&]() {
      return plans_.Get(open_dims, [&]() {
        return std::make_shared<ReadyPlan>(
            CallWithOpenMP([&]() { return MakePlanFor(graph_, open_dims); }));
      });
    });
  }

  /*! \brief A tensor of a call, once it is known to be what is expected. */
  const DLTensor& TensorOf(const TVMArgValue& value, const Argument& expected) const {
    const DLTensor* tensor = value.operator DLTensor*();
    ICHECK(tensor != nullptr && tensor->data != nullptr)
        << symbol_name_ << ": " << expected.name << " is null";
    ICHECK(HasShape(*tensor, expected.type.shape) && TypeEqual(tensor->dtype, expected.type.dtype))
        << symbol_name_ << ": " << expected.name << " must be " << ToText(expected) << ", but is "
        << ToText(*tensor) << Remedy(*tensor, expected);
    ICHECK(IsCompact(*tensor)) << symbol_name_ << ": " << expected.name
                               << " has strides that are not those of a row-major tensor";
    ICHECK(tensor->device.device_type == kDLCPU)
        << symbol_name_ << ": " << expected.name << " must be on the CPU";
    return *tensor;
  }

  /*! \brief The plan of a graph without open dimensions, else null. */
  std::shared_ptr<ReadyPlan> only_plan_;
  /*! \brief The graph where it has open dimensions, with its constants. */
  Graph graph_;
  PlanCache plans_{static_cast<size_t>(WithTVMErrors(DefaultPlanCacheSize))};
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
  return dnnl_backend::WithTVMErrors([&]() { return dnnl_backend::Computes(dtype); });
});

TVM_REGISTER_GLOBAL("runtime.contrib.dnnl.multiplies_bfloat16").set_body_typed([]() {
  return dnnl_backend::MultipliesBfloat16();
});

TVM_REGISTER_GLOBAL("runtime.contrib.dnnl.set_num_threads").set_body_typed([](int num_threads) {
  dnnl_backend::WithTVMErrors([&]() { dnnl_backend::SetNumThreads(num_threads); });
});

TVM_REGISTER_GLOBAL("runtime.contrib.dnnl.get_num_threads").set_body_typed([]() {
  return dnnl_backend::WithTVMErrors([]() { return dnnl_backend::NumThreads(); });
});

TVM_REGISTER_GLOBAL("runtime.contrib.dnnl.ops").set_body_typed([]() {
  Array<String> names;
  for (const std::string& name : dnnl_backend::OpNames()) names.push_back(name);
  return names;
});

}  // namespace contrib
}  // namespace runtime
}  // namespace tvm
