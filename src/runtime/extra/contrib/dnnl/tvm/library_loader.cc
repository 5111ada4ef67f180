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
 * \file src/runtime/extra/contrib/dnnl/tvm/library_loader.cc
 * \brief Loads a library that carries constants where they lie in its file, without a copy.
 *
 * TVM copies the bytes of each module that a library carries twice before its loader gets them. For
 * constants, that is the peak of a process's memory. So libraries with constants are loaded here,
 * with the same modules; TVM loads all others.
 */
#include <tvm/ffi/cast.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>

#ifdef __linux__
#include <dlfcn.h>
#include <elf.h>
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../../../../contrib/dnnl/core/bytes.h"
#include "../../../../contrib/dnnl/core/error.h"
#include "const_loader.h"
#include "errors.h"

namespace tvm::runtime::contrib::dnnl_backend {

#ifdef __linux__

namespace {

constexpr const char* kName = "ffi.Module.load_from_file.so";

/*! \brief The code of a library as a module. */
class LibraryModule : public ffi::ModuleObj {
 public:
  explicit LibraryModule(std::shared_ptr<void> library) : library_(std::move(library)) {}

  // TVM knows the module by it.
  const char* kind() const final { return "library"; }

  int GetPropertyMask() const final {
    return ffi::Module::kBinarySerializable | ffi::Module::kRunnable;
  }

  ffi::Optional<ffi::Function> GetFunction(const ffi::String& name) final {
    const auto function = SymbolOf<TVMFFISafeCallType>(ffi::symbol::tvm_ffi_symbol_prefix, name);
    if (function == nullptr) return std::nullopt;
    // Keeps the library loaded.
    const ffi::ObjectRef self = ffi::GetRef<ffi::ObjectRef>(this);
    return ffi::Function([self, function](ffi::PackedArgs args, ffi::Any* result) {
      TVM_FFI_CHECK_SAFE_CALL(function(nullptr, reinterpret_cast<const TVMFFIAny*>(args.data()),
                                       args.size(), reinterpret_cast<TVMFFIAny*>(result)));
    });
  }

  ffi::Optional<ffi::String> GetFunctionMetadata(const ffi::String& name) final {
    return StringOf(ffi::symbol::tvm_ffi_metadata_prefix, name);
  }

  ffi::Optional<ffi::String> GetFunctionDoc(const ffi::String& name) final {
    return StringOf(ffi::symbol::tvm_ffi_doc_prefix, name);
  }

 private:
  template <typename T>
  T SymbolOf(const std::string& prefix, const ffi::String& name) const {
    return reinterpret_cast<T>(dlsym(library_.get(), (prefix + std::string(name)).c_str()));
  }

  ffi::Optional<ffi::String> StringOf(const char* prefix, const ffi::String& name) const {
    const auto function = SymbolOf<TVMFFISafeCallType>(prefix, name);
    if (function == nullptr) return std::nullopt;
    return ffi::Function::InvokeExternC(nullptr, function).cast<ffi::String>();
  }

  const std::shared_ptr<void> library_;
};

/*! \brief A module that a library carries; that of the library itself has no bytes. */
struct CarriedModule {
  std::string_view kind, bytes;
};

/*!
 * \brief The modules that a library carries, where they lie.
 *
 * Module i imports those whose numbers are the `children` from `begins[i]` to `begins[i + 1]`.
 */
struct Carried {
  std::vector<uint64_t> begins, children;
  std::vector<CarriedModule> modules;
};

constexpr const char* kLibrary = "_lib";
constexpr const char* kConstLoader = "const_loader";

void CheckComplete(bool good, const char* what) {
  CORE_CHECK(good) << "What a library carries is cut off or damaged: " << what
                   << " cannot be read. Export the library again.";
}

/*! \brief Read what a library carries: the number of bytes, the tree of modules, each module. */
Carried ReadCarried(const char* data) {
  uint64_t size = 0;
  std::memcpy(&size, data, sizeof(size));
  BytesReader reader({data + sizeof(size), size});
  Carried carried;
  const auto& begins = carried.begins;
  const auto& children = carried.children;
  const bool is_tree = reader.Read(&carried.begins) && reader.Read(&carried.children) &&
                       begins.size() > 1 && std::is_sorted(begins.begin(), begins.end()) &&
                       begins.back() <= children.size();
  CheckComplete(is_tree, "the tree of modules");
  const size_t count = begins.size() - 1;
  const auto is_known = [count](uint64_t child) { return child < count; };
  CheckComplete(std::all_of(children.begin(), children.end(), is_known), "the tree of modules");
  for (size_t i = 0; i < count; ++i) {
    CarriedModule module;
    const bool is_whole =
        reader.Read(&module.kind) && (module.kind == kLibrary || reader.Read(&module.bytes));
    CheckComplete(is_whole, "a module");
    carried.modules.push_back(module);
  }
  return carried;
}

/*! \brief The code of a library, with what it calls in this process. */
ffi::Module CodeOf(const std::shared_ptr<void>& library) {
  ffi::Module code(ffi::make_object<LibraryModule>(library));
  ffi::Module::VisitContextSymbols([&library](const ffi::String& name, void* value) {
    void* symbol = dlsym(library.get(), name.c_str());
    if (symbol != nullptr) *static_cast<void**>(symbol) = value;
  });
  void* context = dlsym(library.get(), ffi::symbol::tvm_ffi_library_ctx);
  if (context != nullptr) *static_cast<const void**>(context) = code.get();
  return code;
}

ffi::Module Load(const std::shared_ptr<void>& library, const CarriedModule& module) {
  const auto& [kind, bytes] = module;
  if (kind == kLibrary) return CodeOf(library);
  if (kind == kConstLoader) return ConstLoaderOf({library, bytes});
  const std::string loader = "ffi.Module.load_from_bytes." + std::string(kind);
  const std::optional<ffi::Function> load = ffi::Function::GetGlobal(loader);
  if (!load.has_value()) {
    TVM_FFI_THROW(RuntimeError) << "The library has a module of the kind " << kind
                                << ", but this process has no function " << loader
                                << ": import what registers it first";
  }
  return (*load)(ffi::Bytes(bytes.data(), bytes.size())).cast<ffi::Module>();
}

/*! \brief Load all that a library carries; the first module imports the others. */
ffi::Module LoadAll(const std::shared_ptr<void>& library, const Carried& carried) {
  std::vector<ffi::Module> modules;
  for (const CarriedModule& module : carried.modules) modules.push_back(Load(library, module));
  for (size_t i = 0; i < modules.size(); ++i) {
    for (uint64_t at = carried.begins[i]; at < carried.begins[i + 1]; ++at) {
      modules[i]->ImportModule(modules[carried.children[at]]);
    }
  }
  return modules[0];
}

/*!
 * \brief Check that a file holds all that the dynamic loader maps.
 *
 * The loader does not, and the process ends by a signal when it reads what is missing.
 */
void CheckWhole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  Elf64_Ehdr header{};
  // What is no library at all, the dynamic loader says.
  if (!file.read(reinterpret_cast<char*>(&header), sizeof(header)) ||
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_phentsize != sizeof(Elf64_Phdr)) {
    return;
  }
  uint64_t end = header.e_phoff + sizeof(Elf64_Phdr) * header.e_phnum;
  file.seekg(static_cast<std::streamoff>(header.e_phoff));
  for (int i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr part{};
    if (!file.read(reinterpret_cast<char*>(&part), sizeof(part))) break;
    if (part.p_type == PT_LOAD) end = std::max(end, part.p_offset + part.p_filesz);
  }
  file.clear();
  file.seekg(0, std::ios::end);
  const auto size = static_cast<uint64_t>(file.tellg());
  CORE_CHECK(end <= size) << path << " is cut off: it has " << size << " bytes of at least " << end
                          << ". Export or copy the library again.";
}

TVM_FFI_STATIC_INIT_BLOCK() {
  const std::optional<ffi::Function> load = ffi::Function::GetGlobal(kName);
  if (!load.has_value()) return;
  const auto ours = [load = *load](const ffi::String& path, const ffi::String& format) {
    WithFFIErrors([&path]() { CheckWhole(path); });
    void* handle = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
    // TVM's error says why a library cannot be opened.
    if (handle == nullptr) return load(path, format).cast<ffi::Module>();
    const std::shared_ptr<void> library(handle, dlclose);
    const void* data = dlsym(handle, ffi::symbol::tvm_ffi_library_bin);
    if (data != nullptr) {
      const Carried carried =
          WithFFIErrors([data]() { return ReadCarried(static_cast<const char*>(data)); });
      const auto is_loader = [](const CarriedModule& each) { return each.kind == kConstLoader; };
      if (std::any_of(carried.modules.begin(), carried.modules.end(), is_loader)) {
        return LoadAll(library, carried);
      }
    }
    return load(path, format).cast<ffi::Module>();
  };
  ffi::Function::SetGlobal(kName, ffi::Function::FromTyped(ours), true);
}

}  // namespace

#endif  // __linux__

}  // namespace tvm::runtime::contrib::dnnl_backend
