// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/artifacts/trial.cc
 * \brief Loads and runs what may be damaged, and looks at what that does.
 */
#include "trial.h"

#include <dmlc/memory_io.h>
#include <tvm/runtime/container/array.h>
#include <tvm/runtime/container/string.h>
#include <tvm/runtime/logging.h>
#include <tvm/runtime/module.h>
#include <tvm/runtime/ndarray.h>
#include <tvm/runtime/packed_func.h>
#include <tvm/runtime/registry.h>

#include <algorithm>
#include <memory>
#include <typeinfo>
#include <utility>

#include "blob_library.h"

namespace artifacts {

namespace {

using tvm::runtime::Array;
using tvm::runtime::Module;
using tvm::runtime::NDArray;
using tvm::runtime::PackedFunc;
using tvm::runtime::Registry;
using tvm::runtime::String;
using tvm::runtime::TVMArgs;
using tvm::runtime::TVMRetValue;

/*! \brief A caller who has so much memory and time. */
constexpr double kMostBytes = 64 << 20;
constexpr double kMostWork = 1e9;
/*! \brief As TVM aligns arrays. */
constexpr size_t kArrayAlignment = 64;

std::string ModuleFile(const Signature& signature, const std::string& graph) {
  std::string bytes;
  dmlc::MemoryStringStream memory(&bytes);
  dmlc::Stream* stream = &memory;
  stream->Write(signature.symbol);
  stream->Write(graph);
  stream->Write(signature.constant_names);
  return bytes;
}

Array<NDArray> ArraysOf(const std::vector<std::unique_ptr<Tensor>>& tensors) {
  Array<NDArray> arrays;
  for (const auto& tensor : tensors) {
    arrays.push_back(NDArray::FromExternalDLTensor(*tensor->dl()));
  }
  return arrays;
}

std::vector<std::unique_ptr<Tensor>> MakeTensors(const std::vector<TensorType>& types,
                                                 size_t alignment) {
  std::vector<std::unique_ptr<Tensor>> tensors;
  for (const TensorType& type : types) {
    tensors.push_back(std::make_unique<Tensor>(type, alignment));
  }
  return tensors;
}

/*! \brief What TVM's const loader, or the module of C source's constants, would have written. */
std::string ConstantsFile(const Artifact& artifact, Part part) {
  const Signature& signature = artifact.signature;
  Random random(1);
  const auto tensors = MakeTensors(signature.constants, kArrayAlignment);
  for (const auto& tensor : tensors) tensor->FillWith(Fill::kOrdinary, &random);
  const Array<NDArray> arrays = ArraysOf(tensors);
  std::string bytes;
  dmlc::MemoryStringStream memory(&bytes);
  dmlc::Stream* stream = &memory;
  const bool is_c_source = part == Part::kCSource;
  if (is_c_source) stream->Write(signature.symbol);
  if (!is_c_source) stream->Write(signature.constant_names);
  stream->Write(static_cast<uint64_t>(arrays.size()));
  for (const NDArray& array : arrays) array.Save(stream);
  if (is_c_source) return bytes;
  stream->Write(std::vector<std::string>{signature.symbol});
  stream->Write(uint64_t{1});
  stream->Write(signature.constant_names);
  return bytes;
}

Module Load(const char* kind, dmlc::Stream* stream) {
  const PackedFunc* load = Registry::Get(std::string("runtime.module.loadbinary_") + kind);
  ICHECK(load != nullptr) << "nothing loads " << kind;
  return (*load)(static_cast<void*>(stream));
}

Module Load(const char* kind, std::string bytes) {
  dmlc::MemoryStringStream stream(&bytes);
  return Load(kind, &stream);
}

PackedFunc FunctionOf(Module module, const std::string& name) {
  const PackedFunc function = module.GetFunction(name);
  ICHECK(function != nullptr) << "there is no function " << name;
  return function;
}

/*! \brief One trial, whose parts live as long as the module that may look at them. */
class Runner {
 public:
  Runner(const Trial& trial, const std::string& template_library)
      : trial_(trial),
        template_library_(template_library),
        signature_(trial.artifact->signature),
        random_(trial.seed) {}

  Result Run() {
    if (trial_.part == Part::kGraph || trial_.part == Part::kText) ReadOwnSignature();
    const Signature open =
        std::exchange(signature_, Closed(signature_, trial_.artifact->signature));
    other_ = Closed(open, trial_.artifact->signature, 1);
    result_.tensor_bytes = signature_.bytes();
    // Who calls it has the constants and the arguments in memory already.
    const bool is_large =
        result_.tensor_bytes > kMostBytes ||
        signature_.work > std::max(kMostWork, 2 * trial_.artifact->signature.work);
    if (!is_large) constants_ = MakeTensors(signature_.constants, kArrayAlignment);
    for (const auto& constant : constants_) constant->FillWith(trial_.constants, &random_);
    if (trial_.part == Part::kLibrary) {
      library_ = std::make_unique<BlobLibrary>(template_library_, trial_.bytes);
    }
    count_ = std::make_unique<AllocationCount>();
    try {
      LoadAndRun(is_large);
    } catch (const tvm::runtime::Error& error) {
      result_.error = error.what();
    } catch (const std::exception& error) {
      // It has not passed our checks, which name the node.
      result_.error = std::string("not TVM's: ") + typeid(error).name() + ": " + error.what();
    }
    if (result_.peak == 0) result_.peak = count_->peak();
    return result_;
  }

 private:
  void ReadOwnSignature() {
    Json graph;
    Signature own;
    const auto& original = trial_.artifact->signature;
    if (!ParseJson(trial_.bytes, &graph)) return;
    if (!ReadSignature(graph, &original.constant_names, &own)) return;
    own.symbol = original.symbol;
    signature_ = own;
  }

  void LoadAndRun(bool is_large) {
    if (trial_.part == Part::kCSource) return ReadConstants();
    const bool is_file = trial_.part == Part::kModule;
    const bool has_constants = trial_.part == Part::kGraph || trial_.part == Part::kText || is_file;
    const std::string text = has_constants ? trial_.bytes : ToText(trial_.artifact->graph);
    Module module = Load("dnnl_json", is_file ? text : ModuleFile(signature_, text));
    result_.outcome = Outcome::kNotInitialised;
    if (is_large) {
      result_.outcome = Outcome::kTooLarge;
      return;
    }
    Module callee = module;
    if (has_constants) {
      FunctionOf(module, "__init_" + signature_.symbol)(ArraysOf(constants_));
    } else {
      callee = LoadConstants();
      callee.Import(module);
    }
    const PackedFunc function = FunctionOf(callee, signature_.symbol);
    result_.outcome = Outcome::kNotRun;
    if (other_.bytes() != signature_.bytes()) CallWithOtherSizes(function);
    CallTwice(function);
    result_.outcome = Outcome::kRun;
    const std::string plan = FunctionOf(module, "get_plan")();
    if (plan.empty()) result_.failure = "get_plan says nothing";
  }

  Module LoadConstants() {
    if (trial_.part == Part::kConstants) return Load("const_loader", trial_.bytes);
    dmlc::MemoryFixedSizeStream stream(library_->blob(), trial_.bytes.size());
    return Load("const_loader", &stream);
  }

  void ReadConstants() {
    Module module = Load("dnnl_constants", trial_.bytes);
    result_.outcome = Outcome::kNotRun;
    const PackedFunc get = FunctionOf(module, "get_constant_" + signature_.symbol);
    for (int i = 0; i < static_cast<int>(signature_.constants.size()); ++i) {
      const NDArray array = get(i);
      // A sanitizer looks at each byte that is read.
      std::string bytes(tvm::runtime::GetDataSize(*array.operator->()), '\0');
      array.CopyToBytes(&bytes[0], bytes.size());
    }
    result_.outcome = Outcome::kRun;
  }

  void Call(const PackedFunc& function) {
    std::vector<TVMValue> values;
    for (const auto* tensors : {&inputs_, &outputs_}) {
      for (const auto& tensor : *tensors) {
        values.emplace_back();
        values.back().v_handle = tensor->dl();
      }
    }
    const std::vector<int> codes(values.size(), kTVMDLTensorHandle);
    TVMRetValue nothing;
    function.CallPacked(TVMArgs(values.data(), codes.data(), static_cast<int>(codes.size())),
                        &nothing);
  }

  void FillInputs(Fill fill, uint64_t seed) {
    Random random(seed);
    for (const auto& input : inputs_) input->FillWith(fill, &random);
  }

  std::vector<std::string> OutputsOf(const PackedFunc& function, char old) {
    for (const auto& output : outputs_) output->FillWith(old);
    Call(function);
    std::vector<std::string> bytes;
    for (const auto& output : outputs_) bytes.push_back(output->Bytes());
    return bytes;
  }

  /*! \brief Call with other sizes of the open dimensions. No matter whether that is an error. */
  void CallWithOtherSizes(const PackedFunc& function) {
    inputs_ = MakeTensors(other_.inputs, 1);
    outputs_ = MakeTensors(other_.outputs, 1);
    // Each shape has a plan of its own.
    result_.tensor_bytes += other_.bytes();
    try {
      FillInputs(trial_.inputs, trial_.seed);
      Call(function);
    } catch (const tvm::runtime::Error&) {
    }
    CheckIntact();
  }

  void CheckIntact() {
    for (const auto* tensors : {&constants_, &inputs_, &outputs_}) {
      for (const auto& tensor : *tensors) {
        if (!tensor->IsIntact()) result_.failure = "memory beside a tensor was written";
      }
    }
  }

  /*! \brief Compare two runs on the same inputs; one on others stands between them. */
  void CallTwice(const PackedFunc& function) {
    inputs_ = MakeTensors(signature_.inputs, 1);
    outputs_ = MakeTensors(signature_.outputs, 1);
    FillInputs(trial_.inputs, trial_.seed);
    const std::vector<std::string> first = OutputsOf(function, '\0');
    result_.peak = count_->peak();
    FillInputs(Fill::kAnything, trial_.seed + 1);
    OutputsOf(function, '\x55');
    FillInputs(trial_.inputs, trial_.seed);
    if (OutputsOf(function, '\xff') != first) {
      result_.failure = "the outputs depend on what was in memory before";
    }
    CheckIntact();
  }

  const Trial& trial_;
  const std::string& template_library_;
  Signature signature_;
  /*! \brief With other sizes of the open dimensions. */
  Signature other_;
  Random random_;
  Result result_;
  std::unique_ptr<BlobLibrary> library_;
  std::vector<std::unique_ptr<Tensor>> constants_, inputs_, outputs_;
  std::unique_ptr<AllocationCount> count_;
};

}  // namespace

const char* NameOf(Part part) {
  const char* names[kNumParts] = {"graph", "text", "module", "constants", "library", "c_source"};
  return names[static_cast<int>(part)];
}

const char* NameOf(Outcome outcome) {
  const char* names[kNumOutcomes] = {"not loaded", "not initialised", "not run", "run",
                                     "too large"};
  return names[static_cast<int>(outcome)];
}

std::string BytesOf(const Artifact& artifact, Part part) {
  if (part == Part::kGraph || part == Part::kText) return ToText(artifact.graph);
  if (part == Part::kModule) return ModuleFile(artifact.signature, ToText(artifact.graph));
  return ConstantsFile(artifact, part);
}

Result Run(const Trial& trial, const std::string& template_library) {
  return Runner(trial, template_library).Run();
}

}  // namespace artifacts
