// SPDX-License-Identifier: Apache-2.0
/*!
 * \file tests/cpp-runtime/dnnl/core/int8_conv_kernel_test.cc
 * \brief The kernel of 8-bit convolutions against integers.
 */
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "src/runtime/contrib/dnnl/core/kernels/int8_conv.h"
#include "tests/cpp-runtime/harness/test.h"

namespace dnnl_test::int8_conv_kernel {

using namespace tvm::runtime::contrib::dnnl_backend;  // NOLINT(build/namespaces)

std::vector<uint8_t> Bytes(int64_t count, uint32_t state) {
  std::vector<uint8_t> bytes(count);
  for (uint8_t& byte : bytes) {
    state = state * 1664525u + 1013904223u;
    byte = (state >> 16) % 8 == 0 ? (state >> 20) % 2 * 127 + 1 : state >> 24;
  }
  return bytes;
}

WindowAxis Axis(int64_t src, int64_t kernel, int64_t stride, int64_t step, int64_t pad) {
  WindowAxis axis{src, 1, kernel, stride, step, pad};
  axis.dst = (src + 2 * pad - axis.span()) / stride + 1;
  return axis;
}

/*! \brief The exact sum of a result. */
int64_t SumOf(const Int8ConvShape& shape, const std::vector<uint8_t>& src, bool is_signed, int zero,
              const std::vector<uint8_t>& weights, int64_t position, int64_t channel) {
  const auto& [depth, height, width] = shape.axes;
  int64_t at[3], image = position, sum = 0;
  for (int i = 2; i >= 0; --i) {
    at[i] = image % shape.axes[i].dst * shape.axes[i].stride - shape.axes[i].pad;
    image /= shape.axes[i].dst;
  }
  for (int64_t tap = 0; tap < depth.kernel * height.kernel * width.kernel; ++tap) {
    const int64_t d = at[0] + tap / width.kernel / height.kernel * depth.step;
    const int64_t h = at[1] + tap / width.kernel % height.kernel * height.step;
    const int64_t w = at[2] + tap % width.kernel * width.step;
    const bool is_inside =
        d >= 0 && d < depth.src && h >= 0 && h < height.src && w >= 0 && w < width.src;
    if (!is_inside) continue;
    for (int64_t c = 0; c < shape.channels; ++c) {
      const int64_t from = ((image * depth.src + d) * height.src + h) * width.src + w;
      const int64_t volume = depth.src * height.src * width.src;
      const uint8_t byte = shape.is_channels_first
                               ? src[(image * shape.channels + c) * volume + from - image * volume]
                               : src[from * shape.channels + c];
      const int value = (is_signed ? static_cast<int8_t>(byte) : byte) - zero;
      sum += value * static_cast<int8_t>(
                         weights[(tap * shape.channels + c) * shape.dst_channels + channel]);
    }
  }
  return sum;
}

void Check(const Int8ConvShape& shape, bool is_signed, bool is_rounded) {
  const auto& [depth, height, width] = shape.axes;
  const int64_t taps = depth.kernel * height.kernel * width.kernel, columns = shape.dst_channels;
  const int zero = is_signed ? -128 : 255;
  const auto src = Bytes(shape.images * depth.src * height.src * width.src * shape.channels, 1);
  const auto weights = Bytes(taps * shape.channels * columns, 2);
  const Int8Matrix matrix = shape.matrix();
  std::vector<int8_t> packed(shape.runs() * matrix.packed_bytes(), 99);
  PackInt8Matrices(matrix, shape.runs(), weights.data(), packed.data());
  std::vector<float> scales(matrix.panels() * Int8Matrix::kPanel), bias(scales.size());
  for (int64_t n = 0; n < columns; ++n) {
    scales[n] = is_rounded ? 0x1p-12f * (1 + n % 3) : 1;
    bias[n] = is_rounded ? 0.25f * n : 0;
  }
  const float low = is_rounded ? -100 : -1e30f, high = is_rounded ? 155 : 1e30f;
  const Int8Finish finish = {scales.data(), bias.data(), 1, 0, low, high, 100, is_rounded};
  std::vector<int16_t> workspace(shape.workspace() + 32, 0x5a5a);
  const int64_t size = shape.positions() * columns, bytes = is_rounded ? 1 : 4;
  std::vector<uint8_t> dst(size * bytes + 64, 0x5a);
  ConvInt8({src.data(), is_signed, 0, zero}, shape, packed.data(), finish, workspace.data(),
           dst.data());
  EXPECT_TRUE(std::all_of(dst.begin() + size * bytes, dst.end(),
                          [](uint8_t byte) { return byte == 0x5a; }));
  EXPECT_TRUE(std::all_of(workspace.begin() + shape.workspace(), workspace.end(),
                          [](int16_t value) { return value == 0x5a5a; }));
  for (int64_t i = 0; i < size; ++i) {
    const int64_t n = i % columns,
                  sum = SumOf(shape, src, is_signed, zero, weights, i / columns, n);
    float actual = dst[i], expected = sum;
    if (is_rounded) {
      const double value = static_cast<double>(expected) * scales[n] + bias[n];
      expected = std::nearbyint(std::clamp<double>(value, -100, 155)) + 100;
    } else {
      std::copy_n(dst.data() + 4 * i, 4, reinterpret_cast<uint8_t*>(&actual));
    }
    if (!EXPECT_EQ(actual, expected)) return;
  }
}

void CheckAll(Int8ConvShape shape) {
  for (int bits = 0; bits < 8; ++bits) {
    shape.is_channels_first = (bits & 4) != 0;
    Check(shape, (bits & 1) != 0, (bits & 2) != 0);
  }
}

TEST(DNNLInt8Convs, AreExact) {
  if (!HasInt8Matrices()) return;
  for (int64_t channels : {1, 3, 4, 17}) {
    for (int64_t columns : {1, 16, 21}) {
      for (int64_t kernel : {1, 2, 3}) {
        for (int64_t stride : {1, 2}) {
          for (int64_t step : {1, 2}) {
            const int64_t pad = kernel / 2;
            const WindowAxis height = Axis(6, kernel, stride, 1, pad);
            const WindowAxis width = Axis(11, kernel, stride, step, pad);
            CheckAll({1, channels, columns, {WindowAxis{}, WindowAxis{}, width}});
            CheckAll({2, channels, columns, {WindowAxis{}, height, width}});
            CheckAll({1, channels, columns, {Axis(5, kernel, stride, step, pad), height, width}});
          }
        }
      }
    }
  }
}

TEST(DNNLInt8Convs, OfUnreadRowsPaddingAloneAndManyTiles) {
  if (!HasInt8Matrices()) return;
  // The window steps over values; some windows read nothing; several chunks and panels.
  CheckAll({1, 5, 18, {WindowAxis{}, Axis(9, 2, 4, 1, 0), Axis(11, 1, 3, 1, 0)}});
  CheckAll({2, 2, 3, {Axis(1, 1, 1, 1, 2), Axis(2, 2, 1, 1, 3), Axis(3, 2, 2, 3, 4)}});
  CheckAll({1, 600, 40, {WindowAxis{}, Axis(13, 3, 1, 1, 1), Axis(13, 3, 1, 1, 1)}});
}

}  // namespace dnnl_test::int8_conv_kernel
