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

# The oneDNN (DNNL) backend of Relax: the one place that lists its sources.
#
# TVM's CMakeLists.txt includes this module; the backend goes into libtvm_runtime_extra.
#
#   USE_DNNL  ON or JSON: with oneDNN where CMake finds it. OFF. Or the directory where it is.
#
# DNNL_VERSION, DNNL_INCLUDE_DIR and DNNL_LIBRARY are set.

include(cmake/utils/FindDNNL.cmake)

__dnnl_read_option("${USE_DNNL}" __dnnl_wished)
if(__dnnl_wished STREQUAL "C_SRC")
  message(FATAL_ERROR "USE_DNNL is C_SRC, but Relax has no codegen that writes C source for oneDNN. "
                      "Set it to ON or to the directory of oneDNN.")
elseif(__dnnl_wished STREQUAL "PATH" AND NOT IS_DIRECTORY "${USE_DNNL}")
  message(FATAL_ERROR "USE_DNNL is \"${USE_DNNL}\"; it must be ON, JSON or OFF, or a directory that "
                      "exists and holds oneDNN's include/ and lib/.")
endif()

if(NOT __dnnl_wished STREQUAL "OFF")
  find_dnnl("${USE_DNNL}")

  # The core, which includes no header of TVM, and what ties it to tvm-ffi.
  tvm_file_glob(GLOB DNNL_CORE_SRCS
    src/runtime/extra/contrib/dnnl/core/*.cc
    src/runtime/extra/contrib/dnnl/core/exec/*.cc
    src/runtime/extra/contrib/dnnl/core/exec/team/*.cc
    src/runtime/extra/contrib/dnnl/core/fusion/*.cc
    src/runtime/extra/contrib/dnnl/core/kernels/*.cc
    src/runtime/extra/contrib/dnnl/core/ops/*.cc
    src/runtime/extra/contrib/dnnl/core/plan/*.cc)
  if(NOT USE_DNNL_TEAM)
    set_property(SOURCE src/runtime/extra/contrib/dnnl/core/exec/team/openmp_calls.cc
                 APPEND PROPERTY COMPILE_DEFINITIONS DNNL_HAS_TEAM=0)
  endif()
  tvm_file_glob(GLOB DNNL_SHELL_SRCS src/runtime/extra/contrib/dnnl/tvm/*.cc)

  # tvm.contrib.dnnl.matmul is TVM's own.
  add_library(tvm_dnnl_objs OBJECT
    ${DNNL_CORE_SRCS} ${DNNL_SHELL_SRCS} src/runtime/extra/contrib/cblas/dnnl_blas.cc)
  target_include_directories(tvm_dnnl_objs SYSTEM PRIVATE "${DNNL_INCLUDE_DIR}")
  target_link_libraries(tvm_dnnl_objs PRIVATE tvm_runtime_extra_defs)
  target_link_libraries(tvm_runtime_extra PRIVATE tvm_dnnl_objs "${DNNL_LIBRARY}")
  message(STATUS "Build with oneDNN")

  # The unit tests of the core, which need nothing of TVM. Built only when asked for:
  #   cmake --build . --target dnnl_core_cpptest
  tvm_file_glob(GLOB DNNL_CORE_TESTS tests/cpp-runtime/harness/*.cc tests/cpp-runtime/dnnl/core/*.cc)
  if(DNNL_CORE_TESTS)
    find_package(Threads REQUIRED)
    add_executable(dnnl_core_cpptest EXCLUDE_FROM_ALL ${DNNL_CORE_TESTS} ${DNNL_CORE_SRCS})
    target_include_directories(dnnl_core_cpptest PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
    target_include_directories(dnnl_core_cpptest SYSTEM PRIVATE "${DNNL_INCLUDE_DIR}")
    target_link_libraries(dnnl_core_cpptest PRIVATE
      tvm_ffi_header "${DNNL_LIBRARY}" ${CMAKE_DL_LIBS} Threads::Threads)
  endif()
endif()
