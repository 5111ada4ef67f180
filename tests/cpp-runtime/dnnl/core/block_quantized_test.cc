// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/dnnl/core/block_quantized_test.cc
 * \brief Matmuls by packed weights of 4 and 8 bits against sums in float64.
 */
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "quantized_graph.h"
#include "src/runtime/contrib/dnnl/core/kernels/block_int8.h"

namespace dnnl_test::block_quantized {

struct Case {
  int64_t rows{1}, summed{96}, channels{20}, block{32};
  int bits{4};
  bool has_zero_points{false};
  /*! \brief Whether data may be quantized to int8. */
  bool permits_int8{false};
  bool is_finite{true};

  bool has_digits() const { return tvm::runtime::contrib::dnnl_backend::HasBlockInt8(block); }
  bool is_int8() const { return permits_int8 && has_digits(); }
  /*! \brief What the largest element of a block becomes: one row has two digits. */
  float largest_step() const { return rows == 1 ? 32638.f : 127.f; }
  int64_t blocks() const { return (summed + block - 1) / block; }
  std::string Text() const {
    return std::to_string(rows) + " rows of " + std::to_string(summed) + " by " +
           std::to_string(channels) + ", " + std::to_string(bits) + " bits in blocks of " +
           std::to_string(block) + (is_int8() ? ", int8" : "");
  }
  std::string Variant() const {
    const std::string as_is = std::to_string(bits) + "-bit weights as they are";
    if (is_int8()) return as_is + (rows == 1 ? ", data in int16" : ", data in int8");
    if (rows == 1 && has_digits()) return as_is + ", data in int24";
    return as_is + (rows <= 4 ? "" : ", dequantized in panels");
  }
};

/*! \brief Two elements in a byte, the first in the lower bits. */
Array Packed(const Array& values, int bits) {
  if (bits == 8) return values;
  Array packed{values.shape, kUInt8, {}};
  packed.shape.back() /= 2;
  for (size_t i = 0; i < values.values.size(); i += 2) {
    packed.values.push_back(values.values[i] + 16 * values.values[i + 1]);
  }
  return packed;
}

/*! \brief The values of data in integers, with a scale for each block of a row. */
Array InBlocks(const Case& c, Array data) {
  for (int64_t m = 0; m < c.rows; ++m) {
    for (int64_t first = 0; first < c.summed; first += c.block) {
      double* block = data.values.data() + m * c.summed + first;
      const int64_t count = std::min(c.block, c.summed - first);
      double largest = 0;
      for (int64_t k = 0; k < count; ++k) largest = std::max(largest, std::abs(block[k]));
      const float factor = c.largest_step() / static_cast<float>(largest);
      for (int64_t k = 0; k < count; ++k) {
        const float steps = static_cast<float>(block[k]) * factor;
        block[k] = largest < 1e-36 ? 0 : std::nearbyint(steps) * largest / c.largest_step();
      }
    }
  }
  return data;
}

/*! \brief A matmul: its operands, its result, and the step that computed it. */
struct Matmul {
  Array data, result;
  StepInfo step;

  Matmul(const Case& c, const Array& values);
};

Matmul::Matmul(const Case& c, const Array& values) : data(values) {
  QuantizedGraph graph;
  const double largest = (1 << c.bits) - 1;
  const int64_t padded = c.blocks() * c.block;
  const Array weight = Noise({c.channels, padded}, kUInt8, 0, largest, 3);
  const Array scales = Noise({c.channels, c.blocks()}, kFloat, 0.005, 0.02, 5);
  const Array zeros = Noise({c.channels, c.blocks()}, kUInt8, 0, largest, 7);
  const Array used = c.is_int8() ? InBlocks(c, data) : data;
  Array expected{{c.rows, c.channels}, kFloat, {}};
  for (int64_t m = 0; m < c.rows; ++m) {
    for (int64_t n = 0; n < c.channels; ++n) {
      double sum = 0;
      for (int64_t k = 0; k < c.summed; ++k) {
        const int64_t block = n * c.blocks() + k / c.block;
        const double zero = c.has_zero_points ? zeros.values[block] : 1 << (c.bits - 1);
        sum += used.values[m * c.summed + k] * (weight.values[n * padded + k] - zero) *
               scales.values[block];
      }
      expected.values.push_back(sum);
    }
  }
  std::vector<Entry> inputs = {graph.Input(data), graph.Constant(Packed(weight, c.bits)),
                               graph.Constant(scales)};
  if (c.has_zero_points) inputs.push_back(graph.Constant(zeros));
  Node* node = graph.Add("dnnl.block_quantized_dense", inputs, expected.shape, kFloat);
  node->attrs["bits"] = std::to_string(c.bits);
  node->attrs["block_size"] = std::to_string(c.block);
  if (c.permits_int8) node->attrs["accuracy_level"] = std::string("4");
  result = graph.Run();
  step = graph.Find("block_quantized_matmul");
  if (!c.is_finite) return;
  // Sums of up to 2048 products in float32, the terms of which are larger than the result.
  ExpectNear(result, expected, 2e-5 * (c.bits == 4 ? 1 : 16), 0, c.Text());
}

StepInfo Check(const Case& c) { return Matmul(c, Noise({c.rows, c.summed}, kFloat, -1, 1)).step; }

TEST(DNNLBlockQuantized, RowsBitsAndBlocks) {
  for (int bits : {4, 8}) {
    for (int64_t block : {32, 128}) {
      for (int64_t rows : {1, 2, 3, 4, 5, 33}) {
        Case c;
        c.bits = bits;
        c.block = block;
        c.rows = rows;
        c.has_zero_points = rows % 2 == 0;
        EXPECT_EQ(Check(c).variant, c.Variant());
      }
    }
  }
}

TEST(DNNLBlockQuantized, RowsThatAreNoMultipleOfTheBlock) {
  for (int64_t summed : {1, 31, 33, 95, 130}) {
    for (int64_t rows : {1, 6}) {
      for (int bits : {4, 8}) {
        Case c;
        c.summed = summed;
        c.rows = rows;
        c.bits = bits;
        Check(c);
      }
    }
  }
}

TEST(DNNLBlockQuantized, SeveralPanels) {
  Case c;
  c.rows = 9;
  c.summed = 2048;
  c.channels = 300;
  Check(c);
}

TEST(DNNLBlockQuantized, DataInInt8) {
  for (int bits : {4, 8}) {
    for (int64_t block : {32, 64, 128, 256}) {
      // Rows that share a register, chunks of a row and tiles of rows, and what remains of each.
      for (int64_t rows : {1, 2, 3, 4, 5, 19}) {
        for (int64_t summed : {33, 300, 1700}) {
          Case c;
          c.bits = bits;
          c.block = block;
          c.rows = rows;
          c.summed = summed;
          c.channels = 16 * std::min<int64_t>(rows, 5) + 5;
          c.has_zero_points = (rows + block / 32) % 2 == 0;
          c.permits_int8 = true;
          EXPECT_EQ(Check(c).variant, c.Variant());
        }
      }
    }
  }
}

TEST(DNNLBlockQuantized, BlocksThatInt8LacksAreInFloat32) {
  Case c;
  c.block = 96;
  c.permits_int8 = true;
  EXPECT_TRUE(!c.is_int8());
  EXPECT_EQ(Check(c).variant, "4-bit weights as they are");
}

TEST(DNNLBlockQuantized, OneRowIsAsExactAsFloat32) {
  for (int bits : {4, 8}) {
    for (int64_t block : {32, 256}) {
      Case c;
      c.bits = bits;
      c.block = block;
      c.summed = 600;
      // In few bits, the largest element of a block leaves few steps for the others.
      Array data = Noise({c.rows, c.summed}, kFloat, -1, 1);
      for (int64_t k = 7; k < c.summed; k += block) data.values[k] *= 1000;
      Matmul(c, data);
    }
  }
}

TEST(DNNLBlockQuantized, RowsThatAreNotFinite) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (double value : {std::nan(""), kInfinity, -kInfinity}) {
    for (int64_t rows : {2, 9}) {
      for (bool permits_int8 : {false, true}) {
        Case c;
        c.rows = rows;
        c.permits_int8 = permits_int8;
        Array data = Noise({c.rows, c.summed}, kFloat, -1, 1);
        const Array healthy = Matmul(c, data).result;
        data.values[c.summed + 40] = value;
        c.is_finite = false;
        const Array result = Matmul(c, data).result;
        for (int64_t i = 0; i < c.rows * c.channels; ++i) {
          const bool is_own = i / c.channels == 1;
          EXPECT_TRUE(is_own ? !std::isfinite(result.values[i])
                             : result.values[i] == healthy.values[i]);
        }
      }
    }
  }
}

TEST(DNNLBlockQuantized, BlocksOfTinyValues) {
  for (int64_t rows : {1, 6}) {
    Case c;
    c.rows = rows;
    c.permits_int8 = true;
    Array data = Noise({c.rows, c.summed}, kFloat, -1, 1);
    for (int64_t k = 0; k < c.summed; ++k) data.values[k] *= k < 32 ? 0 : k < 64 ? 1e-38 : 1;
    Matmul(c, data);
  }
}

}  // namespace dnnl_test::block_quantized
