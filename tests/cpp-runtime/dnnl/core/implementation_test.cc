// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/dnnl/core/implementation_test.cc
 * \brief The judgement of oneDNN's implementations by their names.
 */
#include "src/runtime/contrib/dnnl/core/implementation.h"

#include <string>
#include <vector>

#include "tests/cpp-runtime/harness/test.h"

namespace dnnl_test::implementation {

using tvm::runtime::contrib::dnnl_backend::Implementation;
using tvm::runtime::contrib::dnnl_backend::Judge;

void ExpectAll(Implementation expected, const std::vector<const char*>& names) {
  for (const char* name : names) {
    if (!EXPECT_TRUE(Judge(std::string(name)) == expected)) std::cerr << name << std::endl;
  }
}

TEST(DNNLImplementation, NamesOfBothVersions) {
  ExpectAll(Implementation::kReference, {"ref:any", "conv:any+ref:any", "ip:any+ref:any"});
  ExpectAll(Implementation::kPortable,
            {"simple:any", "simple_nhwc:any", "simple_nchw:any", "nspc_bnorm:any", "ncsp_bnorm:any",
             "gemm:ref", "conv:any+gemm:ref"});
  ExpectAll(Implementation::kNative,
            {"jit:avx512_core", "jit:uni", "jit_dw:avx2", "x64:gemm:jit", "x64:gemm:blas",
             "gemm:jit:f32", "lrn_jit:avx512_core", "bnorm_jit:avx512_core", "ip:any+x64:gemm:jit",
             "conv:any+jit:avx512_core", "brgemm_matmul_matrix_B_reorder_t", "acl"});
}

TEST(DNNLImplementation, NamesOfOldestVersion) {
  ExpectAll(Implementation::kReference, {"ref_fused_convolution:any"});
  ExpectAll(Implementation::kNative, {"brg:avx512_core", "brgconv:avx512_core",
                                      "brgconv_1x1:avx512_core", "jit_bf16_1x1:avx512_core_bf16"});
}

TEST(DNNLImplementation, NamesOfNewestVersion) {
  ExpectAll(Implementation::kReference, {"ref_int8:any", "ref_grouped:any"});
  ExpectAll(Implementation::kPortable, {"ncsp_gnorm:any", "simple::any"});
  ExpectAll(Implementation::kNative,
            {"brg_matmul:avx512_core", "brg_conv_fwd:avx10_1_512_amx", "brg_deconv:avx2",
             "jit_lnorm:avx512_core", "jit_group:uni", "jit_direct_copy:uni",
             "jit_uni_ncsp:conv+jit:avx512_core", "conv:any+jit_uni_ncsp:conv+jit:avx2"});
}

TEST(DNNLImplementation, WhatIsFused) {
  const auto judge = [](const char* name, const char* kind, std::vector<std::string> post_ops) {
    return Judge(std::string(name), std::string(kind), post_ops);
  };
  const Implementation reference = Implementation::kReference, native = Implementation::kNative;
  const std::vector<std::string> bias = {"bias"}, relu = {"eltwise_relu"},
                                 sum = {"eltwise_relu", "binary_add"};
  for (const char* name : {"conv:any+jit:avx512_core", "conv:any+jit_uni_ncsp:conv+jit:avx2"}) {
    EXPECT_TRUE(judge(name, "deconvolution", {}) == native);
    EXPECT_TRUE(judge(name, "deconvolution", bias) == reference);
    EXPECT_TRUE(judge(name, "deconvolution", relu) == reference);
  }
  EXPECT_TRUE(judge("brg_deconv:avx2", "deconvolution", sum) == native);
  for (const char* name : {"x64:gemm:jit", "gemm:jit:f32"}) {
    EXPECT_TRUE(judge(name, "convolution", relu) == native);
    EXPECT_TRUE(judge(name, "convolution", sum) == reference);
    // A matmul applies its post-ops in code of its own.
    EXPECT_TRUE(judge(name, "matmul", sum) == native);
  }
  EXPECT_TRUE(judge("jit:avx512_core", "convolution", sum) == native);
  EXPECT_TRUE(judge("ref:any", "convolution", {}) == reference);
}

}  // namespace dnnl_test::implementation
