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
 * \file src/runtime/extra/contrib/dnnl/tvm/library.cc
 * \brief The global functions that tell of the oneDNN library, set its number of threads, and
 *        serialize modules.
 */
#include "../../../../contrib/dnnl/core/library.h"

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/dtype.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>

#include <string>

#include "../../../../contrib/dnnl/core/exec/threads.h"
#include "../../../../contrib/dnnl/core/kernels/isa.h"
#include "../../../../contrib/dnnl/core/op_table.h"
#include "errors.h"

namespace tvm::runtime::contrib::dnnl_backend {

TVM_FFI_STATIC_INIT_BLOCK() {
  ffi::reflection::GlobalDef()
      .def("runtime.contrib.dnnl.version", []() { return ffi::String(LibraryVersion()); })
      .def("runtime.contrib.dnnl.computes",
           [](DLDataType dtype) { return WithFFIErrors([&]() { return Computes(dtype); }); })
      .def("runtime.contrib.dnnl.has_amx", []() { return HasISA(ISA::kAMX); })
      .def("runtime.contrib.dnnl.prefers",
           [](DLDataType dtype) { return WithFFIErrors([&]() { return Prefers(dtype); }); })
      .def("runtime.contrib.dnnl.set_num_threads",
           [](int num_threads) { WithFFIErrors([&]() { SetNumThreads(num_threads); }); })
      .def("runtime.contrib.dnnl.get_num_threads",
           []() { return WithFFIErrors([]() { return NumThreads(); }); })
      .def("runtime.contrib.dnnl.module_bytes",
           [](const ffi::Module& module) { return module->SaveToBytes(); })
      .def("runtime.contrib.dnnl.ops", []() {
        ffi::Array<ffi::String> names;
        for (const std::string& name : OpNames()) names.push_back(name);
        return names;
      });
}

}  // namespace tvm::runtime::contrib::dnnl_backend
