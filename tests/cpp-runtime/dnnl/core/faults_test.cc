// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/dnnl/core/faults_test.cc
 * \brief The table of oneDNN's faults: which kernels its rows affect.
 */
#include "src/runtime/contrib/dnnl/core/faults.h"

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/cpp-runtime/harness/test.h"

namespace dnnl_test::faults {

using tvm::runtime::contrib::dnnl_backend::Dims;
using tvm::runtime::contrib::dnnl_backend::Fault;
using tvm::runtime::contrib::dnnl_backend::Faults;
using tvm::runtime::contrib::dnnl_backend::FindFault;
using tvm::runtime::contrib::dnnl_backend::Kernel;
using Kind = dnnl::primitive::kind;
using Type = dnnl::memory::data_type;

constexpr int kOldest = 30200, kNewest = 31300;

/*! \brief An unpadded convolution of images of 32x32. */
Kernel Conv(const char* name, Type type, int64_t channels, const Dims& taps, const Dims& strides) {
  Kernel kernel;
  kernel.name = name;
  kernel.kind = Kind::convolution;
  kernel.src_type = kernel.dst_type = type;
  kernel.src = {2, channels};
  kernel.weights = {64, channels};
  kernel.dst = {2, 64};
  for (size_t i = 0; i < taps.size(); ++i) {
    kernel.src.push_back(32);
    kernel.weights.push_back(taps[i]);
    kernel.dst.push_back((32 - taps[i]) / strides[i] + 1);
  }
  kernel.strides = strides;
  kernel.dilation = kernel.pad_begin = Dims(taps.size(), 0);
  return kernel;
}

Kernel Deconv(const char* name, Type type, int64_t channels, const Dims& taps,
              const Dims& strides) {
  Kernel kernel = Conv(name, type, channels, taps, strides);
  kernel.kind = Kind::deconvolution;
  return kernel;
}

bool IsFaulty(const Kernel& kernel, int version = kOldest) {
  return FindFault(kernel, version) != nullptr;
}

TEST(DNNLFaults, JoinedColumnsOnAMX) {
  const char* const amx = "brgconv:avx512_core_amx";
  for (int64_t channels : {48, 80, 112, 144, 240, 272}) {
    for (const auto& [taps, strides] : std::vector<std::pair<Dims, Dims>>{{{2, 2}, {2, 2}},
                                                                          {{4, 4}, {4, 4}},
                                                                          {{4, 4}, {2, 2}},
                                                                          {{1, 2}, {1, 4}},
                                                                          {{3, 6}, {2, 2}},
                                                                          {{2}, {2}},
                                                                          {{2, 2, 2}, {1, 1, 2}}}) {
      const Kernel kernel = Conv(amx, Type::bf16, channels, taps, strides);
      EXPECT_TRUE(IsFaulty(kernel));
      EXPECT_TRUE(!IsFaulty(kernel, 30400));
    }
  }
  EXPECT_TRUE(IsFaulty(Conv(amx, Type::u8, 96, {2, 2}, {2, 2})));
  EXPECT_TRUE(IsFaulty(Conv(amx, Type::s8, 80, {1, 8}, {1, 8})));
  EXPECT_TRUE(IsFaulty(Conv(amx, Type::bf16, 24, {5, 4}, {4, 4}), 30600));
  // Whole tile rows, few channels, columns that are not joined, other CPUs.
  EXPECT_TRUE(!IsFaulty(Conv(amx, Type::bf16, 96, {2, 2}, {2, 2})));
  EXPECT_TRUE(!IsFaulty(Conv(amx, Type::bf16, 16, {2, 2}, {2, 2})));
  EXPECT_TRUE(!IsFaulty(Conv(amx, Type::u8, 128, {2, 2}, {2, 2})));
  EXPECT_TRUE(!IsFaulty(Conv(amx, Type::bf16, 48, {3, 3}, {2, 2})));
  EXPECT_TRUE(!IsFaulty(Conv(amx, Type::bf16, 48, {2, 2}, {1, 1})));
  EXPECT_TRUE(!IsFaulty(Conv("brgconv:avx512_core_bf16", Type::bf16, 48, {2, 2}, {2, 2})));
  Kernel padded = Conv(amx, Type::bf16, 48, {2, 2}, {2, 2});
  padded.pad_begin = {0, 1};
  EXPECT_TRUE(!IsFaulty(padded));
  // Rows beyond the last window are no padding.
  Kernel odd = Conv(amx, Type::bf16, 48, {2, 2}, {2, 2});
  odd.src.back() = 33;
  EXPECT_TRUE(IsFaulty(odd));
}

TEST(DNNLFaults, PostOpsOfChunks) {
  const char* const strided = "brg_conv:avx2+brgconv_strided:avx2";
  for (const auto& [channels, taps, strides] :
       std::vector<std::tuple<int64_t, Dims, Dims>>{{32, {32, 32}, {16, 16}},
                                                    {16, {64, 64}, {32, 32}},
                                                    {128, {8, 8}, {2, 2}},
                                                    {64, {10, 10}, {2, 2}},
                                                    {256, {4, 4, 4}, {2, 2, 2}}}) {
    Kernel kernel = Deconv(strided, Type::f32, channels, taps, strides);
    EXPECT_TRUE(!IsFaulty(kernel));
    kernel.num_post_ops = 1;
    EXPECT_TRUE(IsFaulty(kernel));
    kernel.num_post_ops = 0;
    kernel.has_bias = true;
    EXPECT_TRUE(IsFaulty(kernel));
    EXPECT_TRUE(!IsFaulty(kernel, 30400));
  }
  // The sums of reduced precision are rounded by a post-op.
  Kernel rounded = Deconv("brg_conv:avx512_core_amx+brgconv_strided:avx512_core_amx", Type::bf16,
                          24, {7, 7, 7}, {7, 7, 7});
  EXPECT_TRUE(IsFaulty(rounded));
  rounded.dst_type = Type::f32;
  EXPECT_TRUE(!IsFaulty(rounded));
  // Small kernels, and strides along the width alone.
  Kernel small = Deconv(strided, Type::f32, 16, {2, 2}, {2, 2});
  small.has_bias = true;
  EXPECT_TRUE(!IsFaulty(small));
  Kernel wide = Deconv(strided, Type::f32, 512, {8, 8}, {1, 2});
  wide.has_bias = true;
  EXPECT_TRUE(!IsFaulty(wide));
}

TEST(DNNLFaults, ResultsThatNoTapReaches) {
  // 2 taps at strides of 4, 8 taps of which a result beyond the last is left, or none.
  for (const char* name : {"jit_deconvolution:avx512_core_vnni", "jit_uni_int8:avx2"}) {
    for (const auto& [taps, extra, is_faulty] : std::vector<std::tuple<int64_t, int64_t, bool>>{
             {2, 0, true}, {8, 1, true}, {8, 0, false}}) {
      Kernel kernel = Deconv(name, Type::u8, 16, {taps}, {4});
      kernel.src[2] = 5;
      kernel.dst[2] = 16 + taps + extra;
      EXPECT_TRUE(IsFaulty(kernel, kNewest) == is_faulty);
    }
  }
  Kernel deep = Deconv("conv:any+jit:avx512_core_amx", Type::bf16, 32, {1, 3, 3}, {2, 1, 1});
  deep.src = {1, 32, 3, 4, 4};
  deep.dst = {1, 64, 5, 6, 6};
  EXPECT_TRUE(IsFaulty(deep));
  deep.strides[0] = 1;
  deep.dst[2] = 3;
  EXPECT_TRUE(!IsFaulty(deep));
}

TEST(DNNLFaults, Int8ZeroPoints) {
  Kernel deconv = Deconv("brg_conv:avx512_core_vnni+brgconv_strided:avx512_core_vnni", Type::u8, 12,
                         {2, 3}, {4, 4});
  EXPECT_TRUE(!IsFaulty(deconv));
  deconv.src_zero_point = true;
  EXPECT_TRUE(IsFaulty(deconv));
  EXPECT_TRUE(!IsFaulty(deconv, 30500));
}

TEST(DNNLFaults, CompensationOfSmallWeights) {
  const char* const gemm = "x64:gemm_s8u8s32:jit";
  Kernel depthwise = Conv(gemm, Type::u8, 1, {2, 2, 2}, {2, 2, 2});
  depthwise.weights = {8, 1, 1, 2, 2, 2};
  depthwise.src[1] = depthwise.dst[1] = 8;
  EXPECT_TRUE(!IsFaulty(depthwise));
  depthwise.src_zero_point = true;
  EXPECT_TRUE(IsFaulty(depthwise));
  EXPECT_TRUE(!IsFaulty(depthwise, 31000));
  Kernel pointwise = Conv(gemm, Type::s8, 8, {1, 1}, {1, 1});
  EXPECT_TRUE(!IsFaulty(pointwise));
  // Data with a sign are compensated, too.
  pointwise.dst[1] = pointwise.weights[0] = 8;
  EXPECT_TRUE(IsFaulty(pointwise));
  // In blocks of 8 channels, of any number; many elements are divided.
  for (const Kind kind : {Kind::convolution, Kind::deconvolution}) {
    for (const auto& [taps, is_faulty] : std::vector<std::pair<Dims, bool>>{{{2, 4}, true},
                                                                            {{8}, true},
                                                                            {{2, 2, 2}, true},
                                                                            {{12, 12}, true},
                                                                            {{16, 16}, true},
                                                                            {{3, 3}, false},
                                                                            {{4, 4}, false},
                                                                            {{8, 8}, false},
                                                                            {{9, 9}, false}}) {
      Kernel blocked = Conv("jit_uni_int8:avx2", Type::u8, 1, taps, Dims(taps.size(), 1));
      blocked.kind = kind;
      blocked.weights.insert(blocked.weights.begin() + 1, 1);
      blocked.src[1] = 64;
      EXPECT_TRUE(!IsFaulty(blocked));
      blocked.src_zero_point = true;
      EXPECT_TRUE(IsFaulty(blocked) == is_faulty);
      EXPECT_TRUE(!IsFaulty(blocked, 31000));
      blocked.name = "jit_uni_int8:sse41";
      EXPECT_TRUE(!IsFaulty(blocked));
    }
  }
}

TEST(DNNLFaults, ZeroPointsOfDilatedRows) {
  Kernel kernel = Conv("brgconv:avx512_core_vnni", Type::u8, 16, {5}, {1});
  kernel.src[2] = kernel.dst[2] = 6;
  kernel.dilation = {1};
  kernel.pad_begin = {4};
  EXPECT_TRUE(!IsFaulty(kernel));
  kernel.src_zero_point = true;
  EXPECT_TRUE(IsFaulty(kernel, kNewest));
  kernel.dilation = {0};
  kernel.pad_begin = {2};
  EXPECT_TRUE(!IsFaulty(kernel));
}

TEST(DNNLFaults, ZeroPointsOfRowsWithALongPadding) {
  Kernel kernel = Conv("brgconv:avx512_core_vnni", Type::s8, 16, {5}, {1});
  kernel.src[2] = 20;
  kernel.dst[2] = 20;
  kernel.src_zero_point = true;
  for (int64_t begin = 0; begin <= 4; ++begin) {
    kernel.pad_begin = {begin};
    // 4 in all: a causal convolution, or one that sees the future.
    EXPECT_TRUE(IsFaulty(kernel, kNewest) == (begin == 0 || begin == 4));
  }
  kernel.src_zero_point = false;
  EXPECT_TRUE(!IsFaulty(kernel));
  // A transposed one without padding is padded by 4 at both ends.
  Kernel deconv =
      Deconv("brg_conv:avx512_core_vnni+brgconv:avx512_core_vnni", Type::s8, 16, {5}, {1});
  deconv.src[2] = 16;
  deconv.dst[2] = 20;
  deconv.src_zero_point = true;
  EXPECT_TRUE(IsFaulty(deconv));
  deconv.pad_begin = {2};
  deconv.dst[2] = 16;
  EXPECT_TRUE(!IsFaulty(deconv));
}

TEST(DNNLFaults, ZeroPointsOfManyPaddedRowsOnAMX) {
  Kernel kernel = Conv("jit:avx512_core_amx", Type::u8, 64, {7, 7}, {2, 2});
  kernel.src[2] = kernel.src[3] = 224;
  kernel.dst[2] = kernel.dst[3] = 112;
  kernel.pad_begin = {3, 3};
  kernel.src_zero_point = true;
  // Two rows of the result, as of ResNet's first convolution.
  EXPECT_TRUE(!IsFaulty(kernel));
  kernel.strides = {1, 1};
  kernel.dst[2] = kernel.dst[3] = 224;
  EXPECT_TRUE(IsFaulty(kernel, kNewest));
  kernel.src_zero_point = false;
  EXPECT_TRUE(!IsFaulty(kernel));
  Kernel plane = Conv("jit:avx512_core_amx", Type::u8, 32, {1, 1, 5}, {1, 1, 1});
  plane.src = {1, 32, 1, 7, 6};
  plane.dst = {1, 64, 1, 7, 4};
  plane.pad_begin = {0, 0, 1};
  EXPECT_TRUE(!IsFaulty(plane));
  plane.src_zero_point = true;
  EXPECT_TRUE(IsFaulty(plane));
  plane.src[2] = plane.dst[2] = 2;
  EXPECT_TRUE(!IsFaulty(plane));
}

TEST(DNNLFaults, PaddingAsLongAsTheUnreadEnd) {
  // Two windows of 7 over 5 zeros and 14 elements, of which 5 are left.
  Kernel kernel = Conv("brgconv:avx512_core_bf16", Type::bf16, 32, {7}, {7});
  kernel.src[2] = 14;
  kernel.dst[2] = 2;
  EXPECT_TRUE(!IsFaulty(kernel));
  kernel.pad_begin = {5};
  EXPECT_TRUE(IsFaulty(kernel, kNewest));
  kernel.dst_type = Type::f32;
  EXPECT_TRUE(!IsFaulty(kernel));
  kernel.num_post_ops = 1;
  EXPECT_TRUE(IsFaulty(kernel));
  kernel.src[2] = 9;
  EXPECT_TRUE(!IsFaulty(kernel));
}

TEST(DNNLFaults, ZeroPointsOfPaddedRowsOnAMX) {
  Kernel kernel = Conv("jit:avx512_core_amx", Type::u8, 64, {2, 1}, {1, 1});
  kernel.src[3] = kernel.dst[3] = 33;
  kernel.pad_begin = {1, 0};
  EXPECT_TRUE(!IsFaulty(kernel));
  kernel.src_zero_point = true;
  EXPECT_TRUE(IsFaulty(kernel, kNewest));
  kernel.src[3] = kernel.dst[3] = 32;
  EXPECT_TRUE(!IsFaulty(kernel));
  kernel.src[3] = kernel.dst[3] = 33;
  kernel.dst[2] = 31;
  kernel.pad_begin = {0, 0};
  EXPECT_TRUE(!IsFaulty(kernel));
  kernel.dst[2] = 32;
  EXPECT_TRUE(IsFaulty(kernel));
  kernel.weights.back() = 3;
  kernel.pad_begin = {0, 1};
  EXPECT_TRUE(!IsFaulty(kernel));
}

TEST(DNNLFaults, OperandsOfDepthwiseConvolutions) {
  Kernel kernel = Conv("jit_int8_dw:avx2", Type::u8, 64, {3, 3}, {1, 1});
  kernel.weights = {64, 1, 1, 3, 3};
  kernel.num_post_ops = kernel.num_operands = 1;
  EXPECT_TRUE(!IsFaulty(kernel));
  kernel.src[1] = kernel.dst[1] = kernel.weights[0] = 24;
  EXPECT_TRUE(IsFaulty(kernel));
  EXPECT_TRUE(!IsFaulty(kernel, 30500));
}

TEST(DNNLFaults, SigmoidsOfNaN) {
  Kernel kernel = Conv("x64:gemm:jit", Type::f32, 6, {3, 3}, {1, 1});
  EXPECT_TRUE(!IsFaulty(kernel));
  kernel.num_post_ops = 1;
  EXPECT_TRUE(!IsFaulty(kernel));
  kernel.has_sigmoid = true;
  EXPECT_TRUE(IsFaulty(kernel) && IsFaulty(kernel, kNewest));
  kernel.name = "jit:avx2";
  EXPECT_TRUE(!IsFaulty(kernel));
}

TEST(DNNLFaults, StridesLongerThanWindows) {
  EXPECT_TRUE(IsFaulty(Conv("brgconv:avx512_core_amx", Type::bf16, 64, {1, 1}, {3, 1}), 30600));
  EXPECT_TRUE(IsFaulty(Conv("brg_conv_fwd:avx512_core_amx", Type::u8, 64, {1, 1}, {3, 1}), 30900));
  EXPECT_TRUE(!IsFaulty(Conv("brgconv:avx512_core_amx", Type::bf16, 64, {1, 1}, {1, 3})));
  EXPECT_TRUE(
      !IsFaulty(Conv("brg_conv_fwd:avx10_1_512_amx", Type::bf16, 64, {1, 1}, {3, 1}), kNewest));
}

TEST(DNNLFaults, Versions) {
  for (const Fault& fault : Faults()) {
    EXPECT_TRUE(fault.until == 0 || fault.from < fault.until);
    EXPECT_TRUE(!fault.IsIn(30100) && fault.IsIn(fault.from) && !fault.Versions().empty());
  }
  const Fault open{"", 30200, 0, "", "", nullptr}, closed{"", 30200, 30400, "", "", nullptr},
      patched{"", 30200, 30201, "", "", nullptr};
  EXPECT_EQ(open.Versions(), std::string("from 3.2"));
  EXPECT_EQ(closed.Versions(), std::string("3.2; not 3.4"));
  EXPECT_EQ(patched.Versions(), std::string("3.2.0; not 3.2.1"));
}

/*! \brief A descriptor has what the predicates read. */
TEST(DNNLFaults, ReadsDescriptors) {
  using Tag = dnnl::memory::format_tag;
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  const dnnl::memory::desc src({1, 16, 5, 7}, Type::f32, Tag::any),
      weights({2, 4, 8, 3, 2}, Type::f32, Tag::any), bias({8}, Type::f32, Tag::a),
      dst({1, 8, 7, 15}, Type::f32, Tag::any);
  dnnl::post_ops post_ops;
  post_ops.append_eltwise(dnnl::algorithm::eltwise_relu, 0, 0);
  post_ops.append_binary(dnnl::algorithm::binary_add, {{1, 8, 1, 1}, Type::f32, Tag::nchw});
  dnnl::primitive_attr attr;
  attr.set_post_ops(post_ops);
  const dnnl::deconvolution_forward::primitive_desc desc(
      engine, dnnl::prop_kind::forward_inference, dnnl::algorithm::deconvolution_direct, src,
      weights, bias, dst, {1, 2}, {0, 0}, {0, 0}, {0, -1}, attr);
  const Kernel kernel = Kernel::Read(desc);
  EXPECT_TRUE(kernel.kind == Kind::deconvolution && kernel.name == desc.impl_info_str());
  EXPECT_TRUE(kernel.src == Dims({1, 16, 5, 7}) && kernel.dst == Dims({1, 8, 7, 15}));
  EXPECT_TRUE(kernel.HasGroups() && kernel.Channels() == 8 && kernel.OutChannels() == 4);
  EXPECT_TRUE(kernel.Taps(0) == 3 && kernel.Taps(1) == 2 && kernel.strides == Dims({1, 2}));
  EXPECT_TRUE(kernel.has_bias && kernel.num_post_ops == 2 && kernel.num_operands == 1);
  EXPECT_TRUE(!kernel.IsInt8() && !kernel.IsDilated() && !kernel.IsDepthwise());
}

}  // namespace dnnl_test::faults
