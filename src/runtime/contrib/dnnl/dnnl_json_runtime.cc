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
#include <tvm/runtime/c_backend_api.h>
#include <tvm/runtime/container/shape_tuple.h>
#include <tvm/runtime/ndarray.h>
#include <tvm/runtime/registry.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../json/json_runtime.h"
#include "core/exec/graph_runner.h"
#include "core/exec/threads.h"
#include "core/faults.h"
#include "core/infer.h"
#include "core/kernels/isa.h"
#include "core/library.h"
#include "core/op_table.h"
#include "core/plan/plan_cache.h"
#include "tvm/errors.h"
#include "tvm/json_graph.h"

namespace tvm {
namespace runtime {
namespace contrib {

using tvm::runtime::json::JSONRuntimeBase;

namespace dnnl_backend {

class DNNLJSONRuntime : public JSONRuntimeBase {
 public:
  DNNLJSONRuntime(const std::string& symbol_name, const std::string& graph_json,
                  const Array<String>& const_names)
      : JSONRuntimeBase(symbol_name, graph_json, const_names) {}

  const char* type_key() const final { return "dnnl_json"; }

  void Init(const Array<NDArray>& consts) final {
    // Where TVM was compiled for OpenMP, its kernels are to find the threads of oneDNN. Once is
    // enough for all modules.
    WithTVMErrors([]() {
      [[maybe_unused]] static const bool is_shared =
          ShareThreads(reinterpret_cast<const void*>(&TVMBackendParallelLaunch));
    });
    CheckConstants(consts);
    Graph graph = ReadGraph();
    for (size_t i = 0; i < graph.constants.size(); ++i) Bind(consts[i], &graph.constants[i]);
    WithTVMErrors([&]() { runner_.Init(std::move(graph)); });
  }

  void Run() final { LOG(FATAL) << "a call goes through Invoke"; }

  /*! \brief Safe on any number of threads at once. */
  void Invoke(const TVMArgs& args) final {
    const auto tensor_at = [&args](size_t i) -> const DLTensor* {
      return args[static_cast<int>(i)].operator DLTensor*();
    };
    WithTVMErrors([&]() { runner_.Run(args.size(), tensor_at); });
  }

  PackedFunc GetFunction(const String& name, const ObjectPtr<Object>& sptr_to_self) final {
    if (name == "infer_types") {
      return TypedPackedFunc<Array<String>(Array<ShapeTuple>)>(
          [sptr_to_self, this](const Array<ShapeTuple>& input_shapes) {
            std::vector<std::vector<int64_t>> shapes;
            for (const ShapeTuple& shape : input_shapes)
              shapes.push_back({shape.begin(), shape.end()});
            Array<String> types;
            for (const std::string& type :
                 WithTVMErrors([&]() { return ResultTypes(ReadGraph(), shapes); })) {
              types.push_back(type);
            }
            return types;
          });
    }
    if (name == "get_plan") {
      return TypedPackedFunc<String()>(
          [sptr_to_self, this]() { return WithTVMErrors([&]() { return runner_.Describe(); }); });
    }
    if (name == "set_plan_cache_size") {
      return TypedPackedFunc<void(int)>([sptr_to_self, this](int size) {
        WithTVMErrors([&]() { runner_.SetPlanCacheSize(size); });
      });
    }
    if (name == "holds_own_constants") {
      // The const loader asks: it need not keep those that this module has packed.
      return TypedPackedFunc<bool()>([]() { return true; });
    }
    if (name == "measure_primitives" || name == "profile_primitives") {
      const bool is_alone = name == "measure_primitives";
      return TypedPackedFunc<String(int)>([sptr_to_self, this, name, is_alone](int repeat) {
        return WithTVMErrors([&]() { return runner_.Measure(name.c_str(), repeat, is_alone); });
      });
    }
    return JSONRuntimeBase::GetFunction(name, sptr_to_self);
  }

 private:
  /*! \brief The graph without the data of its constants. */
  Graph ReadGraph() const {
    return GraphOf(symbol_name_,
                   {format_version_, symbol_name_, nodes_, input_nodes_, outputs_, {}},
                   {const_names_.begin(), const_names_.end()});
  }

  /*! \brief Let a constant have the values of an array, which stays TVM's. */
  static void Bind(const NDArray& value, Constant* constant) {
    const Argument& argument = constant->edge.argument;
    ICHECK(value.IsContiguous()) << argument.name << ": the constant is not contiguous";
    // Where the graph leaves its shape open, it is the array's.
    const ShapeTuple shape = value.Shape();
    constant->edge.argument.type = {{shape.begin(), shape.end()}, value->dtype};
    constant->data = std::shared_ptr<void>(AddressOf(*value.operator->()),
                                           [keep = value](void*) mutable { keep = {}; });
  }

  GraphRunner runner_{symbol_name_, WithTVMErrors(DefaultPlanCacheLimits)};
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

TVM_REGISTER_GLOBAL("runtime.contrib.dnnl.has_amx").set_body_typed([]() {
  return dnnl_backend::HasISA(dnnl_backend::ISA::kAMX);
});

TVM_REGISTER_GLOBAL("runtime.contrib.dnnl.prefers").set_body_typed([](DataType dtype) {
  return dnnl_backend::WithTVMErrors([&]() { return dnnl_backend::Prefers(dtype); });
});

TVM_REGISTER_GLOBAL("runtime.contrib.dnnl.set_num_threads").set_body_typed([](int num_threads) {
  dnnl_backend::WithTVMErrors([&]() { dnnl_backend::SetNumThreads(num_threads); });
});

TVM_REGISTER_GLOBAL("runtime.contrib.dnnl.get_num_threads").set_body_typed([]() {
  return dnnl_backend::WithTVMErrors([]() { return dnnl_backend::NumThreads(); });
});

TVM_REGISTER_GLOBAL("runtime.contrib.dnnl.faults").set_body_typed([]() {
  Array<Array<String>> rows;
  for (const dnnl_backend::Fault& fault : dnnl_backend::Faults()) {
    rows.push_back({fault.description, fault.Versions(), fault.workaround, fault.evidence});
  }
  return rows;
});

TVM_REGISTER_GLOBAL("runtime.contrib.dnnl.ops").set_body_typed([]() {
  Array<String> names;
  for (const std::string& name : dnnl_backend::OpNames()) names.push_back(name);
  return names;
});

}  // namespace contrib
}  // namespace runtime
}  // namespace tvm
