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

# The oneDNN (DNNL) backend: the one place that lists its sources and finds oneDNN.
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

set(DNNL_MIN_VERSION 3.2)
set(DNNL_END_VERSION 4)
set(__dnnl_get_it "Get oneDNN ${DNNL_MIN_VERSION} or newer, for example \
`pip install onednn-devel-cpu-gomp==2023.2.0`, and set USE_DNNL to the directory that holds its \
include/ and lib/")

# Maps the value of an option to JSON, C_SRC, OFF, ON (enabled, whichever codegen) or PATH.
function(__dnnl_read_option value result)
  string(TOUPPER "${value}" upper)
  if(upper STREQUAL "JSON" OR upper STREQUAL "C_SRC")
    set(${result} ${upper} PARENT_SCOPE)
  elseif(upper MATCHES "^(ON|1|YES|TRUE|Y)$")
    set(${result} ON PARENT_SCOPE)
  elseif(upper MATCHES "^(|OFF|0|NO|FALSE|N)$")
    set(${result} OFF PARENT_SCOPE)
  else()
    set(${result} PATH PARENT_SCOPE)
  endif()
endfunction()

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

# Reads the version "major.minor.patch" from oneDNN's header.
function(__dnnl_header_version include_dir result)
  set(header "${include_dir}/oneapi/dnnl/dnnl_version.h")
  if(NOT EXISTS "${header}")
    set(header "${include_dir}/dnnl_version.h")
  endif()
  set(version "")
  if(EXISTS "${header}")
    file(STRINGS "${header}" lines REGEX "#define[ \t]+DNNL_VERSION_(MAJOR|MINOR|PATCH)[ \t]")
    foreach(part MAJOR MINOR PATCH)
      if("${lines}" MATCHES "DNNL_VERSION_${part}[ \t]+([0-9]+)")
        list(APPEND version ${CMAKE_MATCH_1})
      endif()
    endforeach()
    string(REPLACE ";" "." version "${version}")
  endif()
  set(${result} "${version}" PARENT_SCOPE)
endfunction()

# Reads "3" or "3.2" from the library's file name or from the names beside it; "" if none tells.
function(__dnnl_library_version library result)
  get_filename_component(real "${library}" REALPATH)
  get_filename_component(directory "${library}" DIRECTORY)
  set(found "")
  # pip copies the library under each of its names, so the long name may lie beside the short.
  file(GLOB siblings "${directory}/libdnnl.so.*")
  foreach(path "${real}" ${siblings})
    get_filename_component(name "${path}" NAME)
    if(name MATCHES "\\.so\\.([0-9]+\\.[0-9]+)")
      set(found "${CMAKE_MATCH_1}")
      break()
    elseif(name MATCHES "\\.so\\.([0-9]+)" AND found STREQUAL "")
      set(found "${CMAKE_MATCH_1}")
    endif()
  endforeach()
  set(${result} "${found}" PARENT_SCOPE)
endfunction()

# Finds headers and library of one installation: below `root`, or if that is empty where CMake
# looks by itself. Sets DNNL_INCLUDE_DIR and DNNL_LIBRARY; a false value means not found.
macro(__dnnl_find root)
  set(DNNL_INCLUDE_DIR "")
  set(DNNL_LIBRARY "")
  unset(__dnnl_include CACHE)
  unset(__dnnl_lib CACHE)
  if("${root}" STREQUAL "")
    # Looks at dnnl_DIR, CMAKE_PREFIX_PATH, the prefixes of PATH (an activated environment with
    # oneDNN's wheels is one) and the system.
    find_package(dnnl CONFIG QUIET)
  endif()
  if("${root}" STREQUAL "" AND TARGET DNNL::dnnl)
    get_target_property(DNNL_INCLUDE_DIR DNNL::dnnl INTERFACE_INCLUDE_DIRECTORIES)
    list(GET DNNL_INCLUDE_DIR 0 DNNL_INCLUDE_DIR)
    get_target_property(DNNL_LIBRARY DNNL::dnnl LOCATION)
  else()
    set(__dnnl_headers NAMES oneapi/dnnl/dnnl.hpp dnnl.hpp)
    if("${root}" STREQUAL "")
      find_path(__dnnl_include ${__dnnl_headers}
                HINTS ENV DNNLROOT ENV VIRTUAL_ENV ENV CONDA_PREFIX PATH_SUFFIXES include)
    else()
      find_path(__dnnl_include ${__dnnl_headers}
                PATHS "${root}" PATH_SUFFIXES include NO_DEFAULT_PATH)
    endif()
    if(__dnnl_include)
      # The library of the same prefix only: another one may be of another version.
      get_filename_component(__dnnl_prefix "${__dnnl_include}" DIRECTORY)
      find_library(__dnnl_lib NAMES dnnl PATHS "${__dnnl_prefix}"
                   PATH_SUFFIXES lib lib64 lib/${CMAKE_LIBRARY_ARCHITECTURE} NO_DEFAULT_PATH)
    endif()
    set(DNNL_INCLUDE_DIR "${__dnnl_include}")
    set(DNNL_LIBRARY "${__dnnl_lib}")
  endif()
  unset(__dnnl_include CACHE)
  unset(__dnnl_lib CACHE)
endmacro()

# Stops with the reason if the oneDNN that was found cannot be used.
function(__dnnl_check include_dir library root)
  if(root STREQUAL "")
    set(where "in CMAKE_PREFIX_PATH, the active Python environment or the system")
  else()
    set(where "in USE_DNNL=${root}")
  endif()
  if(NOT include_dir)
    message(FATAL_ERROR "oneDNN's header oneapi/dnnl/dnnl.hpp was not found ${where}. "
                        "${__dnnl_get_it}.")
  endif()
  if(NOT library)
    message(FATAL_ERROR "oneDNN's headers are in ${include_dir}, but its library libdnnl was not "
                        "found with them ${where}. ${__dnnl_get_it}.")
  endif()
  __dnnl_header_version("${include_dir}" version)
  if(version STREQUAL "")
    message(FATAL_ERROR "cannot read oneDNN's version from dnnl_version.h in ${include_dir}. "
                        "${__dnnl_get_it}.")
  endif()
  if(version VERSION_LESS DNNL_MIN_VERSION)
    message(FATAL_ERROR "oneDNN ${version} in ${include_dir} is too old: this backend uses the v3 "
                        "API as of ${DNNL_MIN_VERSION} (scales and zero points as run-time "
                        "arguments), which older versions do not have. ${__dnnl_get_it}.")
  endif()
  if(NOT version VERSION_LESS DNNL_END_VERSION)
    message(FATAL_ERROR "oneDNN ${version} in ${include_dir} is too new: this backend is written "
                        "for the v3 API, and a new major version may change it. "
                        "${__dnnl_get_it} (3.x).")
  endif()
  __dnnl_library_version("${library}" built)
  string(REGEX MATCH "^[0-9]+\\.[0-9]+" short "${version}")
  if(NOT built MATCHES "\\.")
    string(REGEX MATCH "^[0-9]+" short "${version}")
  endif()
  if(built AND NOT built VERSION_EQUAL short)
    message(FATAL_ERROR "oneDNN's headers in ${include_dir} are version ${version}, but the "
                        "library ${library} is version ${built}: they must be of one "
                        "installation. Set USE_DNNL to its directory.")
  endif()
  message(STATUS "Build with oneDNN ${version}: ${include_dir}, ${library}")
  set(DNNL_VERSION "${version}" PARENT_SCOPE)
endfunction()

__dnnl_choose_codegen("${USE_DNNL}" "${USE_DNNL_CODEGEN}" DNNL_CODEGEN)

if(NOT DNNL_CODEGEN STREQUAL "OFF")
  set(__dnnl_root "")
  __dnnl_read_option("${USE_DNNL}" __dnnl_kind)
  if(__dnnl_kind STREQUAL "PATH")
    get_filename_component(__dnnl_root "${USE_DNNL}" ABSOLUTE)
  endif()
  __dnnl_find("${__dnnl_root}")
  __dnnl_check("${DNNL_INCLUDE_DIR}" "${DNNL_LIBRARY}" "${__dnnl_root}")

  # codegen_json/ and json/ are headers only: other backends use them without this module.
  file(GLOB DNNL_COMPILER_SRCS CONFIGURE_DEPENDS src/relay/backend/contrib/dnnl/*.cc)
  # The core, which includes no header of TVM, and what ties it to TVM.
  file(GLOB DNNL_CORE_SRCS CONFIGURE_DEPENDS
       src/runtime/contrib/dnnl/core/*.cc
       src/runtime/contrib/dnnl/core/exec/*.cc
       src/runtime/contrib/dnnl/core/ops/*.cc
       src/runtime/contrib/dnnl/core/plan/*.cc)
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
