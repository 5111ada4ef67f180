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
 * \file src/runtime/contrib/dnnl/core/utils.cc
 * \brief Small conversions between TVM's and oneDNN's vocabulary.
 */
#include "utils.h"

#ifndef _WIN32
#include <dlfcn.h>
#endif
#include <tvm/runtime/logging.h>

#include <algorithm>
#include <numeric>
#include <sstream>
#include <vector>

namespace tvm {
namespace runtime {
namespace contrib {
namespace dnnl_backend {

std::string LibraryVersion() {
  const dnnl_version_t* version = dnnl_version();
  std::ostringstream os;
  os << version->major << "." << version->minor << "." << version->patch;
  return os.str();
}

std::string LibraryAt(const void* address) {
#ifdef _WIN32
  return "";
#else
  Dl_info info;
  return dladdr(address, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
#endif
}

void CheckLibraryVersion() {
  const dnnl_version_t* version = dnnl_version();
  ICHECK(version->major == DNNL_VERSION_MAJOR && version->minor == DNNL_VERSION_MINOR)
      << "oneDNN " << LibraryVersion() << " was loaded, but the DNNL backend was built with the "
      << "headers of " << DNNL_VERSION_MAJOR << "." << DNNL_VERSION_MINOR
      << ". Put the matching libdnnl first on the library path, or build the backend again";
}

dnnl::memory::data_type ToDNNLType(DLDataType dtype, const std::string& where) {
  using Type = dnnl::memory::data_type;
  const DataType type(dtype);
  if (type == DataType::Float(32)) return Type::f32;
  if (type == DataType::BFloat(16)) return Type::bf16;
  if (type == DataType::Float(16)) return Type::f16;
  if (type == DataType::Int(32)) return Type::s32;
  if (type == DataType::Int(8)) return Type::s8;
  if (type == DataType::UInt(8)) return Type::u8;
  // One byte, 0 or 1.
  if (type == DataType::Bool()) return Type::u8;
  LOG(FATAL) << where << ": oneDNN has no data type " << type;
}

bool Computes(DLDataType dtype) {
  const auto type = ToDNNLType(dtype, "the DNNL backend");
  const dnnl::memory::desc md({16, 16}, type, dnnl::memory::format_tag::any);
  // Matrix multiplications of a type are there if anything is.
  const dnnl::matmul::primitive_desc desc(dnnl::engine(dnnl::engine::kind::cpu, 0), md, md, md,
                                          dnnl::primitive_attr(), /*allow_empty=*/true);
  return desc && !IsReference(desc);
}

Dims ToDims(const std::vector<int64_t>& shape, const std::string& where) {
  ICHECK_LE(shape.size(), DNNL_MAX_NDIMS)
      << where << ": rank " << shape.size() << " exceeds oneDNN's limit of " << DNNL_MAX_NDIMS;
  for (int64_t dim : shape) {
    ICHECK_GT(dim, 0) << where << ": shape " << ToText(shape)
                      << (dim < 0 ? " has a dimension that is not static"
                                  : " has a dimension of size zero");
  }
  return shape.empty() ? Dims{1} : Dims(shape.begin(), shape.end());
}

dnnl::memory::desc PlainDesc(const Dims& dims, dnnl::memory::data_type dtype) {
  Dims strides(dims.size(), 1);
  for (int i = static_cast<int>(dims.size()) - 2; i >= 0; --i) {
    strides[i] = strides[i + 1] * dims[i + 1];
  }
  return dnnl::memory::desc(dims, dtype, strides);
}

dnnl::memory::desc AnyDesc(const dnnl::memory::desc& md) {
  return dnnl::memory::desc(md.get_dims(), md.get_data_type(), dnnl::memory::format_tag::any);
}

bool IsPlain(const dnnl::memory::desc& md) {
  if (md.get_format_kind() != dnnl::memory::format_kind::blocked) return false;
  const Dims dims = md.get_dims();
  const Dims strides = md.get_strides();
  if (!md.get_inner_blks().empty() || md.get_padded_dims() != dims) return false;
  if (md.get_submemory_offset() != 0) return false;
  int64_t expected = 1;
  for (int i = static_cast<int>(dims.size()) - 1; i >= 0; --i) {
    // The stride of a dimension of size one is never used, whatever its value.
    if (dims[i] != 1 && strides[i] != expected) return false;
    expected *= dims[i];
  }
  return true;
}

bool IsReference(const dnnl::primitive_desc_base& desc) {
  return std::string(desc.impl_info_str()).rfind("ref", 0) == 0;
}

int64_t NumElements(const Dims& dims) {
  return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<int64_t>());
}

std::string ToText(const Dims& dims) {
  std::ostringstream os;
  os << "[";
  for (size_t i = 0; i < dims.size(); ++i) os << (i ? ", " : "") << dims[i];
  os << "]";
  return os.str();
}

std::string LayoutText(const dnnl::memory::desc& md) {
  if (md.get_format_kind() != dnnl::memory::format_kind::blocked) return "opaque";
  const Dims strides = md.get_strides();
  const Dims blocks = md.get_inner_blks();
  const Dims block_axes = md.get_inner_idxs();
  std::vector<int> order(strides.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&strides](int a, int b) { return strides[a] > strides[b]; });
  std::ostringstream os;
  for (int axis : order) {
    const bool is_blocked = std::count(block_axes.begin(), block_axes.end(), axis) > 0;
    os << static_cast<char>((is_blocked ? 'A' : 'a') + axis);
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    os << blocks[i] << static_cast<char>('a' + block_axes[i]);
  }
  return os.str();
}

}  // namespace dnnl_backend
}  // namespace contrib
}  // namespace runtime
}  // namespace tvm
