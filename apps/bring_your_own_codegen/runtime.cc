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
 * \file runtime.cc
 * \brief Runs a JSON graph on the accelerator. A machine that only runs models needs just this.
 */
#include <numeric>

#include "../../src/runtime/contrib/json/json_runtime.h"
#include "tutorial_device.h"

namespace tvm {
namespace runtime {
namespace contrib {

class TutorialRuntime : public json::JSONRuntimeBase {
 public:
  using JSONRuntimeBase::JSONRuntimeBase;

  const char* type_key() const final { return "tutorial_json"; }

  /*! \brief Called once, before the first run: all that can go wrong goes wrong here. */
  void Init(const Array<NDArray>& consts) final {
    SetupConstants(consts);
    for (uint32_t id = 0; id < nodes_.size(); ++id) {
      if (nodes_[id].IsLeaf()) continue;
      const std::string name = nodes_[id].GetOpName();
      ICHECK(name == "add" || name == "nn.dense" || name == "tutorial.dense_clip")
          << nodes_[id].Where() << ": the accelerator has no such instruction";
      // Memory for the result. That of an output is replaced by the caller's in each run.
      results_.push_back(NDArray::Empty(ShapeTuple(nodes_[id].GetOpShape()[0]),
                                        nodes_[id].GetOpDataType()[0], {kDLCPU, 0}));
      data_entry_[EntryID(id, 0)] = results_.back().operator->();
    }
  }

  void Run() final {
    for (uint32_t id = 0; id < nodes_.size(); ++id) {
      const json::JSONGraphNode& node = nodes_[id];
      if (node.IsLeaf()) continue;
      const std::vector<json::JSONGraphNodeEntry> in = node.GetInputs();
      const std::vector<int64_t> shape = node.GetOpShape()[0];
      float* out = Data({id, 0});
      if (node.GetOpName() == "add") {
        TutorialAdd(Data(in[0]), Data(in[1]), out,
                    std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>()));
        continue;
      }
      const bool clips = node.GetOpName() == "tutorial.dense_clip";
      TutorialDense(Data(in[0]), Data(in[1]), clips ? Data(in[2]) : nullptr, out, shape[0],
                    shape[1], nodes_[in[0].id_].GetOpShape()[in[0].index_][1],
                    clips ? node.GetAttr<float>("a_min") : -INFINITY,
                    clips ? node.GetAttr<float>("a_max") : INFINITY);
    }
  }

 private:
  float* Data(const json::JSONGraphNodeEntry& entry) const {
    const DLTensor* tensor = data_entry_[EntryID(entry)];
    return reinterpret_cast<float*>(static_cast<char*>(tensor->data) + tensor->byte_offset);
  }

  std::vector<NDArray> results_;
};

TVM_REGISTER_GLOBAL("runtime.tutorial_create")
    .set_body_typed([](String symbol, String graph_json, Array<String> const_names) {
      return Module(make_object<TutorialRuntime>(symbol, graph_json, const_names));
    });

// TVM calls this for each module of our type key in a library that it loads.
TVM_REGISTER_GLOBAL("runtime.module.loadbinary_tutorial_json")
    .set_body_typed(json::JSONRuntimeBase::LoadFromBinary<TutorialRuntime>);

}  // namespace contrib
}  // namespace runtime
}  // namespace tvm
