// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/dnnl/core/post_op_chain_test.cc
 * \brief How many post-ops it takes to quantize, clip and add.
 */
#include "src/runtime/contrib/dnnl/core/fusion/post_op_chain.h"

#include <sstream>
#include <string>
#include <vector>

#include "tests/cpp-runtime/harness/test.h"

namespace dnnl_test::post_op_chain {

using namespace tvm::runtime::contrib::dnnl_backend;  // NOLINT(build/namespaces)

constexpr auto kRound = dnnl::algorithm::eltwise_round;
constexpr auto kClip = dnnl::algorithm::eltwise_clip;
constexpr auto kRelu = dnnl::algorithm::eltwise_relu;
constexpr auto kAdd = dnnl::algorithm::binary_add;

Tensor Operand() { return {0, PlainDesc({4, 8}, dnnl::memory::data_type::u8)}; }

/*! \brief The post-ops as text, with their numbers. */
std::vector<std::string> Texts(const PostOpChain& chain) {
  PlanBuilder::Args operands;
  int residual = 0;
  const dnnl::post_ops ops = chain.Finish(32, &operands, &residual);
  std::vector<std::string> texts;
  for (int i = 0; i < ops.len(); ++i) {
    float alpha = 0, beta = 0;
    int32_t zero_point = 0;
    dnnl::algorithm algorithm = dnnl::algorithm::undef;
    dnnl::memory::data_type type = dnnl::memory::data_type::undef;
    std::ostringstream text;
    if (ops.kind(i) == dnnl::primitive::kind::sum) {
      ops.get_params_sum(i, alpha, zero_point, type);
      text << "sum " << alpha;
    } else if (ops.kind(i) == dnnl::primitive::kind::binary) {
      text << "binary";
    } else {
      ops.get_params_eltwise(i, algorithm, alpha, beta);
      text << (algorithm == kClip    ? "clip "
               : algorithm == kRound ? "round "
               : algorithm == kRelu  ? "relu "
                                     : "linear ")
           << alpha << " " << beta;
    }
    texts.push_back(text.str());
  }
  return texts;
}

using Strings = std::vector<std::string>;

TEST(DNNLPostOpChain, LinearFunctionsAreOne) {
  PostOpChain chain(/*in_place=*/false);
  chain.AppendLinear(2, 1);
  chain.AppendLinear(4, 3);
  EXPECT_EQ(Texts(chain), Strings({"linear 8 7"}));
  const LinearFunction head = chain.TakeHead();
  EXPECT_EQ(head.scale, 8);
  EXPECT_EQ(head.shift, 7);
  EXPECT_EQ(Texts(chain), Strings());
  EXPECT_EQ(chain.TakeHead().scale, 1);
  // A dequantization and the same as a quantization.
  chain.AppendEltwise(kRound, 0, 0);
  chain.AppendLinear(0.1, -0.7);
  chain.AppendLinear(1 / 0.1, 7);
  EXPECT_EQ(Texts(chain), Strings({"round 0 0"}));
}

TEST(DNNLPostOpChain, ClipsBehindQuantizationsAreOne) {
  PostOpChain chain(/*in_place=*/false);
  chain.AppendEltwise(kRound, 0, 0);
  chain.AppendEltwise(kClip, 0, 255);
  chain.AppendLinear(0.5, -64);
  chain.AppendEltwise(kRelu, 0, 0);
  EXPECT_EQ(Texts(chain), Strings({"round 0 0", "clip 128 255", "linear 0.5 -64"}));
  chain.AppendEltwise(kClip, 0, 6);
  EXPECT_EQ(Texts(chain), Strings({"round 0 0", "clip 128 140", "linear 0.5 -64"}));
  // All that is left is one number, the nearest of the later bounds.
  chain.AppendEltwise(kClip, 7, 9);
  EXPECT_EQ(Texts(chain), Strings({"round 0 0", "clip 142 142", "linear 0.5 -64"}));
}

TEST(DNNLPostOpChain, OtherClipsStay) {
  PostOpChain falling(/*in_place=*/false), leaky(/*in_place=*/false), alone(/*in_place=*/false);
  falling.AppendEltwise(kClip, 0, 255);
  falling.AppendLinear(-1, 0);
  falling.AppendEltwise(kRelu, 0, 0);
  EXPECT_EQ(Texts(falling), Strings({"clip 0 255", "linear -1 0", "relu 0 0"}));
  leaky.AppendEltwise(kClip, 0, 255);
  leaky.AppendEltwise(kRelu, 0.5, 0);
  EXPECT_EQ(Texts(leaky), Strings({"clip 0 255", "relu 0.5 0"}));
  alone.AppendEltwise(kRelu, 0, 0);
  alone.AppendEltwise(kClip, 0, 6);
  EXPECT_EQ(Texts(alone), Strings({"relu 0 0", "clip 0 6"}));
}

TEST(DNNLPostOpChain, SumsComeLast) {
  PostOpChain in_place(/*in_place=*/true), plain(/*in_place=*/false);
  for (PostOpChain* chain : {&in_place, &plain}) {
    chain->AppendLinear(4, -3);
    chain->AppendBinary(kAdd, Operand(), /*is_residual=*/true);
    chain->AppendLinear(0.5, 10);
  }
  EXPECT_EQ(Texts(in_place), Strings({"linear 2 8.5", "sum 0.5"}));
  EXPECT_EQ(Texts(plain), Strings({"linear 4 -3", "binary", "linear 0.5 10"}));
  in_place.AppendEltwise(kRelu, 0, 0);
  in_place.AppendLinear(3, 0);
  EXPECT_EQ(Texts(in_place), Strings({"linear 2 8.5", "sum 0.5", "relu 0 0", "linear 3 0"}));
}

}  // namespace dnnl_test::post_op_chain
