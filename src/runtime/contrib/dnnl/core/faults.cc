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
 * \file src/runtime/contrib/dnnl/core/faults.cc
 * \brief The table of oneDNN's faults.
 */
#include "faults.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "faults_int8.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

using Kind = dnnl::primitive::kind;
using Type = dnnl::memory::data_type;

int64_t RoundUp(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

int64_t SizeOf(Type type) { return static_cast<int64_t>(dnnl::memory::data_type_size(type)); }

/*! \brief Whether it is a blocked transposed convolution with a stride. */
bool IsStridedDeconv(const Kernel& kernel) {
  return kernel.kind == Kind::deconvolution && kernel.Has("brgconv_strided");
}

bool OverrunsResult(const Kernel& kernel) { return kernel.Has("jit_1x1:avx512_core_amx"); }

bool OverwritesSource(const Kernel& kernel) {
  if (!kernel.StartsWith("brgconv:") && !kernel.StartsWith("brg_conv_fwd:")) return false;
  if (!kernel.Has("amx")) return false;
  for (size_t i = 0; i + 1 < kernel.Spatial(); ++i) {
    if (kernel.strides[i] > kernel.Taps(i)) return true;
  }
  return false;
}

/*!
 * \brief Whether neighboring columns are read as channels, with weights in blocks of other sizes.
 *
 * oneDNN joins as many columns as divide stride and taps. It pads the channels of the weights
 * to full tile rows, so that those of the columns are not adjacent if the padding is not empty.
 */
bool JoinsColumns(const Kernel& kernel, int64_t* channels, int64_t* joined, int64_t* in_row) {
  if (!kernel.IsConv() || !kernel.Has("amx")) return false;
  if (!kernel.StartsWith("brgconv:") && !kernel.StartsWith("brg_conv_fwd:")) return false;
  if (kernel.HasGroups() || kernel.Spatial() == 0) return false;
  constexpr int64_t kTileRow = 64;  // bytes
  const size_t last = kernel.Spatial() - 1;
  const int64_t common = std::gcd(kernel.strides[last], kernel.Taps(last));
  *channels = kernel.Channels();
  *joined = *channels * common;
  *in_row = kTileRow / SizeOf(kernel.src_type);
  return common > 1 && kernel.dilation[last] == 0 && kernel.pad_begin[last] <= 0 &&
         kernel.PadEnd(last) <= 0;
}

bool MisreadsJoinedColumns(const Kernel& kernel) {
  int64_t channels, joined, in_row;
  return JoinsColumns(kernel, &channels, &joined, &in_row) && channels > in_row &&
         channels % in_row != 0;
}

bool MisreadsFewJoinedColumns(const Kernel& kernel) {
  int64_t channels, joined, in_row;
  return JoinsColumns(kernel, &channels, &joined, &in_row) && channels < in_row && joined > in_row;
}

/*!
 * \brief Whether a transposed convolution may be divided by rows of the kernel, with bias and
 * post-ops applied once for each.
 *
 * It is divided if a block of the weights exceeds the cache of a core: 512 kB in all cases that
 * were observed. Sums that are not float32 in the result are converted with the post-ops.
 */
bool RepeatsPostOps(const Kernel& kernel) {
  if (!IsStridedDeconv(kernel)) return false;
  const bool is_plain =
      kernel.dst_type == Type::f32 && !kernel.IsInt8() && !kernel.has_bias && !kernel.num_post_ops;
  if (is_plain) return false;
  bool is_divisible = false;
  int64_t taps = 1;
  for (size_t i = 0; i < kernel.Spatial(); ++i) {
    taps *= kernel.Taps(i);
    const bool is_column = i + 1 == kernel.Spatial();
    is_divisible = is_divisible || (!is_column && kernel.Taps(i) > 1 && kernel.strides[i] > 1);
  }
  if (kernel.IsInt8() && kernel.Spatial() == 3) return is_divisible;
  constexpr int64_t kVectors = 64, kCache = 128 * 1024;
  const int64_t size = SizeOf(kernel.src_type);
  const int64_t in = size == 4 ? kernel.Channels() : RoundUp(kernel.Channels(), 64 / size);
  const int64_t out = std::min(RoundUp(kernel.OutChannels(), 16), kVectors);
  return is_divisible && taps * in * out * size >= kCache;
}

/*! \brief Whether a transposed convolution has results that no tap reaches. */
bool HasGap(const Kernel& kernel) {
  for (size_t i = 0; i < kernel.Spatial(); ++i) {
    const int64_t size = kernel.dst[i + 2], step = kernel.dilation[i] + 1;
    std::vector<bool> is_reached(size);
    for (int64_t from = 0; from < kernel.src[i + 2]; ++from) {
      for (int64_t tap = 0; tap < kernel.Taps(i); ++tap) {
        const int64_t to = from * kernel.strides[i] + tap * step - kernel.pad_begin[i];
        if (to >= 0 && to < size) is_reached[to] = true;
      }
    }
    if (std::find(is_reached.begin(), is_reached.end(), false) != is_reached.end()) return true;
  }
  return false;
}

/*! \brief Whether it is a transposed convolution by oneDNN's older, direct code. */
bool IsDirectDeconv(const Kernel& kernel) {
  return kernel.kind == Kind::deconvolution && kernel.Has("jit") && !kernel.Has("brg");
}

bool MiscountsGaps(const Kernel& kernel) {
  return IsDirectDeconv(kernel) && kernel.IsInt8() && HasGap(kernel);
}

bool LeavesGaps(const Kernel& kernel) {
  return IsDirectDeconv(kernel) && kernel.Has("amx") && kernel.Spatial() == 3 && HasGap(kernel);
}

bool MiscountsZeroPoint(const Kernel& kernel) {
  return IsStridedDeconv(kernel) && kernel.IsInt8() && kernel.src_zero_point;
}

bool MisreadsOperands(const Kernel& kernel) {
  constexpr int64_t kVector = 16;  // of AVX-512, the longest
  return kernel.IsConv() && kernel.IsInt8() && kernel.IsDepthwise() && kernel.num_operands > 0 &&
         kernel.dst[1] % kVector != 0;
}

/*! \brief Whether the columns of one row may be joined although their number is odd. */
bool JoinsOddColumns(const Kernel& kernel) {
  if (!kernel.IsConv() || !kernel.StartsWith("brgconv:") || kernel.Spatial() == 0) return false;
  const size_t last = kernel.Spatial() - 1;
  const int64_t width = kernel.src.back(), rows = NumElements(kernel.src) / (kernel.src[1] * width);
  const int64_t common = std::gcd(kernel.strides[last], kernel.Taps(last));
  return !kernel.HasGroups() && rows == 1 && common > 1 && width % common != 0 &&
         kernel.dilation[last] == 0 && kernel.pad_begin[last] <= 0 && kernel.PadEnd(last) <= 0;
}

/*!
 * \brief Whether sums of padded rows may be kept in a result of another type, or one that is added
 * to, instead of in a buffer.
 *
 * oneDNN takes rows for unpadded if the padding at their begin is as long as the part that no
 * window reaches at their end.
 */
bool KeepsSumsInResult(const Kernel& kernel) {
  if (!kernel.IsConv() || !kernel.StartsWith("brgconv:") || kernel.Has("amx")) return false;
  if (kernel.Spatial() == 0) return false;
  const size_t last = kernel.Spatial() - 1;
  const int64_t pad = kernel.pad_begin[last];
  return pad > 0 && kernel.PadEnd(last) == -pad &&
         (kernel.dst_type != Type::f32 || kernel.num_post_ops > 0);
}

bool SkipsPlane(const Kernel& kernel) {
  return kernel.IsConv() && kernel.StartsWith("brgconv_1x1:") && kernel.Has("amx") &&
         kernel.Spatial() == 3;
}

bool MisreadsBias(const Kernel& kernel) {
  return IsDirectDeconv(kernel) && kernel.Has("amx") && kernel.has_bias && !kernel.IsInt8();
}

bool OverwritesZeroPoint(const Kernel& kernel) {
  return kernel.kind == Kind::matmul && kernel.StartsWith("brg:avx2_vnni") &&
         kernel.weights_zero_point;
}

/*! \brief Whether a sigmoid is computed by portable code, of one element after the other. */
bool DropsNaN(const Kernel& kernel) {
  return kernel.IsConv() && !kernel.IsInt8() && kernel.Has("gemm") && kernel.has_sigmoid;
}

const char* const kNext = "take the next implementation";

std::string VersionText(int number) {
  const std::string text =
      std::to_string(number / 10000) + "." + std::to_string(number / 100 % 100);
  return number % 100 == 0 ? text : text + "." + std::to_string(number % 100);
}

}  // namespace

const std::vector<Fault>& Faults() {
  static const std::vector<Fault> faults = {
      {"1x1 convolutions on AMX, in bfloat16 and int8, write past the end of their result where "
       "the spatial positions fill three tiles",
       30200, 30400, kNext, "seen on AMX; oneDNN's 9ba6789a1f", OverrunsResult},
      {"convolutions on AMX in int8 with dilation and a zero point subtract wrong sums at the "
       "border",
       30200, 0, kNext, "seen on AMX", HasWrongBorder},
      {"convolutions on AMX in int8 with a zero point, and padding along height or depth but not "
       "along the width, subtract wrong sums if a row of the result has more than 32 elements, and "
       "write past its end",
       30200, 0, kNext, "seen on AMX", ExceedsSumsOfRows},
      {"convolutions on AMX whose stride along height or depth is longer than the window, such as "
       "1x1 with strides [3, 1], overwrite what they read",
       30200, 31300, kNext, "seen on AMX", OverwritesSource},
      {"convolutions on AMX without padding along the width, whose stride and width have a common "
       "divisor, such as 2x2 with strides [2, 2], read the weights of bfloat16 and float16 in the "
       "wrong order if the channels are not a multiple of 32 (48, 80, ...), and those of int8 if "
       "they are not one of 64",
       30200, 30400, kNext, "seen on AMX; oneDNN's eddf2aed4e", MisreadsJoinedColumns},
      {"the same of fewer channels, if those of the joined columns do not fit in 32 of bfloat16 "
       "and float16, or 64 of int8, such as 24 with 4 columns",
       30200, 0, kNext, "seen on AMX", MisreadsFewJoinedColumns},
      {"transposed convolutions with strides and a large kernel, such as 8x8 of 64 channels or "
       "4x4x4 in 3-D, apply bias and post-ops once for each row of the kernel, and round the sums "
       "of bfloat16 as often",
       30200, 30400, "not fused, with the sums in float32; in int8 take the next implementation",
       "seen on AVX2, AVX-512 and AMX; oneDNN's 56825411fc", RepeatsPostOps},
      {"transposed convolutions in int8 by direct code are wrong by orders of magnitude where no "
       "tap reaches a result: with strides longer than the kernel, output padding, or padding",
       30200, 0, kNext, "seen on SSE4.1, AVX2, AVX-512 VNNI and AMX", MiscountsGaps},
      {"transposed convolutions in 3-D on AMX by direct code do not write results that no tap "
       "reaches",
       30200, 0, kNext, "seen on AMX in int8, on an emulated one in bfloat16", LeavesGaps},
      {"blocked transposed convolutions with strides in int8 miscount the zero point at the border",
       30200, 30500, kNext, "oneDNN's de977593ef", MiscountsZeroPoint},
      {"convolutions in int8 lose the compensation of a zero point if 8 elements of the weights, "
       "or more than 64 that are a multiple of 8, belong to a channel, such as 2x4: depthwise ones "
       "by AVX2 code, plain and transposed, and those by GEMM with 8 output channels",
       30200, 31000, kNext, "seen on AVX2 and AVX-512 VNNI; oneDNN's bcbef6e88a",
       LacksCompensation},
      {"depthwise convolutions in int8 read fused operands of the last channels wrongly if these "
       "do not fill a vector",
       30200, 30500, "not fused", "seen on AVX-512; oneDNN's e5541c917a", MisreadsOperands},
      {"convolutions over one row of one image, with a stride and a width that have a common "
       "divisor which does not divide the width of the row, join its columns",
       30200, 30600, kNext, "oneDNN's 7cfab18d69", JoinsOddColumns},
      {"1x1 convolutions in 3-D on AMX that copy their source lose a plane of it", 30200, 30400,
       kNext, "oneDNN's 41643e2fcc", SkipsPlane},
      {"3-D convolutions in int8 with padding and a zero point or signed data subtract the wrong "
       "sums",
       30200, 30400, kNext, "oneDNN's 7724557080", MisindexesBorder},
      {"convolutions in int8 by VNNI with a zero point, also transposed ones, subtract wrong sums "
       "if rows are padded by 4 elements or more, such as causal ones of 5 taps, or dilated and "
       "padded at their end",
       30200, 0, kNext, "seen on AVX-512 VNNI and AMX", MiscountsEndsOfRows},
      {"convolutions on AMX in int8 with a zero point subtract wrong sums, and write past the end "
       "of memory, if the padding along height or depth reaches 3 rows of the result or more, or "
       "if padded volumes have one plane",
       30200, 0, kNext, "seen on AMX", MiscountsPaddedRows},
      {"transposed convolutions on AMX by direct code add a bias of another type than the result "
       "as one of its type",
       30200, 30800, kNext, "oneDNN's 82c2605395 and c145daecbf", MisreadsBias},
      {"convolutions with padding at the begin of rows, and as many elements at their end that no "
       "window reaches, such as 7 taps with strides of 7 and a padding of 5 over 14, keep sums of "
       "float32 in a result in reduced precision, and write past its end, or add to an operand of "
       "a fused sum",
       30200, 0, kNext, "seen on AVX-512, AVX512_BF16 and AVX512_FP16", KeepsSumsInResult},
      {"convolutions by GEMM, such as row-major ones with few channels in each group, make 0 of "
       "NaN in a fused sigmoid",
       30200, 0, "not fused", "seen on AVX2", DropsNaN},
      {"matmuls in int8 on AVX2-VNNI keep the zero point of the weights in a register that holds "
       "sums",
       30200, 30201, kNext, "from oneDNN's fix", OverwritesZeroPoint},
      {"batched matmuls on AVX-512 that read their source transposed, with an inner dimension of "
       "2048 or more and more threads than matrices, mix up the partial sums of the matrices",
       30200, 30201, "the source is copied to row-major", "seen on AVX-512", nullptr},
      {"recurrent layers in bfloat16 on AMX use tiles that they have not configured: an illegal "
       "instruction, or writes past the end of their memory",
       30200, 0,
       "a kernel of this project, except for several sequences of sizes that are "
       "multiples of 64, of 256 units or more",
       "seen on AMX", nullptr},
      {"resize by portable code adds a residual in a type other than float32, or reads a post-op "
       "operand in channels-last or blocked layout, wrongly",
       30200, 30201, "not fused", "seen on any CPU", nullptr},
      {"primitives that use the plain GEMM accept bfloat16 and float16 post-op operands that their "
       "kernels cannot read",
       30200, 30201, "such operands are never fused to them", "seen on AVX-512", nullptr},
      {"binary primitives in bfloat16 and float16 write 8 elements for 4 where the channels are in "
       "blocks of 4: past the end of the result and, in place, over what they read next",
       30200, 0, "row-major copy", "seen on AVX512_BF16 and AVX512_FP16", nullptr},
      {"nearest resize of one position, on AVX-512, reads and writes outside of its tensors", 30602,
       0, "the layout is made unambiguous", "seen on AVX-512", nullptr},
      {"prelu takes permuted layouts for others, and multiplies positive elements by 0 times their "
       "slope, which may be infinite",
       30200, 0, "a kernel of this project", "seen on any CPU", nullptr},
      {"post-ops read a vector of channels wrongly where each channel has one element", 30200, 0,
       "one dimension less", "seen on any CPU", nullptr},
      {"reorders use the first zero point for a whole axis, or ignore it when they transpose",
       30200, 0, "a binary primitive", "seen on any CPU", nullptr},
      {"a comparison calls NaN greater than anything", 30200, 0, "a kernel of this project",
       "seen on any CPU", nullptr},
      {"NaN in `exp` and softmax; softplus and `log` inaccurate", 30200, 0,
       "[see above](#accuracy)", "seen on any CPU", nullptr},
      {"NaN in relu, clip, hard sigmoid and max pools; GELU of +inf with AVX-512", 30200, 0,
       "[a documented limit](#nan-and-infinity)", "seen on any CPU", nullptr},
  };
  return faults;
}

std::string Fault::Versions() const {
  const std::string first = VersionText(from);
  if (until == 0) return "from " + first;
  return until == from + 1 ? VersionText(from) + ".0; not " + VersionText(until)
                           : first + "; not " + VersionText(until);
}

int LibraryVersionNumber() {
  const dnnl_version_t* version = dnnl_version();
  return version->major * 10000 + version->minor * 100 + version->patch;
}

const Fault* FindFault(const Kernel& kernel, int version) {
  for (const Fault& fault : Faults()) {
    if (fault.affects != nullptr && fault.IsIn(version) && fault.affects(kernel)) return &fault;
  }
  return nullptr;
}

bool SkipFaulty(dnnl::primitive_desc* desc, const ZeroPoints& zero_points) {
  const auto is_faulty = [&] {
    Kernel kernel = Kernel::Read(*desc);
    kernel.src_zero_point = zero_points.src;
    kernel.weights_zero_point = zero_points.weights;
    return FindFault(kernel, LibraryVersionNumber()) != nullptr;
  };
  while (*desc && is_faulty()) {
    if (!desc->next_impl()) return false;
  }
  return static_cast<bool>(*desc);
}

}  // namespace tvm::runtime::contrib::dnnl_backend
