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
 * \file src/runtime/contrib/dnnl/c_source/constants.cc
 * \brief The module that holds the constants of a function of C source.
 *
 * The library of the C code imports it, so that the code finds the constants itself. TVM's const
 * loader would hand them in as well, but stands above the library: who calls a function of the
 * library by its address, as the AOT executor does, goes past it.
 */
#include <dmlc/io.h>
#include <tvm/runtime/container/array.h>
#include <tvm/runtime/container/string.h>
#include <tvm/runtime/logging.h>
#include <tvm/runtime/module.h>
#include <tvm/runtime/ndarray.h>
#include <tvm/runtime/registry.h>

#include <string>
#include <string_view>
#include <utility>

#include "../tvm/constant_bytes.h"

namespace tvm {
namespace runtime {
namespace contrib {

namespace {

using dnnl_backend::CheckComplete;

class DNNLConstants : public ModuleNode {
 public:
  DNNLConstants(String symbol, Array<NDArray> values)
      : symbol_(std::move(symbol)), values_(std::move(values)) {}

  const char* type_key() const final { return "dnnl_constants"; }

  int GetPropertyMask() const final { return ModulePropertyMask::kBinarySerializable; }

  /*! \brief Its one function gives the constant of a number. */
  PackedFunc GetFunction(const String& name, const ObjectPtr<Object>& self) final {
    if (name != "get_constant_" + symbol_) return nullptr;
    return TypedPackedFunc<NDArray(int)>([self, this](int index) {
      ICHECK(index >= 0 && index < static_cast<int>(values_.size()))
          << symbol_ << " has " << values_.size() << " constants, but none with index " << index;
      return values_[index];
    });
  }

  void SaveToBinary(dmlc::Stream* stream) final {
    stream->Write(std::string(symbol_));
    stream->Write(static_cast<uint64_t>(values_.size()));
    for (const NDArray& value : values_) value.Save(stream);
  }

  static Module LoadFromBinary(void* strm) {
    std::string symbol;
    Array<NDArray> values;
    dnnl_backend::ConstantBytes bytes;
    bytes.Read(static_cast<dmlc::Stream*>(strm), [&](dnnl_backend::ByteReader* reader) {
      std::string_view text;
      uint64_t count = 0;
      CheckComplete(reader->Read(&text), "the name of their function");
      symbol = text;
      CheckComplete(reader->Read(&count), "the number of those of '" + symbol + "'");
      for (uint64_t i = 0; i < count; ++i) {
        dnnl_backend::StoredArray array;
        CheckComplete(dnnl_backend::ReadArray(reader, &array), "an array");
        values.push_back(dnnl_backend::CopyOf(array));
      }
    });
    // The bytes that were read are needed no more.
    bytes.ReleasePages();
    return Module(make_object<DNNLConstants>(symbol, values));
  }

 private:
  String symbol_;
  Array<NDArray> values_;
};

}  // namespace

TVM_REGISTER_GLOBAL("runtime.DNNLConstantsCreate")
    .set_body_typed([](String symbol, Array<NDArray> values) {
      return Module(make_object<DNNLConstants>(symbol, values));
    });

TVM_REGISTER_GLOBAL("runtime.module.loadbinary_dnnl_constants")
    .set_body_typed(DNNLConstants::LoadFromBinary);

}  // namespace contrib
}  // namespace runtime
}  // namespace tvm
