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
 * \file apps/run_model/relay.cc
 * \brief Runs a library for the graph or the AOT executor, of relay.build or out of a package of
 *        tvmc.
 */
#include <dlfcn.h>
#include <dlpack/dlpack.h>
#include <tvm/runtime/container/map.h>
#include <tvm/runtime/container/shape_tuple.h>
#include <tvm/runtime/container/string.h>
#include <tvm/runtime/module.h>
#include <tvm/runtime/ndarray.h>
#include <tvm/runtime/packed_func.h>
#include <tvm/runtime/registry.h>

#include <filesystem>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "run_model.h"

namespace run_model {

using tvm::runtime::Downcast;
using tvm::runtime::Map;
using tvm::runtime::Module;
using tvm::runtime::NDArray;
using tvm::runtime::ObjectRef;
using tvm::runtime::PackedFunc;
using tvm::runtime::ShapeTuple;
using tvm::runtime::String;

const char* const kInput = "NAME=FILE";

namespace {

constexpr DLDevice kCPU{kDLCPU, 0};

size_t Bytes(const NDArray& array) {
  const ShapeTuple shape = array.Shape();
  const size_t bytes = (array->dtype.bits * array->dtype.lanes + 7) / 8;
  return std::accumulate(shape.begin(), shape.end(), bytes, std::multiplies<size_t>());
}

PackedFunc Function(Module module, const char* name) {
  const PackedFunc function = module.GetFunction(name);
  if (function == nullptr) Fail(std::string("the executor has no function ") + name);
  return function;
}

/*! \brief Whether a library, which is loaded, has a symbol. */
bool HasSymbol(const std::string& path, const char* name) {
  void* const handle = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  return handle != nullptr && dlsym(handle, name) != nullptr;
}

/*! \brief The executor of a library. */
Module MakeExecutor(const std::string& model) {
  const std::filesystem::path path(model);
  if (path.extension() == ".tar") {
    Fail(model + " is a package: unpack it with tar -xf, and name the mod.so that is in it");
  }
  Module library = Module::LoadFromFile(model);
  const PackedFunc make = library.GetFunction("default");
  if (make != nullptr) return make(kCPU);
  if (HasSymbol(model, "__tvm_ffi__library_bin")) {
    Fail(model +
         " is a library of Relax: configure this sample with TVM_HOME=DIR for the folder "
         "DIR of the package tvm that apache-tvm installs, and run it on that");
  }
  // A package of tvmc has the graph and the weights in files beside its library.
  const std::string graph = std::filesystem::path(path).replace_extension(".json").string();
  const std::string params = std::filesystem::path(path).replace_extension(".params").string();
  if (!std::filesystem::exists(graph) || !std::filesystem::exists(params)) {
    Fail(model +
         " has no executor with the name default, which relay.build makes. Of a package of tvmc "
         "for the graph executor, " +
         graph + " and " + params + " must be there, too. Libraries for the VM do not run here");
  }
  const PackedFunc* const create = tvm::runtime::Registry::Get("tvm.graph_executor.create");
  if (create == nullptr) Fail("this TVM has no graph executor");
  Module executor = (*create)(ReadAll(graph), library, static_cast<int>(kDLCPU), 0);
  const std::string weights = ReadAll(params);
  Function(executor, "load_params")(TVMByteArray{weights.data(), weights.size()});
  return executor;
}

/*! \brief The names of the inputs. Only the graph executor has get_input_info. */
std::vector<std::string> InputNames(Module executor) {
  std::vector<std::string> names;
  const PackedFunc get_info = executor.GetFunction("get_input_info");
  if (get_info != nullptr) {
    const Map<String, ObjectRef> info = get_info();
    for (const auto& [name, shape] : Downcast<Map<String, ShapeTuple>>(info["shape"])) {
      names.push_back(name);
    }
    return names;
  }
  const int count = Function(executor, "get_num_inputs")();
  const PackedFunc get_name = Function(executor, "get_input_name");
  for (int i = 0; i < count; ++i) names.push_back(get_name(i));
  return names;
}

}  // namespace

void Run(const std::string& model, const std::string& folder, const std::vector<Input>& inputs) {
  const Module executor = MakeExecutor(model);
  CheckNames(inputs, InputNames(executor));
  const PackedFunc get_input = Function(executor, "get_input");
  const PackedFunc set_input = Function(executor, "set_input");
  for (const Input& input : inputs) {
    const NDArray own = get_input(input.name);
    NDArray array = NDArray::Empty(own.Shape(), own->dtype, kCPU);
    std::string bytes(Bytes(array), '\0');
    Read(input.value, bytes.data(), bytes.size());
    array.CopyFromBytes(bytes.data(), bytes.size());
    set_input(input.name, array);
  }

  // The first run makes the plans.
  const PackedFunc run = Function(executor, "run");
  run();
  const int outputs = Function(executor, "get_num_outputs")();
  const PackedFunc get_output = Function(executor, "get_output");
  for (int i = 0; i < outputs; ++i) {
    const NDArray output = get_output(i);
    std::string bytes(Bytes(output), '\0');
    output.CopyToBytes(bytes.data(), bytes.size());
    WriteOutput(folder, i, bytes.data(), bytes.size());
  }
  Report(folder, outputs, [&run] { run(); });
}

}  // namespace run_model
