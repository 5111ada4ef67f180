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
 * \file src/relay/backend/contrib/codegen_c/codegen_c.h
 * \brief Shared by codegens that emit C source: the wrapper and the packed function.
 */
#ifndef TVM_RELAY_BACKEND_CONTRIB_CODEGEN_C_CODEGEN_C_H_
#define TVM_RELAY_BACKEND_CONTRIB_CODEGEN_C_CODEGEN_C_H_

#include <tvm/relay/expr.h>
#include <tvm/relay/function.h>
#include <tvm/relay/type.h>
#include <tvm/runtime/container/array.h>
#include <tvm/runtime/container/string.h>
#include <tvm/runtime/module.h>

#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace tvm {
namespace relay {
namespace contrib {

/*! \brief A value in the generated code. */
struct Output {
  /*! \brief The C expression. */
  std::string name;
  /*! \brief The C type of an element. */
  std::string dtype;
  /*! \brief How many elements it has. */
  int size{0};
  /*! \brief Whether it is a buffer of its own, to be copied to the caller's tensor at the end. */
  bool need_copy{false};
};

/*! \brief The C source of one call of an op. */
struct GenerateBodyOutput {
  /*! \brief The statement. */
  std::string decl;
  /*! \brief The statements that declare its buffers. */
  std::vector<std::string> buffers;
  /*! \brief Its results. */
  std::vector<Output> outputs;
  /*! \brief The headers that it needs. */
  Array<String> headers;
};

/*! \brief A codegen for a whole module. */
class CSourceModuleCodegenBase {
 public:
  CSourceModuleCodegenBase() = default;
  virtual ~CSourceModuleCodegenBase() = default;

  /*!
   * \brief Create a module of C source.
   * \param ref A Relay function or module.
   */
  virtual runtime::Module CreateCSourceModule(const ObjectRef& ref) = 0;
};

/*!
 * \brief Prints C code for one Relay function.
 *
 * A function `f` becomes: `f_`, which a derived class writes; `f_wrapper_`, which accepts
 * DLTensors; `f`, the packed function that TVM calls; and, if there are constants, `__init_f`,
 * which TVM's const loader calls. All of it is C99 and C++ alike, and needs TVM's C headers only.
 */
class CodegenCBase {
 public:
  virtual ~CodegenCBase() = default;

 protected:
  // Indentation, for derived classes that print line by line to code_stream_.
  void PrintIndents();
  void EnterScope() { indent_ += 2; }
  void ExitScope() { indent_ -= 2; }

  /*!
   * \brief Finish the code for a function, given its results.
   * \return All that was printed.
   */
  virtual std::string JIT(const std::vector<Output>&) { return code_stream_.str(); }

  /*!
   * \brief Print the wrapper and the packed function for `<func_name>_`, which returns nothing.
   * \param func_name The symbol, an identifier of C.
   * \param args The parameters of the Relay function.
   * \param const_arr_name The array that PrintConstantArray printed; empty without constants.
   * \param outs The results.
   * \param pass_dl_tensor Whether `<func_name>_` accepts `DLTensor*` instead of addresses of data.
   */
  void GenerateBackendCFunc(const std::string& func_name, const Array<Var>& args,
                            const std::string& const_arr_name, const std::vector<Output>& outs,
                            bool pass_dl_tensor = false);

  /*!
   * \brief The same for parameters whose C types are known.
   * \param arg_types The C type of an element of each parameter.
   */
  void GenerateBackendCFunc(const std::string& func_name, const std::vector<std::string>& arg_types,
                            const std::string& const_arr_name, const std::vector<Output>& outs,
                            bool pass_dl_tensor = false);

  /*!
   * \brief Print the array of the constants, whose values are read as `<array>[i]->data`.
   *
   * It must come before the functions that read it.
   * \param count How many constants there are.
   */
  void PrintConstantArray(const std::string& func_name, const std::string& const_arr_name,
                          size_t count);

  /*!
   * \brief Print `__init_<func_name>`, and what makes sure that the constants are there.
   * \param getter The function that gives the constant of a number, of a module that the module
   *        of the C source imports. Empty: TVM's const loader hands them in, which it cannot when
   *        the AOT executor runs the function.
   * \param prepare Statements that are run with the constants in place. They set `status` to
   *        something else than 0 if they fail, with TVM's last error set.
   */
  void PrintConstantInit(const std::string& func_name, const std::string& const_arr_name,
                         size_t count, const std::string& getter = "",
                         const std::string& prepare = "");

  /*!
   * \brief Print what happens when the library is unloaded: the constants are let go.
   * \param release Statements that are run before that.
   */
  void PrintRelease(const std::string& func_name, const std::string& const_arr_name,
                    std::string release = "");

  /*! \brief Print the packed function: it calls `<func_name>_wrapper_` with DLTensors. */
  void PrintPackedFunc(const std::string& func_name, size_t num_args,
                       const std::string& const_arr_name);

  /*! \brief Print the opening and the end of a part that other languages must be able to link. */
  void BeginExternC();
  void EndExternC();

  /*! \brief The C type of an element: "float", "int32_t", "uint16_t" for a bfloat16, ... */
  static std::string GetDtypeString(DataType dtype);
  static std::string GetDtypeString(const TensorTypeNode* type) {
    return GetDtypeString(type->dtype);
  }
  static std::string GetDtypeString(const Var& var);

  /*! \brief All that is printed. */
  std::ostringstream code_stream_;

 private:
  int indent_{0};
};

/*! \brief The symbol that a partition's function must have in the compiled module. */
std::string GetSymbolOf(const Function& function);

/*! \brief Fails unless the text is an identifier of C. */
void CheckIdentifier(const std::string& symbol);

}  // namespace contrib
}  // namespace relay
}  // namespace tvm

#endif  // TVM_RELAY_BACKEND_CONTRIB_CODEGEN_C_CODEGEN_C_H_
