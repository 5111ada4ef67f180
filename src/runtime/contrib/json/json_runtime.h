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
 * \file src/runtime/contrib/json/json_runtime.h
 * \brief Base class of the modules that execute a JSON graph.
 *
 * A backend derives from JSONRuntimeBase and gives Init, which gets the constants, and Run, which
 * computes data_entry_ of the outputs from those of the inputs. All else is done here.
 */
#ifndef TVM_RUNTIME_CONTRIB_JSON_JSON_RUNTIME_H_
#define TVM_RUNTIME_CONTRIB_JSON_JSON_RUNTIME_H_

#include <dmlc/io.h>
#include <tvm/runtime/container/array.h>
#include <tvm/runtime/container/string.h>
#include <tvm/runtime/logging.h>
#include <tvm/runtime/module.h>
#include <tvm/runtime/ndarray.h>
#include <tvm/runtime/packed_func.h>
#include <tvm/runtime/registry.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "json_binary.h"
#include "json_graph.h"
#include "json_graph_check.h"
#include "json_node.h"

namespace tvm {
namespace runtime {
namespace json {

/*! \brief A module that executes one JSON graph. */
class JSONRuntimeBase : public ModuleNode {
 public:
  /*!
   * \brief Read and check the graph.
   * \param symbol_name Name of the function that the module answers.
   * \param graph_json The graph.
   * \param const_names Names of the constants, in the order in which Init gets them.
   * \throws An error that names the symbol and, where there is one, the node.
   */
  JSONRuntimeBase(const std::string& symbol_name, const std::string& graph_json,
                  const Array<String>& const_names)
      : symbol_name_(symbol_name), graph_json_(graph_json), const_names_(const_names) {
    LoadGraph();
  }

  const char* type_key() const override { return "json"; }  // May be overridden

  int GetPropertyMask() const override {
    return ModulePropertyMask::kBinarySerializable | ModulePropertyMask::kRunnable;
  }

  /*!
   * \brief Prepare for Run. Called once, before the first Run.
   * \param consts The constants, in the order of const_names_.
   */
  virtual void Init(const Array<NDArray>& consts) = 0;

  /*! \brief Compute the outputs in data_entry_ from the inputs and constants in data_entry_. */
  virtual void Run() = 0;

  /*!
   * \brief Serve one call of the function: the inputs, then the outputs.
   *
   * This default serves one call at a time, because data_entry_ belongs to the module. A backend
   * that keeps the tensors of a call elsewhere overrides it and needs no lock.
   */
  virtual void Invoke(const TVMArgs& args) {
    std::lock_guard<std::mutex> lock(run_mutex_);
    SetInputOutputBuffers(args);
    Run();
    CopyAliasedOutputs(args);
  }

  PackedFunc GetFunction(const String& name, const ObjectPtr<Object>& sptr_to_self) override {
    if (name == "get_symbol") {
      return PackedFunc(
          [sptr_to_self, this](TVMArgs, TVMRetValue* rv) { *rv = this->symbol_name_; });
    }
    if (name == "get_const_vars") {
      return PackedFunc(
          [sptr_to_self, this](TVMArgs, TVMRetValue* rv) { *rv = this->const_names_; });
    }
    if (name == symbol_name_) {
      return PackedFunc([sptr_to_self, this](TVMArgs args, TVMRetValue*) {
        if (!this->initialized_) this->InitWithoutConstants();
        this->Invoke(args);
      });
    }
    if (name == "__init_" + symbol_name_) {
      // TVM's module of constants calls this before the first call of the function.
      return PackedFunc([sptr_to_self, this](TVMArgs args, TVMRetValue* rv) {
        CHECK_EQ(args.size(), 1) << "__init_" << Printable(this->symbol_name_)
                                 << " takes one argument, the list of constants";
        this->InitOnce(args[0]);
        *rv = 0;
      });
    }
    return PackedFunc(nullptr);
  }

  /*! \brief The graph, for format "json" or none. */
  String GetSource(const String& format = "json") override {
    return format.empty() || format == "json" ? graph_json_ : "";
  }

  void SaveToBinary(dmlc::Stream* stream) override {
    WriteBinary(stream, symbol_name_, graph_json_,
                std::vector<std::string>(const_names_.begin(), const_names_.end()));
  }

  /*!
   * \brief Make a module from what SaveToBinary wrote.
   * \tparam T The class of the module.
   * \param strm A dmlc::Stream.
   */
  template <typename T,
            typename = typename std::enable_if<std::is_base_of<JSONRuntimeBase, T>::value>::type>
  static Module LoadFromBinary(void* strm) {
    JSONModuleBinary binary = ReadBinary(static_cast<dmlc::Stream*>(strm));
    Array<String> const_names;
    for (const std::string& name : binary.const_names) const_names.push_back(name);
    return Module(make_object<T>(binary.symbol, binary.graph_json, const_names));
  }

 protected:
  /*!
   * \brief Point data_entry_ at the arguments of a call.
   * \param args A tensor for each entry of the inputs, then one for each output.
   */
  void SetInputOutputBuffers(const TVMArgs& args) {
    const size_t num_inputs = input_var_eid_.size();
    CHECK_EQ(static_cast<size_t>(args.size()), num_inputs + outputs_.size())
        << "'" << Printable(symbol_name_) << "' takes " << num_inputs << " inputs and "
        << outputs_.size() << " outputs, got " << args.size() << " arguments";
    for (size_t i = 0; i < num_inputs; ++i) data_entry_[input_var_eid_[i]] = TensorArg(args, i);
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const DLTensor* output = TensorArg(args, num_inputs + i);
      if (!output_is_alias_[i]) data_entry_[EntryID(outputs_[i])] = output;
    }
  }

  /*!
   * \brief The tensor in an argument.
   * \throws An error that names the argument if it is no tensor.
   */
  DLTensor* TensorArg(const TVMArgs& args, size_t i) const {
    const int code = args.type_codes[i];
    CHECK(code == kTVMDLTensorHandle || code == kTVMNDArrayHandle)
        << "Argument " << i << " of '" << Printable(symbol_name_) << "' is "
        << ArgTypeCode2Str(code) << ", expected an NDArray or a DLTensor";
    auto* tensor = static_cast<DLTensor*>(args.values[i].v_handle);
    CHECK(tensor != nullptr) << "Argument " << i << " of '" << Printable(symbol_name_)
                             << "' is null";
    return tensor;
  }

  /*!
   * \brief Check that the constants are those of the graph. A backend that packs its constants
   * needs no more than this, and then does not keep them in memory twice.
   * \param consts The constants, in the order of const_names_.
   * \throws An error that names the constant whose shape or type is not that of its node.
   */
  void CheckConstants(const Array<NDArray>& consts) const {
    CHECK_EQ(consts.size(), const_idx_.size())
        << "'" << Printable(symbol_name_) << "' has " << const_idx_.size() << " constants, got "
        << consts.size();
    for (size_t i = 0; i < const_idx_.size(); ++i) {
      CheckConstant(nodes_[const_idx_[i]], consts[i]);
    }
  }

  /*!
   * \brief Point data_entry_ at the constants and keep them alive.
   * \param consts The constants, in the order of const_names_.
   * \throws An error that names the constant whose shape or type is not that of its node.
   */
  void SetupConstants(const Array<NDArray>& consts) {
    CheckConstants(consts);
    consts_ = consts;
    for (size_t i = 0; i < const_idx_.size(); ++i) {
      data_entry_[EntryID(const_idx_[i], 0)] = consts_[i].operator->();
    }
  }

  /*! \brief Number of an output of a node among the outputs of all nodes. */
  uint32_t EntryID(uint32_t nid, uint32_t index) const { return node_row_ptr_[nid] + index; }

  /*! \copydoc EntryID(uint32_t,uint32_t) const */
  uint32_t EntryID(const JSONGraphNodeEntry& entry) const {
    return EntryID(entry.id_, entry.index_);
  }

  /*! \brief How many outputs all nodes have together. */
  uint32_t NumEntries() const { return node_row_ptr_.back(); }

  /*! \brief Name of the function that the module answers. */
  std::string symbol_name_;
  /*! \brief The graph. */
  std::string graph_json_;
  /*! \brief Names of the constants, in the order in which Init gets them. */
  Array<String> const_names_;
  /*! \brief The version of the format that the graph is in. The getters of a node read both. */
  int64_t format_version_{kJSONGraphRows};
  /*! \brief All nodes. A node comes after those it reads. */
  std::vector<JSONGraphNode> nodes_;
  /*! \brief Number of the first entry of each node, and the number of all entries at the end. */
  std::vector<uint32_t> node_row_ptr_;
  /*! \brief The inputs and constants. */
  std::vector<uint32_t> input_nodes_;
  /*! \brief The outputs of the graph. */
  std::vector<JSONGraphNodeEntry> outputs_;
  /*! \brief The entries of the inputs, in the order of the arguments. */
  std::vector<uint32_t> input_var_eid_;
  /*! \brief The node of each constant, in the order of const_names_. */
  std::vector<uint32_t> const_idx_;
  /*! \brief The tensor of each entry: constants from Init on, inputs and outputs during a call. */
  std::vector<const DLTensor*> data_entry_;
  /*! \brief Whether Init was done. Read without the lock on each call. */
  std::atomic<bool> initialized_{false};

 private:
  void LoadGraph() {
    JSONGraph graph = ParseJSONGraph(symbol_name_, graph_json_);
    CheckJSONGraph(symbol_name_, graph, const_names_);
    format_version_ = graph.format_version;
    nodes_ = std::move(graph.nodes);
    node_row_ptr_ = std::move(graph.node_row_ptr);
    input_nodes_ = std::move(graph.arg_nodes);
    outputs_ = std::move(graph.heads);
    data_entry_.resize(NumEntries());

    std::unordered_map<std::string, uint32_t> const_nid;
    for (uint32_t nid : input_nodes_) {
      if (nodes_[nid].GetOpType() == "const") {
        const_nid[nodes_[nid].GetOpName()] = nid;
      } else {
        for (uint32_t i = 0; i < nodes_[nid].GetNumOutput(); ++i) {
          input_var_eid_.push_back(EntryID(nid, i));
        }
      }
    }
    for (const String& name : const_names_) const_idx_.push_back(const_nid.at(name));

    // An output that is an input, a constant or an earlier output has no data_entry_ of its own.
    std::vector<bool> has_output(NumEntries(), false);
    for (const JSONGraphNodeEntry& output : outputs_) {
      const uint32_t eid = EntryID(output);
      output_is_alias_.push_back(has_output[eid] || nodes_[output.id_].IsLeaf());
      has_output[eid] = true;
    }
    has_aliased_outputs_ =
        std::find(output_is_alias_.begin(), output_is_alias_.end(), true) != output_is_alias_.end();
  }

  /*! \brief Init, once. A failed Init may be tried again. */
  void InitOnce(const Array<NDArray>& consts) {
    std::lock_guard<std::mutex> lock(init_mutex_);
    if (initialized_) return;
    Init(consts);
    initialized_ = true;
  }

  /*! \brief Handle a call that comes before `__init_<symbol>`. */
  void InitWithoutConstants() {
    CHECK(const_names_.empty()) << "'" << Printable(symbol_name_) << "' has " << const_names_.size()
                                << " constants and was not initialised: call __init_"
                                << Printable(symbol_name_) << " with them first";
    InitOnce({});
  }

  /*! \brief Fill the outputs that Run cannot see, as they have no data_entry_ of their own. */
  void CopyAliasedOutputs(const TVMArgs& args) const {
    if (!has_aliased_outputs_) return;
    for (size_t i = 0; i < outputs_.size(); ++i) {
      if (!output_is_alias_[i]) continue;
      const DLTensor* from = data_entry_[EntryID(outputs_[i])];
      CHECK(from != nullptr) << "Output " << i << " of '" << Printable(symbol_name_)
                             << "' is the constant '"
                             << Printable(nodes_[outputs_[i].id_].GetOpName())
                             << "', which the backend has not set up";
      NDArray::CopyFromTo(from, TensorArg(args, input_var_eid_.size() + i));
    }
  }

  void CheckConstant(const JSONGraphNode& node, const NDArray& value) const {
    CHECK(value.defined()) << "Constant '" << Printable(node.GetOpName()) << "' of '"
                           << Printable(symbol_name_) << "' is null";
    const std::vector<int64_t> shape = node.GetOpShape()[0];
    bool same_shape = static_cast<size_t>(value->ndim) == shape.size();
    for (size_t i = 0; same_shape && i < shape.size(); ++i) {
      same_shape = shape[i] == -1 || shape[i] == value->shape[i];
    }
    CHECK(same_shape) << "Constant '" << Printable(node.GetOpName()) << "' of '"
                      << Printable(symbol_name_) << "' has another shape ("
                      << ShapeTuple(value.Shape()) << ") than its node (" << ShapeTuple(shape)
                      << ")";
    const DLDataType dtype = node.GetOpDataType()[0];
    if (TypeEqual(value->dtype, dtype)) return;
    // Made before the message: TVM's own text of a type that it does not know is an error, and one
    // amid another ends the process.
    const std::string actual = TypeText(value->dtype), expected = TypeText(dtype);
    LOG(FATAL) << "Constant '" << Printable(node.GetOpName()) << "' of '" << Printable(symbol_name_)
               << "' has type " << actual << ", its node has type " << expected;
  }

  static std::string TypeText(DLDataType dtype) {
    try {
      return DLDataType2String(dtype);
    } catch (const std::exception&) {
      return "of the unknown code " + std::to_string(dtype.code);
    }
  }

  /*! \brief Keeps alive what data_entry_ points at. */
  Array<NDArray> consts_;
  std::vector<bool> output_is_alias_;
  bool has_aliased_outputs_{false};
  std::mutex init_mutex_;
  std::mutex run_mutex_;
};

}  // namespace json
}  // namespace runtime
}  // namespace tvm

#endif  // TVM_RUNTIME_CONTRIB_JSON_JSON_RUNTIME_H_
