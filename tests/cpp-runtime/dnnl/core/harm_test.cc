// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/dnnl/core/harm_test.cc
 * \brief What would write where it must not, take for ever or exhaust the memory.
 */
#include <string>
#include <utility>
#include <vector>

#include "src/runtime/contrib/dnnl/core/desc.h"
#include "src/runtime/contrib/dnnl/core/lowering.h"
#include "tests/cpp-runtime/dnnl/core/valid_ops.h"
#include "tests/cpp-runtime/harness/test.h"

namespace dnnl_test::harm {

/*! \brief The plan of an op of the table, changed. */
template <typename Change>
auto PlanOf(const std::string& name, const Change& change) {
  ValidOp op = Valid(name);
  change(&op);
  return MakePlan(GraphOf(op));
}

TEST(DNNLHarm, AxesOfTranspose) {
  for (const Attr& axes : std::vector<Attr>{{"0", "1", "1000000"},
                                            {"0", "1", "-4"},
                                            {"0", "1", "1"},
                                            {"0", "1"},
                                            {"1", "0", "2", "3"}}) {
    EXPECT_THROWS(PlanOf("transpose", [&](ValidOp* op) { op->attrs["axes"] = axes; }),
                  "main, node 9 transpose: axes");
  }
}

TEST(DNNLHarm, GammaAndBeta) {
  for (const char* name : {"nn.layer_norm", "nn.instance_norm", "nn.group_norm", "nn.batch_norm"}) {
    for (size_t input : {1, 2}) {
      for (const Shape& shape : std::vector<Shape>{{1}, {3}, {400}, {2, 2}, {}}) {
        EXPECT_THROWS(PlanOf(name, [&](ValidOp* op) { op->inputs[input].shape = shape; }),
                      std::string("main, node 9 ") + name + ": input " + std::to_string(input),
                      "is not a vector of 4 elements");
      }
    }
  }
}

TEST(DNNLHarm, NumberOfGroups) {
  for (const char* groups : {"0", "-2", "3", "8", "1099511627776"}) {
    EXPECT_THROWS(PlanOf("nn.group_norm", [&](ValidOp* op) { op->attrs["num_groups"] = {groups}; }),
                  "main, node 9 nn.group_norm: num_groups", groups);
    for (const char* conv : {"nn.conv2d", "nn.conv2d_transpose"}) {
      EXPECT_THROWS(PlanOf(conv, [&](ValidOp* op) { op->attrs["groups"] = {groups}; }),
                    std::string("main, node 9 ") + conv, groups);
    }
  }
}

TEST(DNNLHarm, RanksAndLayoutsOfConvolutions) {
  for (const char* conv : {"nn.conv2d", "nn.conv2d_transpose"}) {
    const std::string where = std::string("main, node 9 ") + conv;
    for (size_t input : {0, 1}) {
      for (const Shape& shape : std::vector<Shape>{{}, {4}, {1, 4}, {1, 4, 7}, {1, 4, 7, 7, 7}}) {
        EXPECT_THROWS(PlanOf(conv,
                             [&](ValidOp* op) {
                               op->inputs[input].shape = shape;
                               op->outputs[0].shape = shape;
                             }),
                      where, "input " + std::to_string(input), "does not have rank 4");
      }
    }
    for (const char* key : {"data_layout", "out_layout", "kernel_layout"}) {
      for (const char* layout : {"NCW", "NCDHW", "NCHH", "XYZW"}) {
        EXPECT_THROWS(PlanOf(conv, [&](ValidOp* op) { op->attrs[key] = {layout}; }), where,
                      std::string("layout ") + layout + " is not a permutation of");
      }
    }
  }
}

TEST(DNNLHarm, PartsOfAConcatenation) {
  for (const Shape& shape : std::vector<Shape>{{}, {2}, {2, 3, 4, 1}, {2, 3, 5}, {3, 3, 4}}) {
    EXPECT_THROWS(PlanOf("concatenate", [&](ValidOp* op) { op->inputs[1].shape = shape; }),
                  "main, node 9 concatenate: input 1", "cannot be concatenated to input 0");
  }
}

TEST(DNNLHarm, Layouts) {
  for (const char* key : {"src_layout", "dst_layout"}) {
    for (const char* layout : {"abc", "NCHw", "NCHW0c", "NCHW4c2c", "NNHW", "4", "NCHW4", "N?HW"}) {
      EXPECT_THROWS(PlanOf("layout_transform", [&](ValidOp* op) { op->attrs[key] = {layout}; }),
                    "main, node 9 layout_transform", key, layout);
    }
  }
  for (const char* layout : {"NCHW3c", "NCH", "NCHWD", "NCHW99999999999999999999c"}) {
    EXPECT_THROWS(
        PlanOf("layout_transform", [&](ValidOp* op) { op->attrs["dst_layout"] = {layout}; }),
        "main, node 9 layout_transform");
  }
}

TEST(DNNLHarm, PadsWithTheDataThemselves) {
  const auto plan = [](const char* mode, const char* last) {
    return [=] {
      PlanOf("nn.pad", [&](ValidOp* op) {
        op->attrs["pad_mode"] = {mode};
        op->attrs["pad_width"] = {"0", "0", "1", "0", "2", last};
      });
    };
  };
  plan("edge", "3")();
  plan("reflect", "3")();
  const std::string where = "main, node 9 nn.pad";
  EXPECT_THROWS(plan("wrap", "3")(), where, "pad_mode is wrap", "constant, edge or reflect");
  EXPECT_THROWS(plan("reflect", "4")(), where, "reflects 4 lines along axis 2");
  EXPECT_THROWS(plan("edge", "62")(), where, "more than 64 lines");
  EXPECT_THROWS(plan("edge", "9223372036854775807")(), where, "pad_width");
}

TEST(DNNLHarm, HugeDimensions) {
  const int64_t limit = int64_t{1} << 31;
  EXPECT_THROWS(PlanOf("nn.relu", [&](ValidOp* op) { op->inputs[0].shape[0] = limit; }),
                "main: input 0", "exceeds the limit of");
  EXPECT_THROWS(PlanOf("nn.relu", [&](ValidOp* op) { op->inputs[0].shape = Shape(6, limit - 1); }),
                "main: input 0", "exceeds the limit of");
  EXPECT_THROWS(
      PlanOf("expand_dims", [&](ValidOp* op) { op->attrs["num_newaxis"] = {"1000000000"}; }),
      "main, node 9 expand_dims: num_newaxis");
  EXPECT_THROWS(PlanOf("image.resize2d",
                       [&](ValidOp* op) { op->attrs["size"] = {"2147483647", "2147483647"}; }),
                "main, node 9 image.resize2d", "exceeds the limit of");
  EXPECT_THROWS(PlanOf("nn.conv2d", [&](ValidOp* op) { op->attrs["padding"] = {"1000000000"}; }),
                "main, node 9 nn.conv2d", "exceeds the limit of");
}

TEST(DNNLHarm, ReshapedTensors) {
  const Tensor tensor{0, PlainDesc({2, 3}, dnnl::memory::data_type::f32)};
  EXPECT_EQ(tensor.Reshaped({3, 2}).dims(), Dims({3, 2}));
  EXPECT_THROWS(tensor.Reshaped({3, 3}), "[2, 3]", "[3, 3]");
}

TEST(DNNLHarm, PadBehindWhichIsAReshape) {
  const Graph graph = GraphOf({"nn.pad",
                               {Float32({1, 2})},
                               {{"pad_width", {"0", "11", "0", "0"}},
                                {"pad_mode", {"constant"}},
                                {"pad_value", {"3"}},
                                {"post_ops", {"reshape"}},
                                {"post_ops.0.newshape", {"2", "12"}}},
                               {Float32({2, 12})}});
  const std::vector<char> bytes = Run(graph, 0x55)[0];
  const auto* values = reinterpret_cast<const float*>(bytes.data());
  std::vector<float> expected(24, 3);
  expected[0] = 0.25f;
  expected[1] = 0.3125f;
  EXPECT_EQ(std::vector<float>(values, values + 24), expected);
}

TEST(DNNLHarm, PartsOutsideOfATensor) {
  const auto md = PlainDesc({4, 6}, dnnl::memory::data_type::f32);
  EXPECT_EQ(SlicedDesc(md, {{1, 1}, {3, 3}, {1, 2}}).second, 7 * sizeof(float));
  for (const Slice& slice : std::vector<Slice>{{{-1, 0}, {4, 6}, {1, 1}},
                                               {{1, 0}, {4, 6}, {1, 1}},
                                               {{0, 0}, {24, 1}, {1, 1}},
                                               {{0, 1}, {4, 4}, {1, 2}},
                                               {{4, 0}, {1, 6}, {1, 1}}}) {
    EXPECT_THROWS(SlicedDesc(md, slice), "outside of a tensor of shape [4, 6]");
  }
}

TEST(DNNLHarm, WindowsOf32Bits) {
  const auto pool = [](const char* size, const char* before, const char* behind) {
    return [=]() {
      MakePlan(GraphOf({"nn.avg_pool2d",
                        {Float32({1, 16, 8, 8})},
                        {{"pool_size", {"1", size}},
                         {"padding", {"0", before, "0", behind}},
                         {"count_include_pad", {"1"}}},
                        {Float32({1, 16, 8, kOpen})}}));
    };
  };
  const std::string where = "main, node 9 nn.avg_pool2d: ";
  EXPECT_THROWS(pool("2147483647", "2147483643", "0")(), where, "2147483651 values",
                "exceed oneDNN's limit of 2147483647");
  // oneDNN's code for any layout goes through such a window for hours.
  EXPECT_THROWS(pool("2147483647", "2147483639", "0")(), where, "a window of [1, 2147483647] may",
                "more than 4096 values of padding");
  EXPECT_THROWS(pool("4105", "4096", "1")(), where, "more than 4096 values of padding");
  pool("4097", "4096", "0")();
  for (const char* conv : {"nn.conv2d", "nn.conv2d_transpose"}) {
    EXPECT_THROWS(PlanOf(conv,
                         [&](ValidOp* op) {
                           op->attrs["dilation"] = {"1", "2147483647"};
                           op->attrs["padding"] = {"1", "2147483647"};
                         }),
                  std::string("main, node 9 ") + conv, "exceed oneDNN's limit of 2147483647");
  }
}

TEST(DNNLHarm, NumberOfPostOps) {
  const auto plan = [](size_t count) {
    return PlanOf("nn.relu", [&](ValidOp* op) { op->attrs["post_ops"] = Attr(count, "nn.relu"); });
  };
  plan(1024);
  EXPECT_THROWS(plan(1025), "main, node 9 nn.relu: has 1025 post-ops, at most 1024 are allowed");
}

/*! \brief A pad with large frames, which are written piece by piece. */
TEST(DNNLHarm, ConstantsOfAFrame) {
  for (const Attr& widths : std::vector<Attr>{{"0", "0", "3", "1", "2", "700000"},
                                              {"700000", "0", "0", "1", "0", "0"},
                                              {"0", "1", "0", "400000", "0", "0"}}) {
    ValidOp pad{"nn.pad", {Float32({2, 3, 2})}, {{"pad_width", widths}, {"pad_value", {"7"}}}, {}};
    const Shape data = pad.inputs[0].shape;
    Shape dims = data, before;
    for (size_t i = 0; i < 6; ++i) dims[i / 2] += std::stoi(widths[i]);
    for (size_t i = 0; i < 6; i += 2) before.push_back(std::stoi(widths[i]));
    pad.outputs = {Float32(dims)};
    const Graph graph = GraphOf(pad);
    EXPECT_TRUE(MakePlan(graph)->constant_bytes <= (sizeof(float) << 20));
    const std::vector<char> bytes = Run(graph, 0x55)[0];
    const auto* values = reinterpret_cast<const float*>(bytes.data());
    int64_t filled = 0, copied = 0, of_data = 0;
    for (int64_t i = 0; i < NumElements(dims); ++i) {
      const int64_t at[] = {i / dims[2] / dims[1], i / dims[2] % dims[1], i % dims[2]};
      bool is_inside = true;
      for (int axis = 0; axis < 3; ++axis) {
        const int64_t from = at[axis] - before[axis];
        is_inside = is_inside && from >= 0 && from < data[axis];
      }
      filled += !is_inside && values[i] == 7;
      of_data += is_inside;
      copied += is_inside && values[i] != 7;
    }
    EXPECT_EQ(of_data, NumElements(data));
    EXPECT_EQ(copied, of_data);
    EXPECT_EQ(filled, NumElements(dims) - of_data);
  }
}

}  // namespace dnnl_test::harm
