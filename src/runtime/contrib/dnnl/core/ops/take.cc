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
 * \file src/runtime/contrib/dnnl/core/ops/take.cc
 * \brief Gathers the items of an axis by computed or constant indices.
 */
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "../exec/parallel.h"
#include "../op_table.h"
#include "types.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief The axis of the data; without an attribute the elements are one axis. */
int AxisOf(const NodeReader& node, const Dims& data) {
  return node.Axis("axis", 0, static_cast<int>(data.size()));
}

/*!
 * \brief A constant as bytes, which need no alignment. A table of embeddings stays in the file of
 * its library then, of which only the pages of rows that are read come into memory.
 */
Tensor AsBytes(const Tensor& value) {
  const auto size = static_cast<int64_t>(value.md.get_size());
  return {value.buffer, PlainDesc({size}, dnnl::memory::data_type::u8)};
}

/*! \brief Copy items of a row at `offsets` to neighbouring ones. */
using CopyItems = void (*)(const char* from, const int64_t* offsets, int64_t count, int64_t bytes,
                           char* to);

/*! \brief Items of a constant number of bytes, each copied by one instruction; 0: of any number. */
template <int64_t kBytes>
void Copy(const char* from, const int64_t* offsets, int64_t count, int64_t bytes, char* to) {
  const int64_t size = kBytes == 0 ? bytes : kBytes;
  for (int64_t i = 0; i < count; ++i) std::memcpy(to + i * size, from + offsets[i], size);
}

CopyItems CopyOf(int64_t bytes) {
  switch (bytes) {
    case 1:
      return Copy<1>;
    case 2:
      return Copy<2>;
    case 4:
      return Copy<4>;
    case 8:
      return Copy<8>;
    case 16:
      return Copy<16>;
    default:
      return Copy<0>;
  }
}

}  // namespace

Types InferTake(const NodeReader& node, const Types& inputs) {
  const Dims& data = inputs[0].shape;
  CheckMinRank(node, inputs, 0, 1);
  CORE_CHECK(inputs[1].dtype == kInt32)
      << node.Where() << ": input 1 is " << ToText(inputs[1]) << ", expected: int32";
  CORE_CHECK(node.Has("axis") || data.size() == 1)
      << node.Where() << ": axis is missing, data has shape " << ToText(data);
  const auto mode = node.Get<std::string>("mode", "clip");
  CORE_CHECK(mode == "clip" || mode == "wrap" || mode == "fast")
      << node.Where() << ": mode is " << mode << ", expected: clip, wrap or fast";
  CORE_CHECK(node.Get<int64_t>("batch_dims", 0) == 0)
      << node.Where() << ": batch_dims is not supported";
  Dims dims = data;
  const int axis = AxisOf(node, data);
  dims.erase(dims.begin() + axis);
  dims.insert(dims.begin() + axis, inputs[1].shape.begin(), inputs[1].shape.end());
  return {{dims, inputs[0].dtype}};
}

void LowerTake(const NodeReader& node, PlanBuilder* plan) {
  const Tensor data = plan->Plain(node, plan->Input(node, 0));
  const Tensor indices = plan->Plain(node, plan->Input(node, 1));
  const Tensor dst = plan->NewTensor(PlainDesc(node.OutDims(), node.OutType()));
  const Dims dims = data.dims();
  const int axis = AxisOf(node, dims);
  const int64_t size = dims[axis], outer = NumElements(Dims(dims.begin(), dims.begin() + axis));
  const int64_t inner = NumElements(Dims(dims.begin() + axis + 1, dims.end()));
  const int64_t count = NumElements(indices.dims());
  const int64_t bytes = inner * dnnl::memory::data_type_size(data.dtype());
  const auto mode = node.Get<std::string>("mode", "clip");
  const auto item_of = [size, wraps = mode == "wrap", is_fast = mode == "fast"](int64_t wanted) {
    if (wraps && (wanted < 0 || wanted >= size)) wanted = (wanted % size + size) % size;
    // For this mode any result is right; importers write negative indices so.
    if (is_fast && wanted < 0) wanted += size;
    return std::clamp<int64_t>(wanted, 0, size - 1);
  };
  const auto copy = CopyOf(bytes);
  const int64_t room = std::max<int64_t>(count, 1) * static_cast<int64_t>(sizeof(int64_t));
  const Tensor scratch = plan->NewTensor(PlainDesc({room}, dnnl::memory::data_type::u8));
  // A thread is worth some 10 us.
  const int64_t grain = std::max<int64_t>(1, 16384 / std::max<int64_t>(bytes, 4));
  const auto run = [=](void* const* addresses) {
    const auto* from = static_cast<const char*>(addresses[0]);
    const auto* index = static_cast<const int32_t*>(addresses[1]);
    auto* to = static_cast<char*>(addresses[2]);
    // All that precedes the axis shares the offsets of the items.
    auto* offsets = static_cast<int64_t*>(addresses[3]);
    ParallelFor(count, 16384, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) offsets[i] = item_of(index[i]) * bytes;
    });
    ParallelFor(outer * count, grain, [&](int64_t first, int64_t last) {
      for (int64_t i = first, items; i < last; i += items) {
        const int64_t row = i / count, column = i % count;
        items = std::min(last - i, count - column);
        copy(from + row * size * bytes, offsets + column, items, bytes, to + i * bytes);
      }
    });
  };
  plan->EmitKernel(node, "gather", run,
                   {{DNNL_ARG_SRC_0, plan->IsConstant(data) ? AsBytes(data) : data},
                    {DNNL_ARG_SRC_1, indices},
                    {DNNL_ARG_DST, dst},
                    {DNNL_ARG_SCRATCHPAD, scratch}});
  plan->SetOutput(node, dst);
}

}  // namespace tvm::runtime::contrib::dnnl_backend
