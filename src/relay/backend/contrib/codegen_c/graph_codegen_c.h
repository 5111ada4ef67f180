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
 * \file src/relay/backend/contrib/codegen_c/graph_codegen_c.h
 * \brief From a serialised partition to C: names, buffers and the order of the calls.
 */
#ifndef TVM_RELAY_BACKEND_CONTRIB_CODEGEN_C_GRAPH_CODEGEN_C_H_
#define TVM_RELAY_BACKEND_CONTRIB_CODEGEN_C_GRAPH_CODEGEN_C_H_

#include <tvm/runtime/container/array.h>
#include <tvm/runtime/container/string.h>
#include <tvm/runtime/module.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "../../../../runtime/contrib/json/json_graph.h"
#include "buffer_pool.h"
#include "codegen_c.h"

namespace tvm {
namespace relay {
namespace contrib {

/*! \brief A tensor in the generated code. */
struct CTensor {
  /*! \brief The pointer to its data: "in0", "const_0", "buf_2", "out0". */
  std::string name;
  DataType dtype;
  std::vector<int64_t> shape;
  /*! \brief Which of the constants it is, or -1. */
  int constant{-1};

  int64_t NumElements() const;
  int64_t NumBytes() const { return NumElements() * dtype.bytes(); }
  /*! \brief "float32 (1, 3, 224, 224)". */
  std::string TypeText() const;
};

/*! \brief One call in the generated code. */
struct CKernel {
  /*! \brief Its number in the function. */
  int id;
  const tvm::runtime::json::JSONGraphNode* node;
  std::vector<CTensor> inputs;
  std::vector<CTensor> outputs;
};

/*!
 * \brief Prints a partition as one C function.
 *
 * The partition comes as the graph that a JSONSerializer writes, so that tuples are flat and calls
 * are in order. Results that leave the partition are written straight into the caller's tensors;
 * the others live in named buffers, one after the other in the same buffer where possible.
 *
 * A backend says what stands at the top, what a call of a kernel looks like, and which
 * declarations it needs.
 */
class GraphCodegenC : public CodegenCBase {
 public:
  using JSONGraphNode = tvm::runtime::json::JSONGraphNode;
  using JSONGraphNodeEntry = tvm::runtime::json::JSONGraphNodeEntry;

  /*!
   * \param symbol The name of the function.
   * \param graph_json The graph.
   * \param const_names The names of the constants in the order in which they will be passed.
   */
  GraphCodegenC(const std::string& symbol, const std::string& graph_json,
                const Array<String>& const_names);

  /*!
   * \brief Let the function accept addresses of data and nothing else, as microTVM's unpacked API
   *        calls it. It cannot have constants then.
   */
  void UseUnpackedAPI() { is_unpacked_ = true; }

  /*! \brief Print everything. Call it once. */
  std::string Generate();

  /*! \brief Generate, and make a module of it that export_library compiles. */
  runtime::Module CreateModule();

 protected:
  /*! \brief The first lines: who made this file, and includes of the backend's own. */
  virtual void PrintHeader() = 0;
  /*! \brief Declarations for a kernel at file scope. */
  virtual void DeclareKernel(const CKernel& kernel) = 0;
  /*! \brief Declarations for all kernels, after those of each. */
  virtual void DeclareKernels() {}
  /*!
   * \brief Statements that run a kernel.
   * \return Whether they jump to the label `done` on a failure, with `status` not 0 and TVM's last
   *         error set.
   */
  virtual bool CallKernel(const CKernel& kernel) = 0;
  /*! \brief The function for PrintConstantInit that gives a constant. */
  virtual std::string ConstantGetter() const { return ""; }
  /*! \brief Statements for PrintConstantInit. */
  virtual std::string PrepareStatements() { return ""; }
  /*! \brief Statements for PrintRelease. */
  virtual std::string ReleaseStatements() { return ""; }

  /*! \brief Print a comment, indented and broken into lines. */
  void PrintComment(const std::string& text);

  const std::string& symbol() const { return symbol_; }
  const std::vector<CKernel>& kernels() const { return kernels_; }
  /*! \brief The name of the array of the constants; empty without constants. */
  std::string constant_array() const;

 private:
  void NameArguments();
  void NameKernels();
  const CTensor& TensorOf(const JSONGraphNodeEntry& entry) const;
  CTensor TypeOf(const JSONGraphNodeEntry& entry) const;
  /*! \brief Print items in as many lines as they take. */
  void PrintList(const std::string& begin, const std::vector<std::string>& items,
                 const std::string& between, const std::string& end);
  void PrintFunction();
  void PrintCheck();
  void PrintWrapper();

  std::string symbol_;
  tvm::runtime::json::JSONGraph graph_;
  Array<String> const_names_;
  /*! \brief The tensors by node and output. */
  std::map<std::pair<uint32_t, uint32_t>, CTensor> tensors_;
  std::vector<CTensor> inputs_;
  std::vector<CTensor> constants_;
  std::vector<CTensor> outputs_;
  /*! \brief The results that are no kernel's alone: from where to where they are copied. */
  std::vector<std::pair<CTensor, CTensor>> copies_;
  std::vector<CKernel> kernels_;
  BufferPool buffers_;
  bool is_unpacked_{false};
};

}  // namespace contrib
}  // namespace relay
}  // namespace tvm

#endif  // TVM_RELAY_BACKEND_CONTRIB_CODEGEN_C_GRAPH_CODEGEN_C_H_
