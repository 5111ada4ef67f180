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
 * \file src/runtime/extra/contrib/dnnl/tvm/json_runtime.cc
 * \brief The module of tvm-ffi that runs a subgraph with oneDNN. What the ops are, it does not
 * know.
 */
#include <tvm/ffi/cast.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "../../../../contrib/dnnl/core/bytes.h"
#include "../../../../contrib/dnnl/core/exec/graph_runner.h"
#include "../../../../contrib/dnnl/core/infer.h"
#include "../../../../contrib/dnnl/core/plan/reserve.h"
#include "../../../../contrib/dnnl/tvm/json_graph.h"
#include "../../../../contrib/json/json_binary.h"
#include "../../../../contrib/json/json_graph_check.h"
#include "errors.h"
#include "growing_tensors.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*! \brief The graph of a text from a file, which is not trusted, without the data of constants. */
Graph ReadGraph(const std::string& symbol, const std::string& graph_json,
                const std::vector<std::string>& const_names) {
  const json::JSONGraph graph = json::ParseJSONGraph(symbol, graph_json);
  json::CheckJSONGraph(symbol, graph, const_names);
  return GraphOf(symbol, graph, const_names);
}

/*! \brief What a graph appends to its inputs. */
struct Appends {
  /*! \brief The type, and the axis and the number of the input that it begins with, or -1. */
  struct Output {
    DLDataType dtype;
    int axis, input;
  };
  std::vector<Output> outputs;

  Appends() = default;
  /*! \brief Reserve memory for them in a graph. */
  explicit Appends(Graph* graph) {
    const std::vector<int> inputs = ReserveForAppends(graph);
    if (!IsDynamic(*graph)) return;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Argument& output = graph->outputs[i].argument;
      outputs.push_back({output.type.dtype, output.reserved_axis, inputs[i]});
    }
  }
  bool any() const {
    return std::any_of(outputs.begin(), outputs.end(),
                       [](const Output& each) { return each.input >= 0; });
  }
};

class DNNLJSONRuntime : public ffi::ModuleObj {
 public:
  DNNLJSONRuntime(const std::string& symbol, const std::string& graph_json,
                  std::vector<std::string> const_names)
      : symbol_(symbol),
        graph_json_(graph_json),
        const_names_(std::move(const_names)),
        graph_(ReadGraph(symbol_, graph_json_, const_names_)),
        num_inputs_(graph_.inputs.size()),
        runner_(symbol_, WithFFIErrors(DefaultPlanCacheLimits)),
        appender_(symbol_, WithFFIErrors(DefaultPlanCacheLimits)) {}

  const char* kind() const final { return "dnnl_json"; }

  int GetPropertyMask() const final {
    return ffi::Module::kBinarySerializable | ffi::Module::kRunnable;
  }

  ffi::Optional<ffi::Function> GetFunction(const ffi::String& asked) final {
    const std::string name = asked;
    // Keeps the module alive.
    const ffi::ObjectRef self = ffi::GetRef<ffi::ObjectRef>(this);
    if (name == symbol_) {
      return ffi::Function([self, this](ffi::PackedArgs args, ffi::Any* result) {
        EnsureInitialised();
        if (IsAppend(args)) {
          *result = Append(args);
        } else {
          Invoke(args);
        }
      });
    }
    if (name == "__init_" + symbol_) {
      return ffi::Function::FromTyped([self, this](const ffi::Array<ffi::Tensor>& constants) {
        Init(constants);
        return 0;
      });
    }
    if (name == "get_symbol") {
      return ffi::Function::FromTyped([self, this]() { return ffi::String(symbol_); });
    }
    if (name == "get_const_vars") {
      return ffi::Function::FromTyped([self, this]() {
        ffi::Array<ffi::String> names;
        for (const std::string& name : const_names_) names.push_back(name);
        return names;
      });
    }
    if (name == "appends") {
      return ffi::Function::FromTyped([self, this]() {
        return WithFFIErrors([&]() {
          Graph graph = ReadGraph(symbol_, graph_json_, const_names_);
          ffi::Array<int64_t> inputs;
          for (const Appends::Output& each : Appends(&graph).outputs) inputs.push_back(each.input);
          return inputs;
        });
      });
    }
    if (name == "holds_own_constants") {
      return ffi::Function::FromTyped([self]() { return true; });
    }
    if (name == "infer_types") {
      return ffi::Function::FromTyped([self, this](const ffi::Array<ffi::Shape>& input_shapes) {
        std::vector<std::vector<int64_t>> shapes;
        for (const ffi::Shape& shape : input_shapes) shapes.push_back({shape.begin(), shape.end()});
        const Graph graph = ReadGraph(symbol_, graph_json_, const_names_);
        ffi::Array<ffi::String> types;
        for (const std::string& type :
             WithFFIErrors([&]() { return ResultTypes(graph, shapes); })) {
          types.push_back(type);
        }
        return types;
      });
    }
    if (name == "get_plan") {
      return ffi::Function::FromTyped([self, this]() {
        return ffi::String(WithFFIErrors([&]() { return Runner()->Describe(); }));
      });
    }
    if (name == "set_plan_cache_size") {
      return ffi::Function::FromTyped(
          [self, this](int size) { WithFFIErrors([&]() { Runner()->SetPlanCacheSize(size); }); });
    }
    if (name == "measure_primitives" || name == "profile_primitives") {
      return ffi::Function::FromTyped([self, this, name](int repeat) {
        const bool is_alone = name == "measure_primitives";
        return ffi::String(
            WithFFIErrors([&]() { return Runner()->Measure(name.c_str(), repeat, is_alone); }));
      });
    }
    return std::nullopt;
  }

  /*! \brief The graph, for format "json" or none. */
  ffi::String InspectSource(const ffi::String& format) const final {
    return format.empty() || format == "json" ? graph_json_ : "";
  }

  ffi::Bytes SaveToBytes() const final {
    BytesWriter writer;
    json::WriteBinary(&writer, symbol_, graph_json_, const_names_);
    return ffi::Bytes(writer.bytes());
  }

 private:
  /*! \brief Make the plan, once. What failed may be tried again. */
  void Init(const ffi::Array<ffi::Tensor>& constants) {
    std::lock_guard<std::mutex> lock(init_mutex_);
    if (initialised_) return;
    TVM_FFI_ICHECK_EQ(constants.size(), graph_.constants.size())
        << json::Printable(symbol_) << " has " << graph_.constants.size() << " constants, but "
        << constants.size() << " were passed";
    Graph graph = graph_;
    for (size_t i = 0; i < constants.size(); ++i) Bind(constants[i], &graph.constants[i]);
    WithFFIErrors([&]() {
      Graph reserved = graph;
      appends_ = Appends(&reserved);
      if (appends_.any()) appender_.Init(std::move(reserved));
      runner_.Init(std::move(graph));
    });
    graph_ = Graph();
    initialised_ = true;
  }

  /*! \brief Let a constant have the values of a tensor, which stays TVM's. */
  void Bind(const ffi::Tensor& value, Constant* constant) const {
    Argument& argument = constant->edge.argument;
    WithFFIErrors([&]() { CheckTensor(value.GetDLTensorPtr(), argument, symbol_); });
    // Where the graph leaves its shape open, it is the tensor's.
    argument.type.shape.assign(value.shape().begin(), value.shape().end());
    constant->data = std::shared_ptr<void>(AddressOf(*value.GetDLTensorPtr()),
                                           [keep = value](void*) mutable { keep = {}; });
  }

  void EnsureInitialised() {
    if (initialised_) return;
    TVM_FFI_ICHECK(const_names_.empty())
        << json::Printable(symbol_) << " has " << const_names_.size()
        << " constants and was not initialised: "
        << "call __init_" << json::Printable(symbol_) << " with them first";
    Init({});
  }

  /*! \brief Whether a call passes the shapes of the results, not tensors to write these to. */
  bool IsAppend(const ffi::PackedArgs& args) const {
    const auto is_shape = [&args](size_t i) {
      return args[static_cast<int>(i)].type_index() == ffi::TypeIndex::kTVMFFIShape;
    };
    const size_t size = args.size(), num_outputs = appends_.outputs.size();
    if (!appends_.any() || size < num_inputs_ + num_outputs) return false;
    for (size_t i = size - num_outputs; i < size; ++i) {
      if (!is_shape(i)) return false;
    }
    return true;
  }

  /*!
   * \brief Run the graph, and return its results. Where it appends to an input, the result is in
   *        the memory of that, if possible.
   */
  ffi::Any Append(const ffi::PackedArgs& args) {
    is_appending_ = true;
    const auto num_outputs = appends_.outputs.size();
    std::vector<ffi::Tensor> tensors;
    for (int i = 0; tensors.size() < num_inputs_ && i < args.size(); ++i) {
      if (auto tensor = args[i].try_cast<ffi::Tensor>()) tensors.push_back(*tensor);
    }
    TVM_FFI_ICHECK_EQ(tensors.size(), num_inputs_)
        << json::Printable(symbol_) << " has " << num_inputs_ << " inputs";
    for (size_t i = 0; i < num_outputs; ++i) {
      const auto shape = args[static_cast<int>(args.size() - num_outputs + i)].cast<ffi::Shape>();
      const auto& [dtype, axis, input] = appends_.outputs[i];
      if (input < 0) {
        tensors.push_back(NewTensor(shape, dtype, axis));
      } else {
        Reserve(axis, &tensors[input]);
        tensors.push_back(Longer(tensors[input], shape, axis));
      }
    }
    WithFFIErrors([&]() {
      appender_.Run(tensors.size(), [&](size_t i) { return tensors[i].GetDLTensorPtr(); });
    });
    const ffi::Array<ffi::Tensor> results(tensors.begin() + num_inputs_, tensors.end());
    return num_outputs == 1 ? ffi::Any(results[0]) : ffi::Any(results);
  }

  /*! \brief The runner of the latest calls. */
  const GraphRunner* Runner() const { return is_appending_ ? &appender_ : &runner_; }
  GraphRunner* Runner() { return is_appending_ ? &appender_ : &runner_; }

  /*! \brief Safe on any number of threads at once. */
  void Invoke(const ffi::PackedArgs& args) {
    // TVM passes symbols that are the size of no input in a shape.
    const int size = args.size();
    int shape = 0;
    while (shape < size && args[shape].type_index() != ffi::TypeIndex::kTVMFFIShape) ++shape;
    const auto tensor_at = [&args, shape](size_t i) -> const DLTensor* {
      const int position = static_cast<int>(i);
      return args[position + (position >= shape)].try_cast<DLTensor*>().value_or(nullptr);
    };
    WithFFIErrors([&]() { runner_.Run(size - (shape < size), tensor_at); });
  }

  const std::string symbol_;
  const std::string graph_json_;
  const std::vector<std::string> const_names_;
  /*! \brief The graph, until Init. */
  Graph graph_;
  const size_t num_inputs_;
  Appends appends_;
  /*! \brief Run the graph with dense tensors, and with tensors that have room for what it appends.
   */
  GraphRunner runner_, appender_;
  std::atomic<bool> is_appending_{false};
  std::mutex init_mutex_;
  std::atomic<bool> initialised_{false};
};

ffi::Module Create(const ffi::String& symbol, const ffi::String& graph_json,
                   const ffi::Array<ffi::String>& const_names) {
  return ffi::Module(ffi::make_object<DNNLJSONRuntime>(
      symbol, graph_json, std::vector<std::string>(const_names.begin(), const_names.end())));
}

ffi::Module LoadFromBytes(const ffi::Bytes& bytes) {
  BytesReader reader({bytes.data(), bytes.size()});
  json::JSONModuleBinary binary = json::ReadBinary(&reader);
  return ffi::Module(ffi::make_object<DNNLJSONRuntime>(binary.symbol, binary.graph_json,
                                                       std::move(binary.const_names)));
}

TVM_FFI_STATIC_INIT_BLOCK() {
  ffi::reflection::GlobalDef()
      .def("runtime.DNNLJSONRuntimeCreate", Create)
      .def("ffi.Module.load_from_bytes.dnnl_json", LoadFromBytes);
}

}  // namespace tvm::runtime::contrib::dnnl_backend
