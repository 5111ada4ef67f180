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
#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "../op_table.h"
#include "types.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief A letter of a layout: an upper-case one is an axis, a lower-case one a block of it. */
struct LayoutPart {
  char letter;
  /*! \brief How many elements of the axis a block holds. */
  int64_t size;

  char axis() const { return is_block() ? static_cast<char>(letter - 'a' + 'A') : letter; }
  bool is_block() const { return letter >= 'a'; }
};

/*! \brief Read a layout such as "NCHW16c": each axis once, with one block of it at most. */
std::vector<LayoutPart> ReadLayout(const NodeReader& node, const std::string& key) {
  const auto text = node.Get<std::string>(key);
  std::string letters;
  std::vector<LayoutPart> parts;
  int64_t size = 0;
  bool is_valid = true;
  for (char c : text) {
    if (c >= '0' && c <= '9') {
      size = std::min(size * 10 + (c - '0'), kMaxSize);
      continue;
    }
    const bool is_axis = c >= 'A' && c <= 'Z', is_block = c >= 'a' && c <= 'z';
    is_valid = is_valid && (is_axis || is_block) && is_block == (size > 0) &&
               letters.find(c) == std::string::npos;
    letters += c;
    parts.push_back({c, size});
    size = 0;
  }
  for (const LayoutPart& part : parts) {
    is_valid = is_valid && letters.find(part.axis()) != std::string::npos;
  }
  CORE_CHECK(is_valid && size == 0 && !parts.empty())
      << node.Where() << ": " << key << " " << text
      << " is not a layout with at most one block per axis";
  return parts;
}

/*! \brief The size of each axis of a tensor in a layout. */
std::map<char, int64_t> AxisSizes(const NodeReader& node, const Dims& dims,
                                  const std::vector<LayoutPart>& layout) {
  std::map<char, int64_t> sizes;
  for (size_t i = 0; i < layout.size(); ++i) {
    CORE_CHECK(!layout[i].is_block() || dims[i] == layout[i].size)
        << node.Where() << ": src_layout has a block of " << layout[i].size
        << ", but data of shape " << ToText(dims) << " has " << dims[i];
    sizes.emplace(layout[i].axis(), 1).first->second *= dims[i];
  }
  return sizes;
}

/*!
 * \brief The dims that Relay's codes for a reshape stand for: a size; 0, the one of the data at
 * this position; -1, what is left of the elements; -2, all that remain; -3, the product of the next
 * two; -4, the next one split into the two sizes that follow.
 */
Dims NewShape(const NodeReader& node, const Dims& from, const Dims& codes) {
  const auto check = [&](bool condition) {
    CORE_CHECK(condition) << node.Where() << ": newshape " << ToText(codes) << " does not fit "
                          << ToText(from);
  };
  const bool allows_zero = node.Get<bool>("allowzero", false);
  Dims dims;
  size_t next = 0;
  int left = -1;
  const auto take = [&]() {
    check(next < from.size());
    return from[next++];
  };
  for (size_t i = 0; i < codes.size(); ++i) {
    const int64_t code = codes[i];
    check(code >= -4 && code <= kMaxSize && !(code == 0 && allows_zero));
    if (code > 0) {
      dims.push_back(code);
      ++next;
    } else if (code == 0) {
      dims.push_back(take());
    } else if (code == -1) {
      check(left < 0);
      left = static_cast<int>(dims.size());
      dims.push_back(1);
      ++next;
    } else if (code == -2) {
      while (next < from.size()) dims.push_back(take());
    } else if (code == -3) {
      const int64_t first = take();
      dims.push_back(first * take());
    } else {
      const int64_t size = take();
      check(i + 2 < codes.size());
      int64_t first = codes[++i], second = codes[++i];
      for (int64_t part : {first, second}) check(part == -1 || (part > 0 && part <= kMaxSize));
      check(first > 0 || second > 0);
      if (first < 0) first = size / second;
      if (second < 0) second = size / first;
      check(first * second == size);
      dims.insert(dims.end(), {first, second});
    }
  }
  const int64_t size = NumElements(from);
  // The products must not overflow before they are compared.
  int64_t known = 1;
  for (int64_t dim : dims) {
    check(dim > 0 && dim <= size);
    known *= dim;
    check(known <= size);
  }
  if (left >= 0) dims[left] = size / known;
  check(NumElements(dims) == size);
  return dims;
}

Dims Reversed(const Dims& dims) { return {dims.rbegin(), dims.rend()}; }

std::vector<int> TransposedAxes(const NodeReader& node, int rank) {
  std::vector<int> axes = ReadAxes(node, "axes", rank);
  if (axes.empty()) {
    axes.resize(rank);
    std::iota(axes.rbegin(), axes.rend(), 0);
  }
  CORE_CHECK(static_cast<int>(axes.size()) == rank)
      << node.Where() << ": axes has " << axes.size() << " of the " << rank << " axes";
  return axes;
}

/*! \brief Axes without blocks, and the dims that a tensor in the layout has in these terms. */
struct Unblocked {
  std::string axes;
  Tensor value;
};

/*! \brief Move the blocks of each axis after it, and merge them. */
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

Types InferReshape(const NodeReader& node, const Types& inputs) {
  const auto codes = node.Get<std::vector<int64_t>>("newshape");
  return {{NewShape(node, inputs[0].shape, codes), inputs[0].dtype}};
}

Types InferOpenReshape(const NodeReader& node, const Types& inputs) {
  const Dims& like = inputs[1].shape;
  auto codes = node.Get<std::vector<int64_t>>("newshape");
  const auto axes = node.Get<std::vector<int64_t>>("axes");
  CORE_CHECK(axes.size() == codes.size()) << node.Where() << ": axes has " << axes.size()
                                          << " items, but newshape has " << codes.size();
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] < 0) continue;
    CORE_CHECK(axes[i] < static_cast<int64_t>(like.size()))
        << node.Where() << ": axis " << axes[i] << " exceeds the rank of " << ToText(like);
    codes[i] = like[axes[i]];
  }
  return {{NewShape(node, inputs[0].shape, codes), inputs[0].dtype}};
}

Types InferReverseReshape(const NodeReader& node, const Types& inputs) {
  const auto codes = node.Get<std::vector<int64_t>>("newshape");
  const Dims dims = NewShape(node, Reversed(inputs[0].shape), Reversed(codes));
  return {{Reversed(dims), inputs[0].dtype}};
}

Types InferBatchFlatten(const NodeReader& node, const Types& inputs) {
  CheckMinRank(node, inputs, 0, 1);
  const Dims& dims = inputs[0].shape;
  return {{{dims[0], NumElements(Dims(dims.begin() + 1, dims.end()))}, inputs[0].dtype}};
}

Types InferExpandDims(const NodeReader& node, const Types& inputs) {
  Dims dims = inputs[0].shape;
  // One of the positions before, between and after the dimensions.
  const int axis = node.Axis("axis", 0, static_cast<int>(dims.size()) + 1);
  const auto count = node.Get<int64_t>("num_newaxis", 1);
  CORE_CHECK(count >= 0 && count <= DNNL_MAX_NDIMS)
      << node.Where() << ": num_newaxis " << count << " exceeds oneDNN's limit of "
      << DNNL_MAX_NDIMS << " dimensions";
  dims.insert(dims.begin() + axis, count, 1);
  return {{dims, inputs[0].dtype}};
}

Types InferSqueeze(const NodeReader& node, const Types& inputs) {
  const Dims& dims = inputs[0].shape;
  const std::vector<int> axes = ReadAxes(node, "axis", static_cast<int>(dims.size()));
  Dims squeezed;
  for (int i = 0; i < static_cast<int>(dims.size()); ++i) {
    const bool is_named = std::count(axes.begin(), axes.end(), i) > 0;
    CORE_CHECK(!is_named || dims[i] == 1)
        << node.Where() << ": axis " << i << " of " << ToText(dims) << " is not of size one";
    if (node.Has("axis") ? !is_named : dims[i] != 1) squeezed.push_back(dims[i]);
  }
  return {{squeezed, inputs[0].dtype}};
}

Types InferTranspose(const NodeReader& node, const Types& inputs) {
  const Dims& dims = inputs[0].shape;
  const std::vector<int> axes = TransposedAxes(node, static_cast<int>(dims.size()));
  return {{PermutedDims(dims, axes), inputs[0].dtype}};
}

Types InferLayoutTransform(const NodeReader& node, const Types& inputs) {
  const std::vector<LayoutPart> from = ReadLayout(node, "src_layout");
  const std::vector<LayoutPart> to = ReadLayout(node, "dst_layout");
  CheckRank(node, inputs, 0, from.size());
  std::map<char, int64_t> sizes = AxisSizes(node, inputs[0].shape, from);
  const size_t num_axes = sizes.size();
  // Blocks first: they are what is left of the axes that they divide.
  for (const LayoutPart& part : to) {
    if (!part.is_block()) continue;
    int64_t& size = sizes[part.axis()];
    CORE_CHECK(size % part.size == 0) << node.Where() << ": dst_layout has blocks of " << part.size
                                      << ", which do not divide " << size;
    size /= part.size;
  }
  Dims dims;
  for (const LayoutPart& part : to) {
    dims.push_back(part.is_block() ? part.size : sizes[part.letter]);
  }
  const auto is_axis = [](const LayoutPart& part) { return !part.is_block(); };
  CORE_CHECK(sizes.size() == num_axes &&
             static_cast<size_t>(std::count_if(to.begin(), to.end(), is_axis)) == num_axes)
      << node.Where() << ": src_layout and dst_layout have different axes";
  return {{dims, inputs[0].dtype}};
}

void LowerReshape(const NodeReader& node, PlanBuilder* plan) {
  plan->SetOutput(node, plan->Reshaped(node, plan->Input(node, 0), node.OutDims()));
}

void LowerTranspose(const NodeReader& node, PlanBuilder* plan) {
  const Tensor src = plan->Input(node, 0);
  // A scalar has one dimension here, and none in the graph.
  const int rank = static_cast<int>(node.Output().shape.size());
  if (rank == 0) return plan->SetOutput(node, src);
  plan->SetOutput(node, src.Permuted(TransposedAxes(node, rank)));
}

void LowerLayoutTransform(const NodeReader& node, PlanBuilder* plan) {
  const Unblocked joined =
      JoinBlocks(node, plan, plan->Input(node, 0), ReadLayout(node, "src_layout"));
  plan->SetOutput(node, SplitBlocks(node, plan, joined, ReadLayout(node, "dst_layout")));
}

}  // namespace tvm::runtime::contrib::dnnl_backend
