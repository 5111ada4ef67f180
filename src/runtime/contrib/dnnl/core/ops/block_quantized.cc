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
 * \file src/runtime/contrib/dnnl/core/ops/block_quantized.cc
 * \brief Matmuls of float32 rows by weights of 4 or 8 bits with a scale for each block of a row.
 *
 * Many rows are computed in float32, or in int8 where the attribute accuracy_level permits it; one
 * row in integers that are as exact as float32.
 */
#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "../exec/parallel.h"
#include "../kernels/block_int8.h"
#include "../kernels/block_loops.h"
#include "../kernels/block_panels.h"
#include "../op_table.h"
#include "rows.h"
#include "types.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief The weights that are dequantized at once for many rows: a panel fits into the caches. */
constexpr int64_t kPanelBytes = 1 << 20;

/*! \brief A node's sizes: rows of data by channels of blocks. */
struct Sizes : BlockSizes {
  int64_t rows, summed, channels;
  /*! \brief What messages call the node. */
  std::string where;

  /*! \brief The channels of a panel. */
  int64_t panel() const {
    const int64_t most = kPanelBytes / (padded() * static_cast<int64_t>(sizeof(float)));
    return std::min(channels, std::max<int64_t>(16, most / 16 * 16));
  }
  /*! \brief The channels that a thread reads at least: 32 KB take a microsecond or two. */
  int64_t grain() const { return std::max<int64_t>(1, 32768 / weight_bytes()); }
  bool has_few_rows() const { return rows <= kMostRows; }
  /*! \brief Whether data is packed into panels of rows; else oneDNN's sgemm reads it. */
  bool packs_data() const {
    // Up to this float32 has all integers, by which the order of a row is known.
    constexpr int64_t kMostSummed = 1 << 24;
    return !has_few_rows() && summed < kMostSummed && HasPanelProducts();
  }
  int64_t panel_rows() const { return (rows + kPanelRows - 1) / kPanelRows * kPanelRows; }
};

/*! \brief The addresses of a run. */
struct Addresses {
  const float* data;
  BlockRow weight;
  float *arranged, *sums, *panel, *packed;
  float* dst;
};

/*! \brief Multiply few rows: the weights are read once, as they are. */
void RunFewRows(const Sizes& s, const Addresses& a) {
  ParallelFor(s.channels, s.grain(), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      MultiplyBlocks(s.Channel(a.weight, n), s.bits, s.block, s.blocks, a.arranged, a.sums, s.rows,
                     a.dst + n, s.channels);
    }
  });
}

/*! \brief Dequantize some channels of a panel that begins at channel `first`. */
void Dequantize(const Sizes& s, const Addresses& a, int64_t first, int64_t begin, int64_t end) {
  for (int64_t n = begin; n < end; ++n) {
    DequantizeBlocks(s.Channel(a.weight, first + n), s.bits, s.block, s.blocks,
                     a.panel + n * s.padded());
  }
}

/*!
 * \brief Multiply many rows, packed once, by a panel of dequantized weights after the other.
 *
 * sgemm would pack all rows for each panel. A thread multiplies the channels that it dequantizes.
 */
void RunPackedRows(const Sizes& s, const int32_t* order, const Addresses& a) {
  constexpr int64_t kGroup = 8;
  const int64_t padded = s.padded();
  ParallelFor(s.panel_rows() / kPanelRows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i * kPanelRows;
      PackPanel(a.data + row * s.summed, std::min(kPanelRows, s.rows - row), s.summed, order,
                padded, a.packed + row * padded);
    }
  });
  for (int64_t first = 0; first < s.channels; first += s.panel()) {
    const int64_t count = std::min(s.panel(), s.channels - first);
    ParallelFor((count + kGroup - 1) / kGroup, 1, [&](int64_t begin, int64_t end) {
      const int64_t from = begin * kGroup, to = std::min(count, end * kGroup);
      Dequantize(s, a, first, from, to);
      MultiplyDataPanels(a.panel + from * padded, to - from, padded, a.packed, s.rows,
                         a.dst + first + from, s.channels);
    });
  }
}

/*! \brief Multiply many rows by a panel of dequantized weights after the other. */
void RunManyRows(const Sizes& s, const Addresses& a) {
  const int64_t padded = s.padded();
  for (int64_t first = 0; first < s.channels; first += s.panel()) {
    const int64_t count = std::min(s.panel(), s.channels - first);
    ParallelFor(count, 4, [&](int64_t begin, int64_t end) { Dequantize(s, a, first, begin, end); });
    MultiplyByRows(s.where, s.rows, count, padded, a.arranged, a.panel, a.dst + first, s.channels);
  }
}

/*! \brief Of each element of an arranged row, which of the row it is; -1 for zeros. */
std::vector<int32_t> ArrangedOrder(const Sizes& s) {
  std::vector<float> numbers(s.summed), arranged(s.padded()), sums(s.blocks);
  std::iota(numbers.begin(), numbers.end(), 1.f);
  ArrangeRow(numbers.data(), s.summed, s.bits, s.block, s.blocks, arranged.data(), sums.data());
  std::vector<int32_t> order;
  for (const float number : arranged) order.push_back(static_cast<int32_t>(number) - 1);
  return order;
}

void Run(const Sizes& s, const Addresses& a) {
  ParallelFor(s.rows, 4, [&](int64_t begin, int64_t end) {
    for (int64_t m = begin; m < end; ++m) {
      ArrangeRow(a.data + m * s.summed, s.summed, s.bits, s.block, s.blocks,
                 a.arranged + m * s.padded(), a.sums + m * s.blocks);
    }
  });
  s.has_few_rows() ? RunFewRows(s, a) : RunManyRows(s, a);
}

/*! \brief The value of accuracy_level that permits to quantize data to int8, as in the ONNX op. */
constexpr int64_t kInt8Level = 4;

/*!
 * \brief The digits in int8 that elements of data have; 0 for products in float32.
 *
 * To multiply one row by the weights takes no longer than to read these, whatever its digits are.
 */
int DigitsOf(const Sizes& s, int64_t level) {
  if (!HasBlockInt8(s.block)) return 0;
  if (s.rows == 1) return level == kInt8Level ? 2 : 3;
  return level == kInt8Level ? 1 : 0;
}

/*! \brief Quantize rows, once for all matmuls that read them in the same blocks. */
std::vector<Tensor> QuantizeRows(const NodeReader& node, PlanBuilder* plan, const Sizes& s,
                                 const Tensor& data) {
  using Type = dnnl::memory::data_type;
  std::string kind = "digits";
  for (int64_t each : {int64_t{s.digits}, int64_t{s.bits}, s.block}) {
    kind += "_" + std::to_string(each);
  }
  return plan->Derived(data, kind, [&]() {
    const Tensor values = plan->NewTensor(PlainDesc({s.rows, s.digits * s.row_bytes()}, Type::s8));
    const Tensor scales = plan->NewTensor(PlainDesc({s.rows, s.blocks}, Type::f32));
    const Tensor shifts = plan->NewTensor(PlainDesc({s.rows, s.blocks}, Type::f32));
    const auto run = [s](void* const* at) {
      const auto* src = static_cast<const float*>(at[0]);
      const Int8Rows to = {static_cast<int8_t*>(at[1]), static_cast<float*>(at[2]),
                           static_cast<float*>(at[3])};
      ParallelFor(s.rows, 16, [&](int64_t begin, int64_t end) {
        for (int64_t m = begin; m < end; ++m) {
          QuantizeBlocks(src + m * s.summed, s.summed, s, to.Row(s, m));
        }
      });
    };
    plan->EmitKernel(node, "block_quantize", run,
                     {{DNNL_ARG_SRC, data},
                      {DNNL_ARG_DST, values},
                      {DNNL_ARG_DST_1, scales},
                      {DNNL_ARG_DST_2, shifts}});
    return std::vector<Tensor>{values, scales, shifts};
  });
}

/*! \brief Multiply rows of digits. One row reads each channel as it is. */
void RunInt8(const Sizes& s, const BlockRow& weight, const Int8Rows& data, float* dst) {
  if (s.rows == 1) {
    ParallelFor(s.channels, s.grain(), [&](int64_t begin, int64_t end) {
      MultiplyInt8Row(s.Channel(weight, begin), end - begin, s, data, dst + begin);
    });
    return;
  }
  ParallelFor((s.channels + kInt8Channels - 1) / kInt8Channels, 1, [&](int64_t i, int64_t end) {
    for (; i < end; ++i) {
      const int64_t n = i * kInt8Channels;
      MultiplyInt8Rows(s.Channel(weight, n), std::min(kInt8Channels, s.channels - n), s, data,
                       s.rows, dst + n, s.channels);
    }
  });
}

Sizes ReadSizes(const NodeReader& node, const Dims& data, const Dims& scales) {
  const int64_t summed = data.back();
  return {{static_cast<int>(node.Get<int64_t>("bits")), node.Get<int64_t>("block_size"), scales[1]},
          NumElements(data) / summed,
          summed,
          scales[0],
          node.Where()};
}

/*!
 * \brief Emit a matmul of rows of digits.
 * \param operands As of the node, the last one may be undefined.
 */
void LowerInt8(const NodeReader& node, PlanBuilder* plan, const Sizes& sizes,
               const std::vector<Tensor>& operands) {
  const std::vector<Tensor> rows = QuantizeRows(node, plan, sizes, operands[0]);
  const Tensor dst = plan->NewTensor(PlainDesc(node.OutDims(), node.OutType()));
  const bool has_zeros = operands[3].defined();
  const auto run = [sizes, has_zeros](void* const* at) {
    const Int8Rows data = {static_cast<int8_t*>(at[0]), static_cast<float*>(at[1]),
                           static_cast<float*>(at[2])};
    const BlockRow weight = {static_cast<const uint8_t*>(at[3]), static_cast<const float*>(at[4]),
                             has_zeros ? static_cast<const uint8_t*>(at[6]) : nullptr};
    RunInt8(sizes, weight, data, static_cast<float*>(at[5]));
  };
  PlanBuilder::Args args = {{DNNL_ARG_SRC, rows[0]},
                            {DNNL_ARG_ATTR_SCALES | DNNL_ARG_SRC, rows[1]},
                            {DNNL_ARG_SRC_1, rows[2]},
                            {DNNL_ARG_WEIGHTS, operands[1]},
                            {DNNL_ARG_ATTR_SCALES | DNNL_ARG_WEIGHTS, operands[2]},
                            {DNNL_ARG_DST, dst}};
  if (has_zeros) args.emplace_back(DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_WEIGHTS, operands[3]);
  plan->EmitKernel(node, "block_quantized_matmul", run, args);
  plan->SetVariant(std::to_string(sizes.bits) + "-bit weights as they are, data in int" +
                       std::to_string(8 * sizes.digits),
                   BlockQuantizedFlops(node, *plan));
  plan->SetOutput(node, dst);
}

}  // namespace

Types InferBlockQuantizedDense(const NodeReader& node, const Types& inputs) {
  CheckMinRank(node, inputs, 0, 1);
  CORE_CHECK(inputs[0].dtype == kFloat32)
      << node.Where() << ": data is " << ToText(inputs[0]) << ", expected: float32";
  for (int i : {1, 2}) CheckRank(node, inputs, i, 2);
  const auto bits = node.Get<int64_t>("bits"), block = node.Get<int64_t>("block_size");
  CORE_CHECK(bits == 4 || bits == 8)
      << node.Where() << ": bits is " << bits << ", expected: 4 or 8";
  CORE_CHECK(block > 0 && block <= kMaxSize && block % kUnit == 0)
      << node.Where() << ": block_size is " << block << ", expected: a multiple of " << kUnit;
  const auto level = node.Get<int64_t>("accuracy_level", 0);
  CORE_CHECK(level >= 0 && level <= kInt8Level)
      << node.Where() << ": accuracy_level is " << level << ", expected: 0 to " << kInt8Level;
  Dims dims = inputs[0].shape;
  const int64_t blocks = (dims.back() + block - 1) / block;
  const Dims &weight = inputs[1].shape, &scales = inputs[2].shape;
  CORE_CHECK(inputs[1].dtype == kUInt8 && weight[1] == blocks * block * bits / 8)
      << node.Where() << ": weight is " << ToText(inputs[1]) << ", but " << bits
      << " bits of rows of " << dims.back() << " elements in blocks of " << block << " are "
      << blocks * block * bits / 8 << " elements of uint8";
  const Dims expected = {weight[0], blocks};
  CORE_CHECK(inputs[2].dtype == kFloat32 && scales == expected)
      << node.Where() << ": the scales are " << ToText(inputs[2]) << ", expected: float32 of shape "
      << ToText(expected);
  CORE_CHECK(inputs.size() < 4 || (inputs[3].dtype == kUInt8 && inputs[3].shape == expected))
      << node.Where() << ": the zero points are " << ToText(inputs[3])
      << ", expected: uint8 of shape " << ToText(expected);
  dims.back() = weight[0];
  return {{dims, kFloat32}};
}

double BlockQuantizedFlops(const NodeReader& node, const PlanBuilder& plan) {
  return 2. * NumElements(node.OutDims()) * plan.Input(node, 0).dims().back();
}

void LowerBlockQuantizedDense(const NodeReader& node, PlanBuilder* plan) {
  const auto plain = [&](int input) { return plan->Plain(node, plan->Input(node, input)); };
  const Tensor data = plain(0), weight = plain(1), scales = plain(2);
  const Tensor zero_points = node.NumRootInputs() > 3 ? plain(3) : Tensor{};
  Sizes sizes = ReadSizes(node, data.dims(), scales.dims());
  sizes.digits = DigitsOf(sizes, node.Get<int64_t>("accuracy_level", 0));
  if (sizes.digits > 0) return LowerInt8(node, plan, sizes, {data, weight, scales, zero_points});
  const auto floats = [&](int64_t count) {
    return plan->NewTensor(PlainDesc({count}, dnnl::memory::data_type::f32));
  };
  const bool is_few = sizes.has_few_rows();
  // One workspace: arranged rows, the sums of their blocks, a panel of weights, and packed rows.
  // The panel is aligned as the rows are.
  const bool packs = sizes.packs_data();
  const int64_t arranged = packs ? 0 : sizes.rows * sizes.padded();
  const int64_t sums = packs ? 0 : (sizes.rows * sizes.blocks + 15) / 16 * 16;
  const int64_t panel = is_few ? 0 : sizes.panel() * sizes.padded();
  const int64_t packed = packs ? sizes.panel_rows() * sizes.padded() : 0;
  const Tensor workspace = floats(arranged + sums + panel + packed);
  const Tensor dst = plan->NewTensor(PlainDesc(node.OutDims(), node.OutType()));
  const auto order = std::make_shared<const std::vector<int32_t>>(packs ? ArrangedOrder(sizes)
                                                                        : std::vector<int32_t>());
  const auto run = [sizes, arranged, sums, panel, order,
                    has_zeros = zero_points.defined()](void* const* at) {
    auto* const floats = static_cast<float*>(at[4]);
    const Addresses addresses = {
        static_cast<const float*>(at[0]),
        {static_cast<const uint8_t*>(at[1]), static_cast<const float*>(at[2]),
         has_zeros ? static_cast<const uint8_t*>(at[5]) : nullptr},
        floats,
        floats + arranged,
        floats + arranged + sums,
        floats + arranged + sums + panel,
        static_cast<float*>(at[3])};
    if (order->empty()) {
      Run(sizes, addresses);
    } else {
      RunPackedRows(sizes, order->data(), addresses);
    }
  };
  PlanBuilder::Args args = {{DNNL_ARG_SRC, data},
                            {DNNL_ARG_WEIGHTS, weight},
                            {DNNL_ARG_ATTR_SCALES | DNNL_ARG_WEIGHTS, scales},
                            {DNNL_ARG_DST, dst},
                            {DNNL_ARG_WORKSPACE, workspace}};
  if (zero_points.defined()) {
    args.emplace_back(DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_WEIGHTS, zero_points);
  }
  plan->EmitKernel(node, "block_quantized_matmul", run, args);
  const std::string bits = std::to_string(sizes.bits) + "-bit weights as they are";
  plan->SetVariant(bits + (is_few ? "" : ", dequantized in panels"),
                   BlockQuantizedFlops(node, *plan));
  plan->SetOutput(node, dst);
}

}  // namespace tvm::runtime::contrib::dnnl_backend
