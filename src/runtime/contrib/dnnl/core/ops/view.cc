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
 * \file src/runtime/contrib/dnnl/core/ops/view.cc
 * \brief Ops that give the same elements other dimensions: views, so far as the layout allows.
 */
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "../op_table.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief A letter of a layout: an upper-case one is an axis, a lower-case one a block of it. */
struct LayoutPart {
  char letter;
  /*! \brief Of a block: how many elements of the axis it holds. */
  int64_t size;

  char axis() const { return letter >= 'a' ? static_cast<char>(letter - 'a' + 'A') : letter; }
  bool is_block() const { return letter >= 'a'; }
};

/*! \brief Read a layout such as "NCHW16c". */
std::vector<LayoutPart> ReadLayout(const NodeReader& node, const std::string& key) {
  std::vector<LayoutPart> parts;
  int64_t size = 0;
  for (char c : node.Get<std::string>(key)) {
    if (c >= '0' && c <= '9') {
      size = size * 10 + (c - '0');
    } else {
      parts.push_back({c, size});
      size = 0;
    }
  }
  return parts;
}

/*! \brief Axes without blocks, and the dims that a tensor in the layout has in these terms. */
struct Unblocked {
  std::string axes;
  Tensor value;
};

/*! \brief Bring the blocks of each axis behind it, and join them. */
Unblocked JoinBlocks(const NodeReader& node, PlanBuilder* plan, const Tensor& value,
                     const std::vector<LayoutPart>& layout) {
  Unblocked result;
  std::vector<int> order;
  Dims joined;
  for (size_t i = 0; i < layout.size(); ++i) {
    if (layout[i].is_block()) continue;
    result.axes += layout[i].letter;
    order.push_back(static_cast<int>(i));
    joined.push_back(value.dims()[i]);
    for (size_t j = 0; j < layout.size(); ++j) {
      if (!layout[j].is_block() || layout[j].axis() != layout[i].letter) continue;
      order.push_back(static_cast<int>(j));
      joined.back() *= value.dims()[j];
    }
  }
  result.value = plan->Reshaped(node, value.Permuted(order), joined);
  return result;
}

/*! \brief Split the axes into blocks and bring all into their order. */
Tensor SplitBlocks(const NodeReader& node, PlanBuilder* plan, const Unblocked& from,
                   const std::vector<LayoutPart>& layout) {
  Dims split;
  std::vector<int> order(layout.size());
  for (size_t axis = 0; axis < from.axes.size(); ++axis) {
    const size_t outer = split.size();
    split.push_back(from.value.dims()[axis]);
    for (size_t j = 0; j < layout.size(); ++j) {
      if (layout[j].axis() != from.axes[axis]) continue;
      if (!layout[j].is_block()) {
        order[j] = static_cast<int>(outer);
        continue;
      }
      order[j] = static_cast<int>(split.size());
      split[outer] /= layout[j].size;
      split.push_back(layout[j].size);
    }
  }
  return plan->Reshaped(node, from.value, split).Permuted(order);
}

}  // namespace

void LowerReshape(const NodeReader& node, PlanBuilder* plan) {
  plan->SetOutput(node, plan->Reshaped(node, plan->Input(node, 0), node.OutDims()));
}

void LowerTranspose(const NodeReader& node, PlanBuilder* plan) {
  const Tensor src = plan->Input(node, 0);
  const int rank = static_cast<int>(src.dims().size());
  std::vector<int> axes;
  for (int64_t axis : node.Get<std::vector<int64_t>>("axes", {})) {
    axes.push_back(static_cast<int>(axis < 0 ? axis + rank : axis));
  }
  if (axes.empty()) {
    axes.resize(rank);
    std::iota(axes.rbegin(), axes.rend(), 0);
  }
  plan->SetOutput(node, src.Permuted(axes));
}

void LowerLayoutTransform(const NodeReader& node, PlanBuilder* plan) {
  const Unblocked joined =
      JoinBlocks(node, plan, plan->Input(node, 0), ReadLayout(node, "src_layout"));
  plan->SetOutput(node, SplitBlocks(node, plan, joined, ReadLayout(node, "dst_layout")));
}

}  // namespace tvm::runtime::contrib::dnnl_backend
