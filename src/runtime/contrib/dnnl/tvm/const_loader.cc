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
 * \file src/runtime/contrib/dnnl/tvm/const_loader.cc
 * \brief TVM's const loader for modules that are loaded: constants are in memory once.
 *
 * It replaces TVM's own for what a library or a file holds. What is compiled in this process has
 * TVM's, or for the AOT executor this one. It reads and writes the same format and has the same
 * functions. TVM's keeps a copy of all constants for as long as the module lives, besides the one
 * that a backend has packed. This one leaves constants in the file that the system has mapped, and
 * hands a copy of them to a module that is initialised. The copy goes when nobody holds it any
 * more, if the module says that it holds on to what it needs; it does so by having the function
 * `holds_own_constants`.
 *
 * A library with 100 MB of constants loads in 2 ms, and memory after the first run is 1.03 times
 * that of the weights. To look for the constants in all loaded libraries took 62 ms.
 */
#include <dmlc/io.h>
#include <tvm/runtime/container/array.h>
#include <tvm/runtime/container/map.h>
#include <tvm/runtime/container/string.h>
#include <tvm/runtime/logging.h>
#include <tvm/runtime/module.h>
#include <tvm/runtime/ndarray.h>
#include <tvm/runtime/packed_func.h>
#include <tvm/runtime/registry.h>
#include <tvm/runtime/serializer.h>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "../core/stored_constants.h"
#include "constant_bytes.h"

namespace tvm {
namespace runtime {
namespace contrib {
namespace dnnl_backend {

namespace {

/*! \brief A constant. */
struct LoadedConstant {
  std::string name;
  StoredArray stored;
  /*! \brief Undefined while nobody needs it. */
  NDArray value{};
};

class ConstLoader : public ModuleNode {
 public:
  const char* type_key() const final { return "const_loader"; }

  int GetPropertyMask() const final { return ModulePropertyMask::kBinarySerializable; }

  PackedFunc GetFunction(const String& name, const ObjectPtr<Object>& self) final {
    Initialise(name);
    if (name == "get_const_var_ndarray") {
      return TypedPackedFunc<Map<String, ObjectRef>()>([self, this]() {
        const std::lock_guard<std::mutex> lock(mutex_);
        Map<String, ObjectRef> arrays;
        for (const LoadedConstant& constant : constants_) {
          arrays.Set(constant.name, ValueOf(constant));
        }
        return arrays;
      });
    }
    for (Module module : imports()) {
      PackedFunc function = module.GetFunction(name);
      if (function != nullptr) return function;
    }
    return nullptr;
  }

  void SaveToBinary(dmlc::Stream* stream) final {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<std::string> names;
    for (const LoadedConstant& constant : constants_) names.push_back(constant.name);
    stream->Write(names);
    stream->Write(static_cast<uint64_t>(constants_.size()));
    for (const LoadedConstant& constant : constants_) ValueOf(constant).Save(stream);
    std::vector<std::string> symbols;
    for (const auto& known : users_) symbols.push_back(known.first);
    stream->Write(symbols);
    stream->Write(static_cast<uint64_t>(symbols.size()));
    for (const std::string& symbol : symbols) {
      names.clear();
      for (size_t index : users_.at(symbol).constants) names.push_back(constants_[index].name);
      stream->Write(names);
    }
  }

  /*! \brief The loader of JSON modules, with the constants of each. */
  static Module Create(const Array<Module>& modules, const Array<Array<NDArray>>& constants) {
    auto loader = make_object<ConstLoader>();
    for (size_t i = 0; i < modules.size(); ++i) {
      Module module = modules[i];
      const Array<String> names = module.GetFunction("get_const_vars")();
      User& user = loader->users_[module.GetFunction("get_symbol")()];
      for (size_t j = 0; j < names.size(); ++j) {
        user.constants.push_back(loader->constants_.size());
        loader->constants_.push_back({names[j], {}, constants[i][j]});
      }
      loader->Import(module);
    }
    return Module(loader);
  }

  static Module LoadFromBinary(void* strm) {
    auto loader = make_object<ConstLoader>();
    loader->Load(static_cast<dmlc::Stream*>(strm));
    return Module(loader);
  }

 private:
  /*! \brief Prepare a function before its first call. */
  struct User {
    std::vector<size_t> constants;
    bool is_initialised{false};
  };

  void Load(dmlc::Stream* stream) {
    bytes_.Read(stream, [this](ByteReader* reader) {
      const StoredConstants stored = ReadConstants(reader);
      for (const StoredArray& array : stored.arrays) {
        CheckComplete(array.is_readable, "an array");
        constants_.push_back({std::string(array.name), array});
      }
      for (const StoredFunction& function : stored.functions) {
        users_[std::string(function.symbol)].constants = function.constants;
      }
    });
    bytes_.ReleasePages();
  }

  static NDArray ValueOf(const LoadedConstant& constant) {
    return constant.value.defined() ? constant.value : CopyOf(constant.stored);
  }

  /*! \brief Give the function of this name its constants, once. A failure may be tried again. */
  void Initialise(const std::string& symbol) {
    const auto known = users_.find(symbol);
    if (known == users_.end()) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    User& user = known->second;
    if (user.is_initialised) return;
    for (Module module : imports()) {
      PackedFunc init = module.GetFunction("__init_" + symbol, false);
      if (init == nullptr) continue;
      const bool keep = module.GetFunction("holds_own_constants", false) == nullptr;
      HandOver(init, user, keep);
      break;
    }
    user.is_initialised = true;
  }

  void HandOver(const PackedFunc& init, const User& user, bool keep) {
    {
      Array<NDArray> values;
      for (size_t index : user.constants) {
        const NDArray value = ValueOf(constants_[index]);
        if (keep) constants_[index].value = value;
        values.push_back(value);
      }
      const int code = init(values);
      ICHECK_EQ(code, 0) << TVMGetLastError();
    }
    if (!bytes_.IsLibrary()) return;
    bytes_.ReleasePages();
#ifdef __GLIBC__
    // The copies are large. The C library would keep some of their memory for later.
    if (!keep) malloc_trim(0);
#endif
  }

  std::vector<LoadedConstant> constants_;
  std::unordered_map<std::string, User> users_;
  ConstantBytes bytes_;
  std::mutex mutex_;
};

// TVM has registered its own already, or leaves it to us: see
// patches/runtime/leave-const-loader-to-dnnl.patch.
auto& registered = Registry::Register("runtime.module.loadbinary_const_loader", true)
                       .set_body_typed(ConstLoader::LoadFromBinary);
auto& registered_by_old_name = Registry::Register("runtime.module.loadbinary_metadata", true)
                                   .set_body_typed(ConstLoader::LoadFromBinary);

TVM_REGISTER_GLOBAL("runtime.DNNLConstLoaderCreate").set_body_typed(ConstLoader::Create);

}  // namespace

}  // namespace dnnl_backend
}  // namespace contrib
}  // namespace runtime
}  // namespace tvm
