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
 * \file src/runtime/contrib/dnnl/core/plan/builder.h
 * \brief The interface with which the lowerings build a plan.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_PLAN_BUILDER_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_PLAN_BUILDER_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../exec/threads.h"
#include "../node_reader.h"
#include "../onednn.h"
#include "allocator.h"
#include "arena.h"
#include "plan.h"
#include "tensor.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*!
 * \brief Collects the values and the steps of a plan.
 *
 * A lowering asks for its inputs in whatever layout they have, creates a primitive descriptor that
 * leaves the layouts to oneDNN, brings the inputs into the layouts it chose by `InLayout`, emits
 * the primitive, and hands on the result in the layout it came in. Reorders appear only where two
 * layouts meet; those of constants run at once, at build time.
 */
class PlanBuilder {
 public:
  using Args = std::vector<std::pair<int, Tensor>>;

  /*!
   * \param graph What the plan is of: its name, and whose its constants are.
   * \param num_threads How many threads the model was compiled for; 0 for any.
   * \param sizes_change Whether the next call probably has other shapes.
   */
  PlanBuilder(const Graph& graph, int num_threads, bool sizes_change = false);

  /*!
   * \brief Whether the plan is for few calls. A kernel of ours is better then than a primitive,
   * whose code oneDNN generates for the sizes, which takes it longer than to run.
   */
  bool sizes_change() const { return sizes_change_; }
  /*! \brief Whether plans of other shapes should find packed weights in the same layout. */
  bool shares_weights() const { return shares_weights_; }

  const dnnl::engine& engine() const { return plan_->engine; }

  // The edges of the subgraph.
  void AddInput(const Edge& edge);
  void AddConstant(const Constant& constant);
  /*! \brief Append an output of the call; all inputs come first, and all nodes later. */
  void AddOutput(const Edge& edge);

  /*! \brief The axis along which an output of the call has room for more; -1 for other nodes. */
  int ReservedAxis(const NodeReader& node) const;
  /*! \brief How such an output lies in memory. */
  dnnl::memory::desc OutputDesc(const NodeReader& node) const;

  // The values of the graph.
  /*! \brief The node's input, in Relay's dims and whatever layout its producer chose. */
  Tensor Input(const NodeReader& node, int index) const;
  /*! \brief Say what the node reads as an input instead. */
  void SetInput(const NodeReader& node, int index, const Tensor& value) {
    SetValue(node.Inputs().at(index), value);
  }
  /*! \brief Say what an output of the node is; its dims must be those that Relay inferred. */
  void SetOutput(const NodeReader& node, const Tensor& value, int index = 0);

  // The steps.
  /*! \brief An intermediate of this descriptor. */
  Tensor NewTensor(const dnnl::memory::desc& md);
  /*! \brief The value in the wanted layout: itself, or a reordered copy (one for all readers). */
  Tensor InLayout(const NodeReader& node, const Tensor& value, const dnnl::memory::desc& want);
  /*!
   * \brief The weights in the wanted layout. Where they are packed, numbers that are too small to
   *        be normal ones become zero: a CPU multiplies those up to a hundred times slower.
   */
  Tensor Weights(const NodeReader& node, const Tensor& value, const dnnl::memory::desc& want);
  /*!
   * \brief What a kernel of ours computes from a value, once for all that read it.
   * \param kind Names the computation.
   * \param emit Emits the kernel and returns its results.
   */
  std::vector<Tensor> Derived(const Tensor& value, const std::string& kind,
                              const std::function<std::vector<Tensor>()>& emit);
  /*! \brief The value in row-major layout. */
  Tensor Plain(const NodeReader& node, const Tensor& value);
  /*! \brief The value with other dims: a view, or of a row-major copy where the layout forbids. */
  Tensor Reshaped(const NodeReader& node, const Tensor& value, const Dims& dims);
  /*! \brief A part of the value: a view, or of a row-major copy where the layout forbids. */
  Tensor Sliced(const NodeReader& node, const Tensor& value, const Slice& slice);
  /*!
   * \brief Have an intermediate computed in the memory of another tensor.
   * \param md, offset How the part lies there, and from which byte on.
   * \return False where it is not an intermediate of its own, or lies in memory in another way.
   */
  bool MovedInto(const Tensor& part, const Tensor& target, const dnnl::memory::desc& md,
                 size_t offset);
  /*! \brief Copy a value into another tensor. */
  void CopyInto(const NodeReader& node, const Tensor& part, const Tensor& target,
                const dnnl::memory::desc& md, size_t offset);
  bool IsConstant(const Tensor& value) const;
  /*! \brief A constant with a copy of these bytes. */
  Tensor ConstantOf(const void* data, const dnnl::memory::desc& md);
  /*! \brief A constant of one element. */
  Tensor NewConstant(int32_t value);
  /*! \brief A constant vector. */
  Tensor NewConstant(const std::vector<float>& values);
  /*! \brief A constant of one element in float32, with so many dimensions. */
  Tensor NewNumber(double value, size_t rank) {
    return NewConstant(std::vector<float>{static_cast<float>(value)}).Reshaped(Dims(rank, 1));
  }
  /*! \brief A row-major constant, all elements of which are that of a constant of one. */
  Tensor Filled(const NodeReader& node, const Tensor& element, const Dims& dims);
  /*! \brief The elements of a constant. It is an error if the tensor is none. */
  template <typename T>
  std::vector<T> ValuesOf(const NodeReader& node, const Tensor& constant) {
    CORE_CHECK(IsConstant(constant))
        << node.Where() << ": reads the values of what is not constant";
    const Tensor plain = Plain(node, constant);
    const T* data = static_cast<const T*>(DataOf(plain));
    return std::vector<T>(data, data + NumElements(plain.dims()));
  }

  /*!
   * \brief Append a primitive.
   * \param desc Its descriptor, made with an attribute from `NewAttr`.
   * \param args All arguments but the workspace.
   */
  template <typename PrimitiveDesc>
  void Emit(const NodeReader& node, const PrimitiveDesc& desc, const dnnl::primitive& primitive,
            Args args, std::vector<std::string> post_ops = {}) {
    EmitStep(node.Where(), node.OpName(), desc, primitive, std::move(args), std::move(post_ops));
  }

  /*!
   * \brief Append a kernel of ours.
   * \param kind What it does, for reports.
   * \param args All its tensors, in the order of the addresses that it gets.
   * \param post_ops The names of what is fused to it.
   */
  void EmitKernel(const NodeReader& node, const std::string& kind, HostKernel kernel, Args args,
                  std::vector<std::string> post_ops = {});
  /*! \brief Have a kernel of ours run after the latest primitive, on the arguments of that. */
  void AppendKernel(HostKernel kernel);

  /*!
   * \brief Say of the latest primitive which variant was chosen, of an op that has several.
   * \param flops The multiplications and additions of the op, which this primitive does.
   */
  void SetVariant(std::string variant, double flops) {
    plan_->steps.back().info.variant = std::move(variant);
    plan_->steps.back().info.flops = flops;
  }

  /*! \brief Add to what is said of the latest primitive's variant. */
  void AddToVariant(const std::string& text) {
    if (plan_->steps.empty()) return;
    std::string& variant = plan_->steps.back().info.variant;
    variant += (variant.empty() ? "" : ", ") + text;
  }

  /*!
   * \brief Offer that the latest primitive computes its result in the memory of an operand.
   * \param arg The operand (DNNL_ARG_*).
   */
  void OfferInPlace(int arg) { offers_.push_back({plan_->steps.size() - 1, arg, nullptr, 0, {}}); }
  /*!
   * \brief Offer that another primitive, which adds to what is in its result's memory, replaces
   * the latest one.
   * \param arg The operand that it does not have.
   * \param create Makes it.
   * \param post_op The index of the addition among the post-ops.
   * \param renumbered Other arguments, and what the new primitive calls them.
   */
  void OfferInPlace(int arg, std::function<dnnl::primitive()> create, size_t post_op,
                    std::map<int, int> renumbered) {
    offers_.push_back({plan_->steps.size() - 1, arg, std::move(create), post_op, renumbered});
  }

  /*!
   * \brief Offer that the latest primitive writes its result in another layout or, of float32, in
   * a shorter type.
   * \param describe Makes its descriptor for that of the result; empty where oneDNN has none.
   */
  void OfferLayout(std::function<dnnl::primitive_desc_base(const dnnl::memory::desc&)> describe) {
    any_layout_[plan_->steps.size() - 1] = {std::move(describe), nullptr};
  }
  /*!
   * \brief Offer the same of the latest kernel of ours.
   * \param kernel Makes the kernel for the descriptor of the result; empty where there is none.
   */
  void OfferKernel(std::function<HostKernel(const dnnl::memory::desc&)> kernel) {
    any_layout_[plan_->steps.size() - 1] = {nullptr, std::move(kernel)};
  }

  /*!
   * \brief Reorder inputs of a node into other layouts, for it and all later nodes.
   * \param first The first input that is of interest.
   * \param layout Makes the layout that is wanted from the one that there is.
   * \return Whether any was not as wanted.
   */
  bool SetInputLayouts(const NodeReader& node, size_t first,
                       const std::function<dnnl::memory::desc(const dnnl::memory::desc&)>& layout);

  /*! \brief Whether convolutions keep the blocks of channels in which they find their source. */
  bool keeps_blocks() const { return keeps_blocks_; }
  void KeepBlocks() { keeps_blocks_ = true; }

  /*! \brief A point to come back to. */
  struct Mark {
    size_t buffers, tensors, steps, changes, scratchpad_bytes;
    bool keeps_blocks;
  };
  Mark Here() const;
  /*! \brief Discard all that was done since the mark. */
  void BackTo(const Mark& mark);
  /*! \brief Whether oneDNN has only reference code for a step since the mark. */
  bool HasReferenceSince(const Mark& mark) const;

  /*! \brief Run the steps since the mark, which read constants only: their results become
   * constants. */
  void RunNow(const Mark& mark);

  /*! \brief A primitive attribute with the settings that every step shares. */
  static dnnl::primitive_attr NewAttr();

  /*!
   * \brief The constants of a graph that runs pass to the plan of one with the same ops.
   * \param graph The graph, which need not be that of this builder.
   * \param plan The plan.
   * \param parent Its constant bytes are increased by theirs.
   */
  std::vector<std::shared_ptr<void>> ConstantsFor(const Graph& graph, const Plan& plan,
                                                  Plan* parent);

  /*! \brief The plan, to be used by nobody else but its runs from now on. */
  std::shared_ptr<const Plan> Finish();

 private:
  /*! \brief The output of the call that a node computes first, or nullptr. */
  const Argument* OutputOf(const NodeReader& node) const;
  void EmitStep(const std::string& node, const std::string& op,
                const dnnl::primitive_desc_base& desc, const dnnl::primitive& primitive, Args args,
                std::vector<std::string> post_ops);
  void EmitReorder(const std::string& node, const Tensor& from, const Tensor& to);
  /*! \brief The index in Plan::tensors of this tensor, added when it is new. */
  int TensorIndex(const Tensor& tensor);
  int AddBuffer(Buffer buffer) {
    plan_->buffers.push_back(std::move(buffer));
    return static_cast<int>(plan_->buffers.size()) - 1;
  }
  Tensor PartOf(const Tensor& target, const dnnl::memory::desc& md, size_t offset) {
    Buffer part(BufferKind::kPart, md.get_size());
    part.parent = target.buffer;
    part.offset = offset;
    return Tensor{AddBuffer(std::move(part)), md};
  }
  /*! \brief The value in the wanted layout: itself, or a reordered copy. */
  Tensor Reordered(const NodeReader& node, const Tensor& value, const dnnl::memory::desc& want,
                   bool is_weight);
  /*! \brief A copy of a constant in another layout, made now. */
  Tensor Packed(const Tensor& value, const dnnl::memory::desc& want, bool is_weight);
  /*! \brief Discard what was offered of the steps since the mark. */
  void ForgetOffers(const Mark& mark);
  /*! \brief Another descriptor of a result, for which a primitive or a kernel can be made. */
  struct LayoutOffer {
    std::function<dnnl::primitive_desc_base(const dnnl::memory::desc&)> describe;
    std::function<HostKernel(const dnnl::memory::desc&)> kernel;
  };
  /*! \brief Have a step write a result of this descriptor; false if there is no good code. */
  bool WriteInstead(const LayoutOffer& offer, const dnnl::memory::desc& md, Step* step) const;
  /*! \brief Have a primitive that writes any layout write what a reorder makes of its result. */
  void JoinReorders();
  /*! \brief The step that alone reads the result of a step, if it is a mere reorder; else 0. */
  size_t ReorderAfter(size_t step) const;
  /*! \brief Use the memory of a constant of another plan if one has the same bytes. */
  static void Share(Buffer* buffer);
  /*! \brief Where the memory of a constant begins. */
  void* DataOf(const Tensor& constant) const;
  /*! \brief Discard the list entries of tensors that only steps since the mark have. */
  void ForgetTensors(const Mark& mark);
  /*! \brief Let go of the constants that no step reads. */
  void FinishConstants();
  /*! \brief Have runs pass the constants in which graphs differ that the plan serves. */
  void PassConstants();
  const Tensor& Value(const Entry& entry, const std::string& where) const;
  void SetValue(const Entry& entry, Tensor value);
  void BindOutput(const Tensor& value, int argument);

  const std::string where_;
  std::shared_ptr<Plan> plan_;
  bool owns_constants_;
  const bool sizes_change_, shares_weights_;
  ThreadScope threads_;
  dnnl::stream stream_;
  /*! \brief Whether runs pass them, of the graph's constants. */
  std::vector<bool> is_passed_;
  /*! \brief Where the packed constants lie. */
  MemoryPool pool_;
  /*! \brief The values of the graph that are computed so far. */
  std::map<Entry, Tensor> values_;
  /*! \brief A reordered copy. Only those of weights are without numbers too small to be normal. */
  struct Copy {
    dnnl::memory::desc from;
    Tensor to;
    bool is_weight;
  };
  /*! \brief Reordered copies by the buffer they were made from. */
  std::unordered_map<int, std::vector<Copy>> reordered_;
  /*! \brief The results of a kernel, see `Derived`. */
  struct DerivedTensors {
    Tensor from;
    std::string kind;
    std::vector<Tensor> results;
  };
  std::vector<DerivedTensors> derived_;
  /*! \brief The changes by nodes, oldest first: the entry, and its value before or undefined. */
  std::vector<std::pair<Entry, Tensor>> changes_;
  /*! \brief Tensors of the plan by buffer, to find equal ones. */
  std::unordered_map<int, std::vector<int>> tensors_of_buffer_;
  std::vector<std::pair<Entry, int>> outputs_;
  std::vector<InPlaceOffer> offers_;
  /*! \brief By step. */
  std::map<size_t, LayoutOffer> any_layout_;
  int scratchpad_buffer_{-1};
  bool keeps_blocks_{false};
};

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_PLAN_BUILDER_H_
