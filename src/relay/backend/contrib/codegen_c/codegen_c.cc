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
 * \file src/relay/backend/contrib/codegen_c/codegen_c.cc
 * \brief Shared by codegens that emit C source: the wrapper and the packed function.
 */
#include "codegen_c.h"

#include <tvm/ir/attrs.h>
#include <tvm/ir/function.h>
#include <tvm/runtime/data_type.h>
#include <tvm/runtime/logging.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

namespace tvm {
namespace relay {
namespace contrib {

namespace {

/*! \brief Put `symbol` and others in the place of $1 to $9. */
std::string Fill(const std::string& text, const std::vector<std::string>& values) {
  std::string filled;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '$') {
      filled += values.at(text[++i] - '1');
    } else {
      filled += text[i];
    }
  }
  return filled;
}

/*! \brief The parameters of a function that TVM calls by TVMBackendPackedCFunc. */
constexpr const char* kPackedParameters =
    "(TVMValue* args, int* type_codes, int num_args,\n"
    "    TVMValue* ret_value, int* ret_type_code, void* resource_handle)";

// $1 is the symbol, $2 the array, $3 the number of constants.
constexpr const char* kConstantArray = R"(
/* The $3 constants, once __init_$1 was called. */
static DLTensor** $2 = NULL;

static void $1_free_(DLTensor** values) {
  int i;
  for (i = 0; values != NULL && i < $3; ++i) {
    if (values[i] != NULL) TVMArrayFree(values[i]);
  }
  free(values);
}
)";

// $1 is the symbol, $2 the array, $3 the number of constants, $4 the statement that prepares.
constexpr const char* kTakeConstants = R"(
/* Take constant i from get(i), or from get(list, i) if there is a list. */
static int32_t $1_take_(
    TVMFunctionHandle get, const TVMValue* list, const int* list_code) {
  DLTensor** values = (DLTensor**)calloc($3, sizeof(DLTensor*));
  const int at = list != NULL ? 1 : 0;
  int32_t status = 0;
  int i;
  if (values == NULL) {
    TVMAPISetLastError("$1: no memory for the constants");
    return -1;
  }
  for (i = 0; status == 0 && i < $3; ++i) {
    TVMValue args[2], value;
    int codes[2], code = kTVMNullptr;
    if (list != NULL) {
      args[0] = *list;
      codes[0] = *list_code;
    }
    args[at].v_int64 = i;
    codes[at] = kTVMArgInt;
    status = TVMFuncCall(get, args, codes, at + 1, &value, &code);
    if (status == 0 && code != kTVMNDArrayHandle) {
      TVMAPISetLastError("$1: a constant is not a tensor");
      status = -1;
    }
    if (status == 0) values[i] = (DLTensor*)value.v_handle;
  }
  /* Another thread may have been faster. */
  if (status == 0 && __sync_bool_compare_and_swap(&$2, NULL, values)) {
    values = NULL;
  }
  $1_free_(values);
$4  return status;
}
)";

// $1 is the symbol, $2 the array, $3 the number of constants, $4 the parameters.
constexpr const char* kInitFromLoader = R"(
/* What TVM's const loader calls with the constants, before the first call of the function. */
TVM_DLL int32_t __init_$1$4 {
  TVMFunctionHandle get_item = NULL;
  int32_t status = 0;
  (void)resource_handle;
  ret_value->v_int64 = 0;
  *ret_type_code = kTVMArgInt;
  /* They are there already when the library was loaded before in this process. */
  if ($2 != NULL) return 0;
  if (num_args != 1) {
    TVMAPISetLastError("__init_$1 wants a list of $3 constants");
    return -1;
  }
  status = TVMFuncGetGlobal("runtime.ArrayGetItem", &get_item);
  if (status == 0 && get_item == NULL) {
    TVMAPISetLastError("__init_$1: this TVM has no lists");
    status = -1;
  }
  if (status == 0) status = $1_take_(get_item, &args[0], &type_codes[0]);
  if (get_item != NULL) TVMFuncFree(get_item);
  return status;
}

static int32_t $1_need_constants_(void) {
  if ($2 != NULL) return 0;
  TVMAPISetLastError("$1 was called before "
                     "__init_$1 gave it its constants");
  return -1;
}
)";

// $1 is the symbol, $2 the array, $3 the function that gives a constant, $4 the parameters.
constexpr const char* kInitFromImports = R"(
/* Where TVM keeps the module of this library, whose imports hold the constants. */
TVM_DLL TVM_WEAK void* __tvm_module_ctx = NULL;

static int32_t $1_need_constants_(void) {
  TVMFunctionHandle get = NULL;
  if ($2 != NULL) return 0;
  if (__tvm_module_ctx == NULL) {
    TVMAPISetLastError("$1: the library was not loaded by TVM, so its "
                       "constants cannot be found");
    return -1;
  }
  if (TVMBackendGetFuncFromEnv(__tvm_module_ctx,
                               "$3", &get) != 0) {
    return -1; /* with the error set */
  }
  return $1_take_(get, NULL, NULL);
}

/* What TVM's const loader calls early. AOT does not: it calls the function by its address. */
TVM_DLL int32_t __init_$1$4 {
  (void)args; (void)type_codes; (void)num_args; (void)resource_handle;
  ret_value->v_int64 = 0;
  *ret_type_code = kTVMArgInt;
  return $1_need_constants_();
}
)";

// $1 is the symbol, $2 the statements.
constexpr const char* kRelease = R"(
/* Called when the library is unloaded. */
__attribute__((destructor)) static void $1_release_(void) {
$2}
)";

}  // namespace

void CodegenCBase::PrintIndents() { code_stream_ << std::string(indent_, ' '); }

void CodegenCBase::BeginExternC() {
  code_stream_ << "\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n";
}

void CodegenCBase::EndExternC() { code_stream_ << "\n#ifdef __cplusplus\n}\n#endif\n"; }

void CodegenCBase::GenerateBackendCFunc(const std::string& func_name, const Array<Var>& args,
                                        const std::string& const_arr_name,
                                        const std::vector<Output>& outs, bool pass_dl_tensor) {
  std::vector<std::string> arg_types;
  for (const Var& arg : args) arg_types.push_back(pass_dl_tensor ? "" : GetDtypeString(arg));
  GenerateBackendCFunc(func_name, arg_types, const_arr_name, outs, pass_dl_tensor);
}

void CodegenCBase::GenerateBackendCFunc(const std::string& func_name,
                                        const std::vector<std::string>& arg_types,
                                        const std::string& const_arr_name,
                                        const std::vector<Output>& outs, bool pass_dl_tensor) {
  CheckIdentifier(func_name);
  std::string parameters, values;
  const auto add = [&](const std::string& name, const std::string& type) {
    parameters += (parameters.empty() ? "DLTensor* " : ", DLTensor* ") + name;
    values += values.empty() ? "" : ", ";
    values += pass_dl_tensor
                  ? name
                  : "(" + type + "*)((char*)" + name + "->data + " + name + "->byte_offset)";
  };
  for (size_t i = 0; i < arg_types.size(); ++i) add("arg" + std::to_string(i), arg_types[i]);
  for (size_t i = 0; i < outs.size(); ++i) add("out" + std::to_string(i), outs[i].dtype);
  BeginExternC();
  code_stream_ << "\nstatic int32_t " << func_name << "_wrapper_(" << parameters << ") {\n  "
               << func_name << "_(" << values << ");\n  return 0;\n}\n";
  PrintPackedFunc(func_name, arg_types.size() + outs.size(), const_arr_name);
  EndExternC();
}

void CodegenCBase::PrintConstantArray(const std::string& func_name,
                                      const std::string& const_arr_name, size_t count) {
  code_stream_ << Fill(kConstantArray, {func_name, const_arr_name, std::to_string(count)});
}

void CodegenCBase::PrintConstantInit(const std::string& func_name,
                                     const std::string& const_arr_name, size_t count,
                                     const std::string& getter, const std::string& prepare) {
  const std::string number = std::to_string(count);
  code_stream_ << Fill(kTakeConstants, {func_name, const_arr_name, number, prepare});
  if (getter.empty()) {
    code_stream_ << Fill(kInitFromLoader, {func_name, const_arr_name, number, kPackedParameters});
  } else {
    code_stream_ << Fill(kInitFromImports, {func_name, const_arr_name, getter, kPackedParameters});
  }
}

void CodegenCBase::PrintRelease(const std::string& func_name, const std::string& const_arr_name,
                                std::string release) {
  if (!const_arr_name.empty()) {
    release += "  " + func_name + "_free_(" + const_arr_name + ");\n";
  }
  if (!release.empty()) code_stream_ << Fill(kRelease, {func_name, release});
}

void CodegenCBase::PrintPackedFunc(const std::string& func_name, size_t num_args,
                                   const std::string& const_arr_name) {
  code_stream_
      << "\n/* What TVM calls. */\nTVM_DLL int32_t " << func_name << kPackedParameters << " {\n"
      << "  int i;\n"
      << "  /* From the AOT executor: addresses alone, and in C it counts one too few. */\n"
      << "  const int is_from_aot =\n"
      << "      num_args > 0 && type_codes[0] == kTVMDLTensorHandle && args[0].v_handle &&"
         "\n"
      << "      ((DLTensor*)args[0].v_handle)->dtype.code == kDLOpaqueHandle;\n"
      << "  (void)ret_value; (void)ret_type_code; (void)resource_handle;\n"
      << "  if (num_args != " << num_args << " && !(is_from_aot && num_args == " << num_args - 1
      << ")) {\n"
      << "    TVMAPISetLastError(\"" << func_name << " takes " << num_args << " tensors\");\n"
      << "    return -1;\n"
      << "  }\n"
      << "  for (i = 0; i < num_args; ++i) {\n"
      << "    if (type_codes[i] != kTVMDLTensorHandle && type_codes[i] != "
         "kTVMNDArrayHandle &&\n"
      << "        type_codes[i] != kTVMOpaqueHandle) {\n"
      << "      TVMAPISetLastError(\"" << func_name << ": an argument is not a tensor\");\n"
      << "      return -1;\n"
      << "    }\n"
      << "  }\n";
  if (!const_arr_name.empty()) {
    code_stream_ << "  if (" << func_name << "_need_constants_() != 0) return -1;\n";
  }
  code_stream_ << "  return " << func_name << "_wrapper_(";
  for (size_t i = 0; i < num_args; ++i) {
    code_stream_ << (i ? ",\n      " : "\n      ") << "(DLTensor*)args[" << i << "].v_handle";
  }
  code_stream_ << ");\n}\n";
}

std::string CodegenCBase::GetDtypeString(DataType dtype) {
  ICHECK_EQ(dtype.lanes(), 1) << "C code has no vectors: " << dtype;
  const std::string bits = std::to_string(dtype.bits());
  if (dtype == DataType::Float(32)) return "float";
  if (dtype == DataType::Float(64)) return "double";
  if (dtype.is_bool()) return "uint8_t";
  const bool has_width =
      dtype.bits() == 8 || dtype.bits() == 16 || dtype.bits() == 32 || dtype.bits() == 64;
  ICHECK(has_width) << "C has no type for " << dtype;
  if (dtype.is_int()) return "int" + bits + "_t";
  // The bits of a type that C does not have.
  return "uint" + bits + "_t";
}

std::string CodegenCBase::GetDtypeString(const Var& var) {
  const auto* type = var->checked_type().as<TensorTypeNode>();
  ICHECK(type != nullptr) << "parameter " << var->name_hint() << " is not a tensor";
  return GetDtypeString(type);
}

void CheckIdentifier(const std::string& symbol) {
  const bool is_word = std::all_of(symbol.begin(), symbol.end(),
                                   [](unsigned char c) { return std::isalnum(c) || c == '_'; });
  CHECK(!symbol.empty() && is_word && !std::isdigit(static_cast<unsigned char>(symbol[0])))
      << "The symbol '" << symbol << "' of a function that becomes C code must be an identifier "
      << "of C: letters, digits and underscores. Give PartitionGraph another mod_name.";
}

std::string GetSymbolOf(const Function& function) {
  const auto symbol = function->GetAttr<String>(tvm::attr::kGlobalSymbol);
  ICHECK(symbol.defined()) << "a function that becomes C code has no global_symbol";
  CheckIdentifier(symbol.value());
  return symbol.value();
}

}  // namespace contrib
}  // namespace relay
}  // namespace tvm
