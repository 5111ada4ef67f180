// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/dnnl/tvm/one_by_one_test.cc
 * \brief A node with post-ops gives what nodes give that have one op each.
 */
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/cpp-runtime/dnnl/tvm/drawn_ops.h"
#include "tests/cpp-runtime/harness/test.h"

namespace dnnl_test::one_by_one {

/*! \brief The graph of two ops, the second of which reads the result of the first one. */
Graph TwoNodes(const ValidOp& first, const ValidOp& second) {
  Graph graph = GraphOf(first);
  Node node{10, second.name, {}, {{9, 0}}, second.outputs};
  for (size_t i = 1; i < second.inputs.size(); ++i) {
    const Entry entry{200 + static_cast<uint32_t>(i), 0};
    graph.inputs.push_back({entry, {"operand", second.inputs[i]}});
    node.inputs.push_back(entry);
  }
  for (const auto& [name, value] : second.attrs) node.attrs[name] = value;
  graph.nodes.push_back(node);
  graph.outputs = {{{10, 0}, {"output 0", second.outputs[0]}}};
  return graph;
}

/*! \brief The graph of one op with another one as its last post-op. */
Graph OneNode(const ValidOp& first, const ValidOp& second) {
  ValidOp op = first;
  Attr& post_ops = op.attrs["post_ops"];
  const std::string prefix = "post_ops." + std::to_string(post_ops.size()) + ".";
  post_ops.push_back(second.name);
  for (const auto& [name, value] : second.attrs) op.attrs[prefix + name] = value;
  if (second.inputs.size() > 1) {
    op.attrs[prefix + "operand"] = {std::to_string(op.inputs.size())};
    op.inputs.push_back(second.inputs[1]);
  }
  op.outputs = second.outputs;
  return GraphOf(op);
}

/*! \brief Ops whose first input is float32 of a shape. */
std::vector<ValidOp> OpsOn(const Shape& shape) {
  const TensorType x = Float32(shape);
  const Shape reversed(shape.rbegin(), shape.rend());
  Attr newshape;
  for (int64_t dim : reversed) newshape.push_back(std::to_string(dim));
  return {{"negative", {x}, {}, {x}},
          {"reshape", {x}, {{"newshape", newshape}}, {Float32(reversed)}},
          {"transpose", {x}, {}, {Float32(reversed)}},
          {"nn.softmax", {x}, {{"axis", {"0"}}}, {x}},
          {"subtract", {x, x}, {}, {x}},
          {"nn.prelu", {x, Float32({shape.back()})}, {{"axis", {"-1"}}}, {x}}};
}

void ExpectSame(const ValidOp& first, const ValidOp& second) {
  const auto apart = Run(TwoNodes(first, second), 0x55), fused = Run(OneNode(first, second), 0x55);
  const auto* expected = reinterpret_cast<const float*>(apart[0].data());
  const auto* actual = reinterpret_cast<const float*>(fused[0].data());
  for (size_t i = 0; i < apart[0].size() / sizeof(float); ++i) {
    // Of two infinities, the difference is none.
    if (actual[i] == expected[i] || (std::isnan(actual[i]) && std::isnan(expected[i]))) continue;
    // What is fused may be added up in another order.
    if (std::abs(actual[i] - expected[i]) <= 1e-5f * std::max(1.f, std::abs(expected[i]))) continue;
    std::cerr << second.name << " behind " << first.name << ", element " << i << ": " << actual[i]
              << ", expected " << expected[i] << std::endl;
    EXPECT_TRUE(false);
    return;
  }
}

TEST(DNNLOneByOne, AnyOpBehindAnyOther) {
  for (const ValidOp& first : DrawnOps()) {
    const TensorType& type = first.outputs[0];
    const bool is_float = type.dtype.code == kDLFloat && type.dtype.bits == 32;
    if (first.outputs.size() != 1 || !is_float) continue;
    for (const ValidOp& second : OpsOn(type.shape)) {
      if (first.name == "broadcast_to") {
        // The output tells its shape, and is that of the last post-op.
        EXPECT_THROWS(Run(OneNode(first, second), 0x55), "broadcast_to");
      } else {
        ExpectSame(first, second);
      }
    }
  }
}

TEST(DNNLOneByOne, OneRemainingPartOfASplit) {
  ValidOp split{"split", {Float32({4, 6})}, {{"axis", {"0"}}, {"indices_or_sections", {"1"}}}, {}};
  split.outputs = split.inputs;
  for (const ValidOp& second : OpsOn({4, 6})) ExpectSame(split, second);
}

}  // namespace dnnl_test::one_by_one
