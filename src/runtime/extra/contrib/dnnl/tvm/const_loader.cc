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
 * \file src/runtime/extra/contrib/dnnl/tvm/const_loader.cc
 * \brief A const loader for libraries: their constants are in memory once.
 *
 * TVM's keeps a copy of all constants for as long as a library is loaded, besides the part of the
 * file that it was read from and what a backend has packed. This one takes its place for what a
 * library carries. It leaves the constants in the file, which the system maps into memory, and
 * hands modules of oneDNN tensors in that memory, before one of them is called. They are known by
 * the function `holds_own_constants`, and cope with elements at any address. Other modules get
 * their constants from TVM's, which keeps a copy.
 *
 * TVM's also reads constants that are in no library. It takes memory for whatever sizes are named,
 * so these are checked first.
 */
#include "const_loader.h"

#include <tvm/ffi/cast.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../../../../contrib/dnnl/core/library.h"
#include "../../../../contrib/dnnl/core/stored_constants.h"
#include "errors.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

constexpr const char* kName = "ffi.Module.load_from_bytes.const_loader";

StoredConstants ReadStored(std::string_view bytes) {
  BytesReader reader(bytes);
  return WithFFIErrors([&reader]() { return ReadConstants(&reader); });
}

}  // namespace

#ifdef __linux__

namespace {

class ConstLoader : public ffi::ModuleObj {
 public:
  explicit ConstLoader(LibraryBytes stored) : stored_(std::move(stored)) {}

  const char* kind() const final { return "const_loader"; }

  int GetPropertyMask() const final { return ffi::Module::kBinarySerializable; }

  ffi::Bytes SaveToBytes() const final { return Copy(); }

  ffi::Optional<ffi::Function> GetFunction(const ffi::String& name) final {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (name == "get_const_var_tensor") return Loaded()->GetFunction(name);
    for (const ffi::Any& import : imports_) {
      const auto module = import.cast<ffi::Module>();
      if (!kept_.has_value() && SymbolOf(module) == name) Initialise();
      if (kept_.has_value()) return kept_.value()->GetFunction(name);
      ffi::Optional<ffi::Function> function = module->GetFunction(name);
      if (function.has_value()) return function;
    }
    return std::nullopt;
  }

 private:
  /*! \brief The function that a module has constants for, if it has some. */
  static ffi::Optional<ffi::String> SymbolOf(const ffi::Module& module) {
    if (!module->GetFunction("get_const_vars").has_value()) return std::nullopt;
    const ffi::Optional<ffi::Function> get_symbol = module->GetFunction("get_symbol");
    if (!get_symbol.has_value()) return std::nullopt;
    return get_symbol.value()().cast<ffi::String>();
  }

  ffi::Bytes Copy() const { return ffi::Bytes(stored_.bytes.data(), stored_.bytes.size()); }

  /*! \brief TVM's const loader of the same modules, which has a copy of the constants. */
  ffi::Module Loaded() const {
    const auto loader = ffi::Function::GetGlobalRequired(kName)(Copy()).cast<ffi::Module>();
    for (const ffi::Any& import : imports_) loader->ImportModule(import.cast<ffi::Module>());
    return loader;
  }

  /*! \brief A tensor in the memory of the library, which it keeps loaded. */
  ffi::Tensor ViewOf(const StoredArray& array) const {
    struct View {
      std::shared_ptr<void> library;
      std::vector<int64_t> shape;
      DLManagedTensor tensor;
    };
    auto* view = new View{stored_.library, array.shape, {}};
    view->tensor.dl_tensor = {const_cast<char*>(array.values.data()),
                              {kDLCPU, 0},
                              static_cast<int32_t>(view->shape.size()),
                              array.dtype,
                              view->shape.data(),
                              nullptr,
                              0};
    view->tensor.manager_ctx = view;
    view->tensor.deleter = [](DLManagedTensor* tensor) {
      delete static_cast<View*>(tensor->manager_ctx);
    };
    return ffi::Tensor::FromDLPack(&view->tensor);
  }

  /*! \brief The constants of a function; nothing if TVM's loader has to judge them. */
  std::optional<ffi::Array<ffi::Tensor>> ViewsOf(const StoredConstants& stored,
                                                 const std::string& symbol) const {
    ffi::Array<ffi::Tensor> views;
    for (const StoredFunction& function : stored.functions) {
      if (function.symbol != symbol) continue;
      for (const size_t index : function.constants) {
        const StoredArray& array = stored.arrays[index];
        if (!array.is_readable) return std::nullopt;
        views.push_back(ViewOf(array));
      }
      return views;
    }
    return std::nullopt;
  }

  /*! \brief Give all modules their constants, once. A failure may be tried again. */
  void Initialise() {
    if (is_initialised_) return;
    const StoredConstants stored = ReadStored(stored_.bytes);
    for (const ffi::Any& import : imports_) {
      const auto module = import.cast<ffi::Module>();
      const ffi::Optional<ffi::String> symbol = SymbolOf(module);
      if (!symbol.has_value()) continue;
      const auto views = ViewsOf(stored, symbol.value());
      if (!module->GetFunction("holds_own_constants").has_value() || !views) {
        kept_ = Loaded();
        break;
      }
      module->GetFunction("__init_" + std::string(symbol.value())).value()(*views);
    }
    is_initialised_ = true;
    ReleasePages(stored_.bytes.data(), stored_.bytes.data() + stored_.bytes.size());
#ifdef __GLIBC__
    // What oneDNN packs is copied first. The C library would keep some of that memory for later.
    malloc_trim(0);
#endif
  }

  const LibraryBytes stored_;
  /*! \brief TVM's const loader, if a module needs its constants for longer. */
  ffi::Optional<ffi::Module> kept_;
  bool is_initialised_{false};
  std::mutex mutex_;
};

}  // namespace

ffi::Module ConstLoaderOf(LibraryBytes stored) {
  ReadStored(stored.bytes);
  // To read the sizes maps up to 2 MB around each.
  ReleasePages(stored.bytes.data(), stored.bytes.data() + stored.bytes.size());
  return ffi::Module(ffi::make_object<ConstLoader>(std::move(stored)));
}

#endif  // __linux__

namespace {

TVM_FFI_STATIC_INIT_BLOCK() {
  const std::optional<ffi::Function> load = ffi::Function::GetGlobal(kName);
  // In a static runtime TVM's may be registered later; it stays then.
  if (!load.has_value()) return;
  const auto ours = [load = *load](const ffi::Bytes& bytes) {
    ReadStored({bytes.data(), bytes.size()});
    return load(bytes).cast<ffi::Module>();
  };
  ffi::Function::SetGlobal(kName, ffi::Function::FromTyped(ours), true);
}

}  // namespace

}  // namespace tvm::runtime::contrib::dnnl_backend
