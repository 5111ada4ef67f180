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
 * \file apps/run_model/relax.cc
 * \brief Runs a library for the virtual machine of Relax.
 */
#include <dlfcn.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/dtype.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include <cstdio>
#include <filesystem>
#include <new>
#include <sstream>

#include "run_model.h"

namespace run_model {

namespace ffi = tvm::ffi;

const char* const kInput = "NAME=FILE:TYPE:SHAPE";

namespace {

constexpr DLDevice kCPU{kDLCPU, 0};
constexpr int kPooledAllocator = 2;

/*! \brief Memory of a tensor, aligned as TVM's code wants it. */
struct Allocator {
  static constexpr std::align_val_t kAlignment{64};
  void AllocData(DLTensor* tensor) {
    tensor->data = operator new(ffi::GetDataSize(*tensor), kAlignment);
  }
  void FreeData(DLTensor* tensor) { operator delete(tensor->data, kAlignment); }
};

size_t Bytes(const ffi::Tensor& tensor) { return ffi::GetDataSize(tensor.numel(), tensor.dtype()); }

ffi::Function Function(const ffi::Module& module, const char* name, const std::string& remedy) {
  const ffi::Optional<ffi::Function> function = module->GetFunction(name);
  if (!function.has_value()) Fail(remedy);
  return function.value();
}

/*! \brief Read a tensor from "FILE:TYPE:SHAPE", such as "x.bin:float32:1,3,224,224". */
ffi::Tensor ReadTensor(const Input& input) {
  const size_t last = input.value.rfind(':');
  const size_t first =
      last == 0 || last == std::string::npos ? last : input.value.rfind(':', last - 1);
  if (last == std::string::npos || first == std::string::npos) {
    Fail(input.name + "=" + input.value + " is not like " + kInput +
         ", for example x=x.bin:float32:1,3,224,224");
  }
  std::vector<int64_t> shape;
  std::istringstream sizes(input.value.substr(last + 1));
  for (std::string size; std::getline(sizes, size, ',');) {
    const bool is_number = !size.empty() && size.find_first_not_of("0123456789") == size.npos;
    if (!is_number || size.size() > 9) {
      Fail(input.name + ": " + sizes.str() + " is not a shape like 1,3,224,224");
    }
    shape.push_back(std::stoll(size));
  }
  const DLDataType type = ffi::StringToDLDataType(input.value.substr(first + 1, last - first - 1));
  ffi::Tensor tensor = ffi::Tensor::FromNDAlloc(Allocator(), ffi::Shape(shape), type, kCPU);
  Read(input.value.substr(0, first), tensor.data_ptr(), Bytes(tensor));
  return tensor;
}

/*! \brief Add the tensors of a result, which may be a tuple of tuples. */
void Collect(const ffi::Any& result, std::vector<ffi::Tensor>* tensors) {
  if (auto tensor = result.as<ffi::Tensor>()) {
    tensors->push_back(*tensor);
  } else if (auto fields = result.as<ffi::Array<ffi::Any>>()) {
    for (const ffi::Any& field : *fields) Collect(field, tensors);
  } else {
    Fail("an output is not a tensor, but " + result.GetTypeKey());
  }
}

ffi::Module LoadMachine(const std::string& model) {
  // The backend registers itself when it is loaded, as Python's package tvm_dnnl does.
  if (dlopen(RUN_MODEL_BACKEND, RTLD_NOW) == nullptr) Fail(dlerror());
  const ffi::Module library = ffi::Module::LoadFromFile(model);
  const auto load =
      Function(library, "vm_load_executable",
               model +
                   " is no library of Relax. What relay.build or tvmc makes "
                   "needs this sample configured with TVM_HOME=DIR for a TVM with Relay");
  const auto machine = load().cast<ffi::Module>();
  Function(machine, "vm_initialization", "this TVM has another virtual machine")(
      static_cast<int>(kDLCPU), 0, kPooledAllocator);
  return machine;
}

}  // namespace

void Run(const std::string& model, const std::string& folder, const std::vector<Input>& inputs) {
  const ffi::Module machine = LoadMachine(model);
  const ffi::Function main = Function(machine, "main", model + " has no function main");
  const std::string remedy = "this TVM has another virtual machine";
  const auto arity = Function(machine, "get_function_arity", remedy)("main").cast<int64_t>();
  const ffi::Function name_of = Function(machine, "get_function_param_name", remedy);
  std::vector<std::string> names;
  for (int64_t i = 0; i < arity; ++i) names.push_back(name_of("main", i).cast<std::string>());
  CheckNames(inputs, names);
  std::vector<ffi::Tensor> tensors;
  for (const std::string& name : names) {
    for (const Input& input : inputs) {
      if (input.name == name) tensors.push_back(ReadTensor(input));
    }
  }
  const std::vector<ffi::AnyView> arguments(tensors.begin(), tensors.end());

  // The first run makes the plans.
  ffi::Any result;
  const auto run = [&] {
    main.CallPacked(arguments.data(), static_cast<int32_t>(arguments.size()), &result);
  };
  run();
  std::vector<ffi::Tensor> outputs;
  Collect(result, &outputs);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const ffi::Tensor& output = outputs[i];
    const auto path = WriteOutput(folder, i, output.data_ptr(), Bytes(output));
    std::printf("%s: %s", path.c_str(), ffi::DLDataTypeToString(output.dtype()).c_str());
    for (int64_t size : output.shape()) std::printf(" %lld", static_cast<long long>(size));
    std::printf("\n");
  }
  Report(folder, outputs.size(), run);
}

}  // namespace run_model
