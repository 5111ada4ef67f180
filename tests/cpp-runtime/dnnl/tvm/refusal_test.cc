// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/dnnl/tvm/refusal_test.cc
 * \brief Each op of the table, and composites, with each attribute, each operand and each type
 * changed: it is an error that names the node, or the plan runs.
 */
#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/runtime/contrib/dnnl/core/desc.h"
#include "src/runtime/contrib/dnnl/core/error.h"
#include "src/runtime/contrib/dnnl/core/infer.h"
#include "src/runtime/contrib/dnnl/core/lowering.h"
#include "src/runtime/contrib/dnnl/core/op_table.h"
#include "tests/cpp-runtime/dnnl/tvm/drawn_ops.h"
#include "tests/cpp-runtime/harness/test.h"

namespace dnnl_test::refusal {

/*! \brief Whether a node is refused; else its plan is run. */
bool IsRefused(ValidOp op, const std::string& what) {
  constexpr size_t kMaxBytes = 1 << 22;
  try {
    try {
      Infer(GraphOf(op), InputShapes(GraphOf(op)));
    } catch (const Error& error) {
      // The results are others than before, as those of a single op may be.
      const bool is_other =
          std::string(error.what()).find("in the graph, but") != std::string::npos;
      if (!is_other || FindOp(op.name) == nullptr) throw;
      const Graph graph = GraphOf(op);
      op.outputs = FindOp(op.name)->family.infer(NodeReader(graph.nodes[0], "main"), op.inputs);
    }
    const Graph graph = GraphOf(op);
    for (const Types* types : {&op.inputs, &op.outputs}) {
      for (const TensorType& type : *types) {
        if (BytesOf(type) > kMaxBytes) return false;
      }
    }
    const auto plan = tvm::runtime::contrib::dnnl_backend::MakePlan(graph);
    const auto run = [&](char old) { return Run(plan, graph.inputs.size(), old); };
    if (!EXPECT_TRUE(run(0x55) == run(0x2a))) std::cerr << what << std::endl;
    return false;
  } catch (const Error& error) {
    const std::string text = error.what();
    // Of an op in a composite: "main, node 9 clip of dnnl.conv2d_clip".
    const bool names_node = (text.find("main, node 9 ") != std::string::npos &&
                             text.find(op.name) != std::string::npos) ||
                            text.find("main: input ") != std::string::npos;
    if (!EXPECT_TRUE(names_node)) std::cerr << what << ": " << text << std::endl;
    return true;
  }
}

/*! \brief Whether the runtime need not read an attribute: others say the same. */
bool IsUnread(const ValidOp& op, const std::string& attr) {
  const std::string root = op.attrs.count("root_op") > 0 ? op.attrs.at("root_op")[0] : op.name;
  const auto is = [&](const char* name, const char* prefix) {
    return root.rfind(name, 0) == 0 && attr.rfind(prefix, 0) == 0;
  };
  const bool is_axis = attr.size() >= 4 && attr.compare(attr.size() - 4, 4, "axis") == 0;
  return is("image.resize", "scale_") || is("nn.upsampling", "align_corners") ||
         is("nn.upsampling", "coordinate_transformation_mode") || is("nn.lrn", "norm_region") ||
         is("broadcast_to", "shape") ||
         // Of one scale.
         (is_axis && op.name.find("qnn.") != std::string::npos);
}

bool HasFloat(const Attr& attr) {
  return std::any_of(attr.begin(), attr.end(), [](const std::string& text) {
    return text.find_first_of(".e") != std::string::npos;
  });
}

/*! \brief Whether an axis of the first input is that of the attribute `axis`. */
bool IsAxis(const ValidOp& op, size_t axis) {
  const int64_t named = std::stoi(op.attrs.at("axis")[0]);
  const auto rank = static_cast<int64_t>(op.inputs[0].shape.size());
  return (named + rank) % rank == static_cast<int64_t>(axis);
}

TEST(DNNLRefusal, EachOpHasAValidNode) {
  std::set<std::string> names;
  for (const ValidOp& op : DrawnOps()) {
    names.insert(op.name);
    const Graph graph = Infer(GraphOf(op), InputShapes(GraphOf(op)));
    EXPECT_EQ(graph.nodes[0].outputs.size(), op.outputs.size());
    if (!EXPECT_TRUE(!IsRefused(op, op.name))) std::cerr << op.name << std::endl;
  }
  for (const std::string& name : OpNames()) {
    if (!EXPECT_TRUE(names.count(name) == 1)) std::cerr << name << std::endl;
  }
}

TEST(DNNLRefusal, EachAttribute) {
  const Attr values = {"-1",
                       "0",
                       "3",
                       "2147483647",
                       "2147483648",
                       "9223372036854775807",
                       "-9223372036854775808",
                       "99999999999999999999",
                       "nan",
                       "inf",
                       "1e300",
                       "abc",
                       "NCWH",
                       "float64"};
  for (const ValidOp& valid : DrawnOps()) {
    for (const auto& [name, attr] : valid.attrs) {
      const auto try_out = [&, &name = name](const Attr& value) {
        ValidOp op = valid;
        op.attrs[name] = value;
        std::string text = op.name + " with " + name;
        for (const std::string& part : value) text += " " + part;
        return IsRefused(op, text);
      };
      // Whatever is read is checked, before anything is lowered.
      ValidOp unreadable = valid;
      unreadable.attrs[name] = {"no value"};
      const Graph graph = GraphOf(unreadable);
      if (!IsUnread(valid, name) &&
          !EXPECT_THROWS(Infer(graph, InputShapes(graph)), "main, node 9 ")) {
        std::cerr << valid.name << " " << name << std::endl;
      }
      for (size_t i = 0; i < attr.size(); ++i) {
        for (const std::string& value : values) {
          Attr changed = attr;
          changed[i] = value;
          try_out(changed);
        }
      }
      try_out({});
      if (attr.empty()) continue;
      Attr longer = attr;
      longer.insert(longer.end(), 13, attr[0]);
      try_out(longer);
      try_out(Attr(attr.begin() + 1, attr.end()));
      if (HasFloat(attr) && !IsUnread(valid, name)) EXPECT_TRUE(try_out({"nan"}));
    }
  }
}

TEST(DNNLRefusal, EachOperand) {
  for (const ValidOp& valid : DrawnOps()) {
    for (size_t i = 0; i < valid.inputs.size(); ++i) {
      const auto try_out = [&](const std::vector<int64_t>& shape) {
        ValidOp op = valid;
        op.inputs[i].shape = shape;
        return IsRefused(
            op, op.name + " of " + ToText(op.inputs[i]) + " as input " + std::to_string(i));
      };
      const std::vector<int64_t> shape = valid.inputs[i].shape;
      try_out({});
      if (!shape.empty()) try_out({shape.begin() + 1, shape.end()});
      std::vector<int64_t> longer = shape;
      longer.push_back(1);
      try_out(longer);
      longer.back() = 2;
      try_out(longer);
      EXPECT_TRUE(try_out(std::vector<int64_t>(13, 1)));
      for (size_t axis = 0; axis < shape.size(); ++axis) {
        const auto with = [&](int64_t size) {
          std::vector<int64_t> changed = shape;
          changed[axis] = size;
          return try_out(changed);
        };
        for (int64_t size : {int64_t{1}, shape[axis] + 1, 2 * shape[axis]}) with(size);
        for (int64_t size : {int64_t{0}, int64_t{-1}, int64_t{-7}, int64_t{1} << 31,
                             int64_t{1} << 62, std::numeric_limits<int64_t>::max()}) {
          // A concatenation reads an empty input, such as a cache before the first token.
          const bool is_legal = size == 0 && valid.name == "concatenate" && IsAxis(valid, axis);
          if (!EXPECT_TRUE(with(size) || is_legal)) std::cerr << valid.name << std::endl;
        }
        with((int64_t{1} << 31) - 1);
      }
    }
  }
}

TEST(DNNLRefusal, EachType) {
  for (const ValidOp& valid : DrawnOps()) {
    for (size_t i = 0; i < valid.inputs.size(); ++i) {
      const auto try_out = [&](DLDataType dtype) {
        ValidOp op = valid;
        op.inputs[i].dtype = dtype;
        return IsRefused(
            op, op.name + " of " + ToText(op.inputs[i]) + " as input " + std::to_string(i));
      };
      for (DLDataType dtype : {DLDataType{kDLFloat, 32, 1},
                               {kDLFloat, 16, 1},
                               {kDLBfloat, 16, 1},
                               {kDLInt, 32, 1},
                               {kDLInt, 8, 1},
                               {kDLUInt, 8, 1},
                               {kDLUInt, 1, 1}}) {
        try_out(dtype);
      }
      for (DLDataType dtype : {DLDataType{kDLFloat, 64, 1},
                               {kDLInt, 64, 1},
                               {kDLFloat, 32, 4},
                               {kDLFloat, 8, 1},
                               {77, 32, 1},
                               {kDLInt, 0, 1}}) {
        EXPECT_TRUE(try_out(dtype));
      }
    }
  }
}

/*! \brief What the lowering reads the values of, such as 8-bit weights, may be no constant. */
TEST(DNNLRefusal, ConstantsAsInputs) {
  for (const ValidOp& valid : DrawnOps()) {
    for (size_t i = 0; i < valid.constants.size(); ++i) {
      ValidOp op = valid;
      op.constants.erase(op.constants.begin() + static_cast<int64_t>(i));
      IsRefused(op, op.name);
    }
  }
}

TEST(DNNLRefusal, NumberOfInputsAndOutputs) {
  for (const ValidOp& valid : DrawnOps()) {
    ValidOp op = valid;
    op.outputs.push_back(op.outputs[0]);
    // One section, and one index, are one text.
    if (op.name != "split") EXPECT_TRUE(IsRefused(op, op.name));
    op = valid;
    op.outputs.clear();
    EXPECT_TRUE(IsRefused(op, op.name));
    op = valid;
    op.inputs.clear();
    EXPECT_TRUE(IsRefused(op, op.name));
    op = valid;
    op.inputs.push_back(op.inputs[0]);
    IsRefused(op, op.name);
    const std::string root =
        valid.attrs.count("root_op") > 0 ? valid.attrs.at("root_op")[0] : op.name;
    if (FindOp(root)->max_inputs < 10) {
      op.inputs.insert(op.inputs.end(), 10, op.inputs[0]);
      EXPECT_TRUE(IsRefused(op, op.name));
    }
  }
}

}  // namespace dnnl_test::refusal
