# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.

# The oneDNN (DNNL) backend: the one place that lists its sources.
#
# TVM's CMakeLists.txt includes this module to build the backend into libtvm; the CMakeLists.txt of
# the patch set includes it to build the backend beside a prebuilt libtvm.
#
#   USE_DNNL_CODEGEN  ON or JSON: the JSON runtime. C_SRC: C source code. OFF: as USE_DNNL says.
#   USE_DNNL          the same four values, or the directory where oneDNN is installed.
#
# Both are OFF by default, and either one switches the backend on; two codegens are an error.
# Results, for the includer: COMPILER_SRCS, RUNTIME_SRCS and TVM_RUNTIME_LINKER_LIBS are appended
# to; DNNL_CODEGEN is JSON, C_SRC or OFF; DNNL_VERSION, DNNL_INCLUDE_DIR and DNNL_LIBRARY are set.

include(${CMAKE_CURRENT_LIST_DIR}/../../utils/FindDNNL.cmake)

# Decides on the codegen from the values of both options: JSON, C_SRC or OFF.
function(__dnnl_choose_codegen use_dnnl use_codegen result)
  set(four "ON, JSON, C_SRC or OFF")
  __dnnl_read_option("${use_codegen}" chosen)
  if(chosen STREQUAL "PATH")
    message(FATAL_ERROR "USE_DNNL_CODEGEN is \"${use_codegen}\"; it must be ${four}. "
                        "The directory of oneDNN goes into USE_DNNL.")
  endif()
  __dnnl_read_option("${use_dnnl}" wished)
  if(wished STREQUAL "PATH" AND NOT IS_DIRECTORY "${use_dnnl}")
    message(FATAL_ERROR "USE_DNNL is \"${use_dnnl}\"; it must be ${four}, or a directory that "
                        "exists and holds oneDNN's include/ and lib/.")
  endif()

  if(chosen STREQUAL "OFF")
    set(chosen ${wished})
  endif()
  if(chosen MATCHES "^(ON|PATH)$")
    set(chosen JSON)
  endif()
  if(wished MATCHES "^(JSON|C_SRC)$" AND NOT chosen STREQUAL wished)
    message(FATAL_ERROR "USE_DNNL=${use_dnnl} contradicts USE_DNNL_CODEGEN=${use_codegen}. "
                        "Set USE_DNNL_CODEGEN alone, and USE_DNNL only to the directory of oneDNN.")
  endif()
  set(${result} ${chosen} PARENT_SCOPE)
endfunction()

__dnnl_choose_codegen("${USE_DNNL}" "${USE_DNNL_CODEGEN}" DNNL_CODEGEN)

if(NOT DNNL_CODEGEN STREQUAL "OFF")
  find_dnnl("${USE_DNNL}")

  # codegen_json/ and json/ are headers only: other backends use them without this module.
  file(GLOB DNNL_COMPILER_SRCS CONFIGURE_DEPENDS src/relay/backend/contrib/dnnl/*.cc)
  # The core, which includes no header of TVM, and what ties it to TVM.
  file(GLOB DNNL_CORE_SRCS CONFIGURE_DEPENDS
       src/runtime/contrib/dnnl/core/*.cc
       src/runtime/contrib/dnnl/core/exec/*.cc
       src/runtime/contrib/dnnl/core/exec/team/*.cc
       src/runtime/contrib/dnnl/core/fusion/*.cc
       src/runtime/contrib/dnnl/core/kernels/*.cc
       src/runtime/contrib/dnnl/core/ops/*.cc
       src/runtime/contrib/dnnl/core/plan/*.cc)
  if(NOT USE_DNNL_TEAM)
    set_property(SOURCE src/runtime/contrib/dnnl/core/exec/team/openmp_calls.cc
                 APPEND PROPERTY COMPILE_DEFINITIONS DNNL_HAS_TEAM=0)
  endif()
  file(GLOB DNNL_SHELL_SRCS CONFIGURE_DEPENDS
       src/runtime/contrib/dnnl/*.cc
       src/runtime/contrib/dnnl/c_source/*.cc
       src/runtime/contrib/dnnl/tvm/*.cc)
  set(DNNL_RUNTIME_SRCS ${DNNL_CORE_SRCS} ${DNNL_SHELL_SRCS})

  # What a TVM tree has beside these: relax's codegen, which creates our JSON runtime by name, and
  # tvm.contrib.dnnl.matmul. Not a part of this backend, so they go without its definitions.
  file(GLOB DNNL_TVM_COMPILER_SRCS CONFIGURE_DEPENDS src/relax/backend/contrib/dnnl/*.cc)
  file(GLOB DNNL_TVM_RUNTIME_SRCS CONFIGURE_DEPENDS src/runtime/contrib/cblas/dnnl_blas.cc)
  set(__dnnl_all_srcs ${DNNL_COMPILER_SRCS} ${DNNL_RUNTIME_SRCS}
      ${DNNL_TVM_COMPILER_SRCS} ${DNNL_TVM_RUNTIME_SRCS})

  # Definitions and include paths belong to our own sources only: switching the backend does not
  # rebuild the rest of TVM, and switching the codegen rebuilds one file. oneDNN's headers count as
  # the system's, their warnings are not ours.
  set(__dnnl_entry ${DNNL_COMPILER_SRCS})
  list(FILTER __dnnl_entry INCLUDE REGEX "/dnnl/codegen\\.cc$")
  set_property(SOURCE ${__dnnl_entry}
               APPEND PROPERTY COMPILE_DEFINITIONS TVM_DNNL_CODEGEN_${DNNL_CODEGEN}=1)
  # TVM's file then leaves the registration of the const loader to tvm/const_loader.cc.
  set_property(SOURCE "${CMAKE_CURRENT_SOURCE_DIR}/src/runtime/const_loader_module.cc"
               APPEND PROPERTY COMPILE_DEFINITIONS TVM_DNNL_CONST_LOADER=1)
  if(NOT DNNL_INCLUDE_DIR IN_LIST CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES)
    set_property(SOURCE ${__dnnl_all_srcs}
                 APPEND PROPERTY COMPILE_OPTIONS -isystem "${DNNL_INCLUDE_DIR}")
  endif()

  list(APPEND COMPILER_SRCS ${DNNL_COMPILER_SRCS} ${DNNL_TVM_COMPILER_SRCS})
  list(APPEND RUNTIME_SRCS ${DNNL_RUNTIME_SRCS} ${DNNL_TVM_RUNTIME_SRCS})
  list(APPEND TVM_RUNTIME_LINKER_LIBS "${DNNL_LIBRARY}")
  message(STATUS "Build with the oneDNN backend, codegen ${DNNL_CODEGEN}")

  # The unit tests of the core, which need no libtvm. Built only when asked for:
  #   cmake --build . --target dnnl_core_cpptest
  function(dnnl_add_core_cpptest core)
    file(GLOB tests CONFIGURE_DEPENDS
         tests/cpp-runtime/harness/*.cc tests/cpp-runtime/dnnl/core/*.cc)
    add_executable(dnnl_core_cpptest EXCLUDE_FROM_ALL ${tests} ${core})
    target_include_directories(dnnl_core_cpptest PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
    target_include_directories(dnnl_core_cpptest SYSTEM PRIVATE "${DNNL_INCLUDE_DIR}")
    find_package(Threads REQUIRED)
    target_link_libraries(dnnl_core_cpptest PRIVATE
      "${DNNL_LIBRARY}" ${CMAKE_DL_LIBS} Threads::Threads)
  endfunction()
  if(PROJECT_NAME STREQUAL "tvm")
    dnnl_add_core_cpptest("${DNNL_CORE_SRCS}")
  endif()
endif()
