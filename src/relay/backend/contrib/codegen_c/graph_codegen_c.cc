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
 * \file src/relay/backend/contrib/codegen_c/graph_codegen_c.cc
 * \brief From a serialised partition to C: names, buffers and the order of the calls.
 */
#include "graph_codegen_c.h"

#include <tvm/runtime/logging.h>
#include <tvm/runtime/registry.h>

#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tvm {
namespace relay {
namespace contrib {

namespace {

constexpr size_t kColumns = 100;

/*! \brief DLPack's name of the kind of type. */
std::string TypeCode(DataType dtype) {
  if (dtype.is_int()) return "kDLInt";
  if (dtype.is_uint()) return "kDLUInt";
  if (dtype.is_bfloat16()) return "kDLBfloat";
  ICHECK(dtype.is_float()) << "C code cannot hold values of type " << dtype;
  return "kDLFloat";
}

std::string Join(const std::vector<std::string>& parts, const std::string& between) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : between) + part;
  return text;
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::vector<std::string> dims;
  for (int64_t dim : shape) dims.push_back(std::to_string(dim));
  return Join(dims, ", ");
}

}  // namespace

int64_t CTensor::NumElements() const {
  int64_t count = 1;
  for (int64_t dim : shape) count *= dim;
  return count;
}

std::string CTensor::TypeText() const {
  return runtime::DLDataType2String(dtype) + " (" + ShapeText(shape) + ")";
}

GraphCodegenC::GraphCodegenC(const std::string& symbol, const std::string& graph_json,
                             const Array<String>& const_names)
    : symbol_(symbol),
      graph_(tvm::runtime::json::ParseJSONGraph(symbol, graph_json)),
      const_names_(const_names) {
  CheckIdentifier(symbol);
  NameArguments();
  NameKernels();
}

std::string GraphCodegenC::constant_array() const {
  return const_names_.empty() ? "" : "constants";
}

CTensor GraphCodegenC::TypeOf(const JSONGraphNodeEntry& entry) const {
  const JSONGraphNode& node = graph_.nodes[entry.id_];
  CTensor tensor;
  tensor.dtype = DataType(node.GetOpDataType()[entry.index_]);
  tensor.shape = node.GetOpShape()[entry.index_];
  for (int64_t dim : tensor.shape) {
    CHECK_GE(dim, 0) << symbol_ << ": a tensor of node " << entry.id_ << " " << node.GetOpName()
                     << " has a dimension that is not known. C source needs fixed shapes: give "
                     << "them in the model, or use a JSON codegen";
  }
  return tensor;
}

const CTensor& GraphCodegenC::TensorOf(const JSONGraphNodeEntry& entry) const {
  return tensors_.at({entry.id_, entry.index_});
}

void GraphCodegenC::NameArguments() {
  std::unordered_map<std::string, int> numbers;
  for (const String& name : const_names_) numbers.emplace(name, numbers.size());
  constants_.resize(numbers.size());
  for (uint32_t id : graph_.arg_nodes) {
    const JSONGraphNode& node = graph_.nodes[id];
    for (uint32_t index = 0; index < node.GetNumOutput(); ++index) {
      CTensor tensor = TypeOf({id, index});
      if (node.GetOpType() == "const") {
        tensor.constant = numbers.at(node.GetOpName());
        tensor.name = "const_" + std::to_string(tensor.constant);
        constants_[tensor.constant] = tensor;
      } else {
        // Not by the parameter's name, which may be a keyword of C and is numbered anyhow.
        tensor.name = "in" + std::to_string(inputs_.size());
        inputs_.push_back(tensor);
      }
      tensors_[{id, index}] = tensor;
    }
  }
}

void GraphCodegenC::NameKernels() {
  std::map<std::pair<uint32_t, uint32_t>, int> reads;
  for (const JSONGraphNode& node : graph_.nodes) {
    for (const JSONGraphNodeEntry& entry : node.GetInputs()) ++reads[{entry.id_, entry.index_}];
  }
  // A result goes straight to the caller, unless the caller gets it twice or it is an argument.
  for (const JSONGraphNodeEntry& head : graph_.heads) {
    CTensor output = TypeOf(head);
    output.name = "out" + std::to_string(outputs_.size());
    outputs_.push_back(output);
    const auto [it, is_new] = tensors_.emplace(std::make_pair(head.id_, head.index_), output);
    if (!is_new) copies_.emplace_back(it->second, output);
  }
  for (uint32_t id = 0; id < graph_.nodes.size(); ++id) {
    const JSONGraphNode& node = graph_.nodes[id];
    if (node.GetOpType() != "kernel") continue;
    CKernel kernel{static_cast<int>(kernels_.size()), &node, {}, {}};
    std::vector<std::string> done;
    for (uint32_t index = 0; index < node.GetNumOutput(); ++index) {
      CTensor tensor = TypeOf({id, index});
      if (tensors_.count({id, index}) == 0) {
        const int count = reads[{id, index}];
        // An output that nobody reads still needs memory of its own while the kernel runs.
        tensor.name = buffers_.Take(tensor.dtype, tensor.NumBytes(), std::max(count, 1));
        if (count == 0) done.push_back(tensor.name);
        tensors_[{id, index}] = tensor;
      }
      kernel.outputs.push_back(TensorOf({id, index}));
    }
    for (const JSONGraphNodeEntry& entry : node.GetInputs()) {
      kernel.inputs.push_back(TensorOf(entry));
      done.push_back(kernel.inputs.back().name);
    }
    for (const std::string& name : done) buffers_.Read(name);
    kernels_.push_back(std::move(kernel));
  }
}

void GraphCodegenC::PrintComment(const std::string& text) {
  std::string line = "/* ";
  std::istringstream words(text);
  std::string word;
  bool is_first = true;
  while (words >> word) {
    // The text may hold the names of a model, and those may hold anything.
    for (size_t at; (at = word.find("*/")) != std::string::npos;) word.replace(at, 2, "* /");
    if (!is_first && line.size() + 1 + word.size() + 8 > kColumns) {
      PrintIndents();
      code_stream_ << line << "\n";
      line = " * ";
      is_first = true;
    }
    line += (is_first ? "" : " ") + word;
    is_first = false;
  }
  PrintIndents();
  code_stream_ << line << " */\n";
}

void GraphCodegenC::PrintList(const std::string& begin, const std::vector<std::string>& items,
                              const std::string& between, const std::string& end) {
  const std::string indent(begin.size() <= 40 ? begin.size() : 4, ' ');
  std::string line = begin;
  for (size_t i = 0; i < items.size(); ++i) {
    const std::string item = items[i] + (i + 1 < items.size() ? between : end);
    if (i > 0 && line.size() + item.size() > kColumns) {
      // Without the space after the comma.
      code_stream_ << line.substr(0, line.find_last_not_of(' ') + 1) << "\n";
      line = indent;
    }
    line += item;
  }
  code_stream_ << line << (items.empty() ? end : "");
}

void GraphCodegenC::PrintFunction() {
  std::vector<std::string> parameters;
  for (const auto* tensors : {&inputs_, &outputs_}) {
    for (const CTensor& tensor : *tensors) {
      parameters.push_back(GetDtypeString(tensor.dtype) + "* " + tensor.name);
    }
  }
  code_stream_ << "\n";
  const std::string name =
      is_unpacked_ ? "TVM_DLL int32_t " + symbol_ : "static int32_t " + symbol_ + "_";
  PrintList(name + "(", parameters, ", ", ") {\n");
  EnterScope();
  PrintIndents();
  code_stream_ << "int32_t status = -1;\n";
  for (const CTensor& constant : constants_) {
    PrintIndents();
    code_stream_ << GetDtypeString(constant.dtype) << "* " << constant.name << " = ("
                 << GetDtypeString(constant.dtype) << "*)" << constant_array() << "["
                 << constant.constant << "]->data;\n";
  }
  std::vector<std::string> missing;
  for (const CBuffer& buffer : buffers_.buffers()) {
    const std::string type = GetDtypeString(buffer.dtype);
    PrintIndents();
    code_stream_ << type << "* " << buffer.name << " = (" << type
                 << "*)TVMBackendAllocWorkspace(kDLCPU, 0, " << std::max<int64_t>(buffer.bytes, 1)
                 << ", " << TypeCode(buffer.dtype) << ", " << buffer.dtype.bits() << ");\n";
    missing.push_back(buffer.name + " == NULL");
  }
  bool has_jump = !missing.empty();
  if (!missing.empty()) {
    PrintList("  if (", missing, " || ", ") {\n");
    code_stream_ << "    TVMAPISetLastError(\"" << symbol_
                 << ": no memory for intermediate results\");\n"
                 << "    goto done;\n  }\n";
  }
  code_stream_ << "\n";
  for (const CKernel& kernel : kernels_) has_jump = CallKernel(kernel) || has_jump;
  for (const auto& [from, to] : copies_) {
    PrintIndents();
    code_stream_ << "memcpy(" << to.name << ", " << from.name << ", " << to.NumBytes() << ");\n";
  }
  code_stream_ << "  status = 0;\n";
  if (has_jump) code_stream_ << "\ndone:\n";
  const auto& buffers = buffers_.buffers();
  for (auto it = buffers.rbegin(); it != buffers.rend(); ++it) {
    PrintIndents();
    code_stream_ << "if (" << it->name << " != NULL) TVMBackendFreeWorkspace(kDLCPU, 0, "
                 << it->name << ");\n";
  }
  code_stream_ << "  return status;\n}\n";
  ExitScope();
}

void GraphCodegenC::PrintCheck() {
  code_stream_ << R"(
/* The data of an argument, or NULL if it is not of the type that this code was made for. */
static void* argument_data(const DLTensor* tensor, const char* name, const char* type, int code,
                           int bits, int ndim, const int64_t* shape) {
  char message[512];
  int64_t stride = 1;
  int i;
  int is_right = tensor != NULL && tensor->data != NULL && tensor->device.device_type == kDLCPU &&
                 tensor->dtype.code == code && tensor->dtype.bits == bits &&
                 tensor->dtype.lanes == 1 && tensor->ndim == ndim;
  /* The AOT executor knows no more of a tensor than its address. */
  if (tensor != NULL && tensor->data != NULL && tensor->dtype.code == kDLOpaqueHandle &&
      tensor->ndim == 0) {
    return tensor->data;
  }
  for (i = ndim - 1; is_right && i >= 0; --i) {
    is_right = tensor->shape[i] == shape[i] &&
               (tensor->strides == NULL || shape[i] == 1 || tensor->strides[i] == stride);
    stride *= shape[i];
  }
  if (is_right) return (char*)tensor->data + tensor->byte_offset;
  snprintf(message, sizeof(message), "%s: %s must be a row-major tensor on the CPU, %s",
           ")" << symbol_
               << R"(", name, type);
  TVMAPISetLastError(message);
  return NULL;
}
)";
}

void GraphCodegenC::PrintWrapper() {
  std::vector<std::string> parameters, values, missing;
  std::ostringstream shapes, data;
  for (const auto* tensors : {&inputs_, &outputs_}) {
    for (const CTensor& tensor : *tensors) {
      const std::string type = GetDtypeString(tensor.dtype);
      parameters.push_back("DLTensor* " + tensor.name);
      values.push_back(tensor.name + "_data");
      missing.push_back(tensor.name + "_data == NULL");
      shapes << "  static const int64_t " << tensor.name << "_shape[] = {"
             << (tensor.shape.empty() ? "1" : ShapeText(tensor.shape)) << "};\n";
      data << "  " << type << "* " << tensor.name << "_data = (" << type << "*)argument_data(\n"
           << "      " << tensor.name << ", \"" << tensor.name << "\", \"" << tensor.TypeText()
           << "\", " << TypeCode(tensor.dtype) << ", " << tensor.dtype.bits() << ", "
           << tensor.shape.size() << ", " << tensor.name << "_shape);\n";
    }
  }
  code_stream_ << "\n/* The same for tensors. */\n";
  PrintList("static int32_t " + symbol_ + "_wrapper_(", parameters, ", ", ") {\n");
  code_stream_ << shapes.str() << data.str();
  PrintList("  if (", missing, " || ", ") return -1;\n");
  PrintList("  return " + symbol_ + "_(", values, ", ", ");\n");
  code_stream_ << "}\n";
}

std::string GraphCodegenC::Generate() {
  PrintHeader();
  code_stream_ << "#include <dlpack/dlpack.h>\n#include <stdint.h>\n#include <stdio.h>\n"
               << "#include <stdlib.h>\n#include <string.h>\n"
               << "#include <tvm/runtime/c_backend_api.h>\n"
               << "#include <tvm/runtime/c_runtime_api.h>\n";
  BeginExternC();
  const std::string array = constant_array();
  if (!array.empty()) PrintConstantArray(symbol_, array, constants_.size());
  for (const CKernel& kernel : kernels_) DeclareKernel(kernel);
  DeclareKernels();
  PrintFunction();
  if (is_unpacked_) {
    CHECK(array.empty()) << symbol_ << " has constants, which the unpacked API cannot pass. "
                         << "Keep them out of the partitions with "
                         << "PartitionGraph(bind_constants=False)";
    EndExternC();
    return JIT({});
  }
  PrintCheck();
  PrintWrapper();
  if (!array.empty()) {
    PrintConstantInit(symbol_, array, constants_.size(), ConstantGetter(), PrepareStatements());
  }
  PrintPackedFunc(symbol_, inputs_.size() + outputs_.size(), array);
  PrintRelease(symbol_, array, ReleaseStatements());
  EndExternC();
  return JIT({});
}

runtime::Module GraphCodegenC::CreateModule() {
  const auto* create = runtime::Registry::Get("runtime.CSourceModuleCreate");
  ICHECK(create != nullptr) << "this TVM has no C source modules";
  // Constants of an import are no business of TVM's const loader.
  const Array<String> from_loader = ConstantGetter().empty() ? const_names_ : Array<String>();
  return (*create)(String(Generate()), "c", Array<String>{symbol_}, from_loader);
}

}  // namespace contrib
}  // namespace relay
}  // namespace tvm
