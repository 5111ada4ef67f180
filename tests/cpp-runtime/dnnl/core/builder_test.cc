// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/dnnl/core/builder_test.cc
 * \brief What a plan builder forgets when an attempt to lower a node fails.
 */
#include "src/runtime/contrib/dnnl/core/plan/builder.h"

#include "src/runtime/contrib/dnnl/core/desc.h"
#include "tests/cpp-runtime/harness/test.h"

namespace dnnl_test::builder {

using namespace tvm::runtime::contrib::dnnl_backend;  // NOLINT(build/namespaces)

/*! \brief A builder with one input, and a node that reads it. */
struct Fixture {
  const TensorType type{{1, 8, 4, 4}, {kDLFloat, 32, 1}};
  const Node node{1, "nn.relu", {}, {{0, 0}}, {type}};
  const Node next{2, "nn.relu", {}, {{1, 0}}, {type}};
  const NodeReader reader{node, "main"};
  PlanBuilder builder{Graph{}, 1};

  Fixture() { builder.AddInput({{0, 0}, {"input x", type}}); }
};

TEST(DNNLPlanBuilder, GoesBackToValuesThatHadACopy) {
  Fixture f;
  const Tensor input = f.builder.Input(f.reader, 0);
  // Made before the mark, so that it stays.
  f.builder.InLayout(f.reader, input, ChannelsLast(input.md));
  const PlanBuilder::Mark mark = f.builder.Here();
  EXPECT_TRUE(f.builder.SetInputLayouts(f.reader, 0, ChannelsLast));
  EXPECT_TRUE(f.builder.Input(f.reader, 0).md == ChannelsLast(input.md));
  f.builder.BackTo(mark);
  EXPECT_TRUE(f.builder.Input(f.reader, 0).md == input.md);
}

TEST(DNNLPlanBuilder, GoesBackToValuesThatWereNotThere) {
  Fixture f;
  const PlanBuilder::Mark mark = f.builder.Here();
  f.builder.SetOutput(f.reader, f.builder.NewTensor(f.builder.Input(f.reader, 0).md));
  f.builder.BackTo(mark);
  EXPECT_THROWS(f.builder.Input(NodeReader(f.next, "main"), 0), "node 2", "is not computed");
}

TEST(DNNLPlanBuilder, GoesBackToTheChoiceOfBlocks) {
  Fixture f;
  const PlanBuilder::Mark before = f.builder.Here();
  f.builder.KeepBlocks();
  const PlanBuilder::Mark after = f.builder.Here();
  f.builder.BackTo(after);
  EXPECT_TRUE(f.builder.keeps_blocks());
  f.builder.BackTo(before);
  EXPECT_TRUE(!f.builder.keeps_blocks());
}

TEST(DNNLPlanBuilder, NamesTheNodeOfWhatCannotBeReshaped) {
  Fixture f;
  const Tensor input = f.builder.Input(f.reader, 0);
  EXPECT_EQ(f.builder.Reshaped(f.reader, input, {8, 16}).dims(), (Dims{8, 16}));
  EXPECT_THROWS(f.builder.Reshaped(f.reader, input, {8, 17}), "main, node 1 nn.relu",
                "[1, 8, 4, 4]", "[8, 17]");
}

}  // namespace dnnl_test::builder
