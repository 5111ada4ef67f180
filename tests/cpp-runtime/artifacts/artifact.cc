// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/artifacts/artifact.cc
 * \brief Graphs with all that is needed to load and to run them.
 */
#include "artifact.h"

#include <tvm/runtime/data_type.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace artifacts {

namespace {

/*! \brief What an open dimension is where nothing tells. */
constexpr int64_t kOpenSize = 4;

bool ReadIndex(const Json& json, size_t end, size_t* index) {
  char* rest = nullptr;
  *index = std::strtoull(json.text.c_str(), &rest, 10);
  return json.kind == Json::Kind::kLiteral && *rest == '\0' && *index < end;
}

bool ReadDType(const std::string& text, DLDataType* dtype) {
  // TVM's parser reads past the end of some that begin like this.
  if (text.empty() || text.rfind("custom", 0) == 0) return false;
  try {
    *dtype = tvm::runtime::String2DLDataType(text);
  } catch (const std::exception&) {
    return false;
  }
  return dtype->lanes > 0 && dtype->bits > 0;
}

/*! \brief The types of a node's outputs; false where the node has none that make sense. */
bool ReadTypes(const Json& node, std::vector<TensorType>* types) {
  const Json* shapes = OutputsOf(node, "shape");
  const Json* dtypes = OutputsOf(node, "dtype");
  if (shapes == nullptr || dtypes == nullptr) return false;
  if (shapes->items.size() != dtypes->items.size()) return false;
  for (size_t i = 0; i < shapes->items.size(); ++i) {
    TensorType type;
    if (!ReadDType(dtypes->items[i].text, &type.dtype)) return false;
    for (const Json& size : shapes->items[i].items) {
      char* rest = nullptr;
      type.shape.push_back(std::strtoll(size.text.c_str(), &rest, 10));
      if (*rest != '\0' || type.shape.back() < -1) return false;
    }
    types->push_back(type);
  }
  return true;
}

double BytesOf(const std::vector<TensorType>& types) {
  double bytes = 0;
  for (const TensorType& type : types) bytes += type.bytes();
  return bytes;
}

void Close(const std::vector<TensorType>& from, int64_t more, std::vector<TensorType>* types) {
  for (size_t i = 0; i < types->size(); ++i) {
    std::vector<int64_t>& shape = (*types)[i].shape;
    const bool is_alike = i < from.size() && from[i].shape.size() == shape.size();
    for (size_t d = 0; d < shape.size(); ++d) {
      if (shape[d] >= 0) continue;
      const bool is_known = is_alike && from[i].shape[d] >= 0;
      shape[d] = (is_known ? from[i].shape[d] : kOpenSize) + more;
    }
  }
}

}  // namespace

double TensorType::elements() const {
  double product = 1;
  for (int64_t size : shape) product *= static_cast<double>(std::max<int64_t>(size, 1));
  return product;
}

double TensorType::bytes() const { return elements() * ((dtype.bits * dtype.lanes + 7) / 8); }

double Signature::bytes() const { return BytesOf(inputs) + BytesOf(constants) + BytesOf(outputs); }

bool ReadSignature(const Json& graph, const std::vector<std::string>* names, Signature* signature) {
  const Json* nodes = graph.Find("nodes");
  const Json* arguments = graph.Find("arg_nodes");
  const Json* heads = graph.Find("heads");
  const Json* symbol = graph.Find("symbol");
  if (nodes == nullptr || arguments == nullptr || heads == nullptr) return false;
  *signature = Signature();
  if (symbol != nullptr) signature->symbol = symbol->text;
  std::vector<std::vector<TensorType>> types(nodes->items.size());
  std::vector<double> sizes = {1, 1};
  for (size_t i = 0; i < types.size(); ++i) {
    if (!ReadTypes(nodes->items[i], &types[i])) return false;
    for (const TensorType& type : types[i]) sizes.push_back(type.elements());
  }
  std::partial_sort(sizes.begin(), sizes.begin() + 2, sizes.end(), std::greater<double>());
  signature->work = sizes[0] * sizes[1];

  std::vector<std::string> known;
  std::vector<TensorType> constants;
  for (const Json& argument : arguments->items) {
    size_t id = 0;
    if (!ReadIndex(argument, types.size(), &id)) return false;
    const Json* kind = nodes->items[id].Find("op");
    const Json* name = nodes->items[id].Find("name");
    if (kind != nullptr && kind->text == "const") {
      if (name == nullptr || types[id].size() != 1) return false;
      known.push_back(name->text);
      constants.push_back(types[id][0]);
    } else {
      signature->inputs.insert(signature->inputs.end(), types[id].begin(), types[id].end());
    }
  }
  signature->constant_names = names == nullptr ? known : *names;
  for (const std::string& name : signature->constant_names) {
    const auto it = std::find(known.begin(), known.end(), name);
    if (it == known.end()) return false;
    signature->constants.push_back(constants[it - known.begin()]);
  }
  for (const Json& head : heads->items) {
    size_t id = 0, index = 0;
    if (head.items.size() < 2 || !ReadIndex(head.items[0], types.size(), &id)) return false;
    if (!ReadIndex(head.items[1], types[id].size(), &index)) return false;
    signature->outputs.push_back(types[id][index]);
  }
  return true;
}

Signature Closed(Signature signature, const Signature& from, int64_t more) {
  Close(from.inputs, more, &signature.inputs);
  Close(from.constants, 0, &signature.constants);
  Close(from.outputs, more, &signature.outputs);
  return signature;
}

Fill AnyFill(Random* random) {
  const Fill others[] = {Fill::kZeros, Fill::kOnes, Fill::kAnything};
  return random->Chance(70) ? Fill::kOrdinary : random->Pick(others);
}

Tensor::Tensor(const TensorType& type, size_t alignment) : type_(type) {
  double elements = 1;
  for (int64_t size : type_.shape) elements *= static_cast<double>(size);
  const size_t element_bytes = (type.dtype.bits * type.dtype.lanes + 7) / 8;
  memory_ = std::make_unique<Guarded>(static_cast<size_t>(elements) * element_bytes,
                                      std::max(alignment, element_bytes));
  dl_ = {memory_->data(),
         {kDLCPU, 0},
         static_cast<int32_t>(type_.shape.size()),
         type_.dtype,
         type_.shape.data(),
         nullptr,
         0};
}

void Tensor::FillWith(Fill fill, Random* random) {
  auto* bytes = static_cast<unsigned char*>(memory_->data());
  const size_t size = memory_->bytes();
  const bool is_flag = type_.dtype.code == kDLUInt && type_.dtype.bits == 1;
  if (fill == Fill::kAnything) {
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<unsigned char>(random->Next() >> 7);
  } else if (fill != Fill::kOrdinary) {
    std::memset(bytes, fill == Fill::kZeros ? 0 : 0xff, size);
  } else if (type_.dtype.code == kDLFloat && type_.dtype.bits == 32) {
    // Such as scales, variances and weights may have.
    for (size_t i = 0; i + sizeof(float) <= size; i += sizeof(float)) {
      const float value = 0.125f * static_cast<float>(1 + random->Below(16));
      std::memcpy(bytes + i, &value, sizeof(value));
    }
  } else if (type_.dtype.code == kDLFloat || type_.dtype.code == kDLBfloat) {
    // Numbers of 16 bits between a thousandth and two.
    for (size_t i = 0; i < size; ++i) bytes[i] = i % 2 == 1 ? 0x3c : random->Below(256);
  } else {
    const size_t step = std::max(1, type_.dtype.bits / 8);
    std::memset(bytes, 0, size);
    for (size_t i = 0; i < size; i += step) bytes[i] = random->Below(is_flag ? 2 : 4);
  }
  // Any other byte is no bool.
  if (is_flag) {
    for (size_t i = 0; i < size; ++i) bytes[i] &= 1;
  }
}

void Tensor::FillWith(char byte) { std::memset(memory_->data(), byte, memory_->bytes()); }

std::string Tensor::Bytes() const {
  return std::string(static_cast<const char*>(memory_->data()), memory_->bytes());
}

}  // namespace artifacts
