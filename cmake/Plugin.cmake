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

# The plug-in for Relax: the core with a shell on tvm-ffi, in a library of its own. It needs
# the headers and the library of the package tvm_ffi, none of TVM.

if(NOT EXISTS "${TVM_FFI}/lib/libtvm_ffi.so" OR
   NOT EXISTS "${TVM_FFI}/include/tvm/ffi/extra/module.h")
  message(FATAL_ERROR "TVM_FFI=\"${TVM_FFI}\" holds no lib/libtvm_ffi.so and include/tvm/ffi. Set it "
                      "to the folder of the installed package tvm_ffi; `pip install .` does.")
endif()

file(GLOB PLUGIN_SRCS CONFIGURE_DEPENDS src/runtime/extra/contrib/dnnl/tvm/*.cc)
set(DNNL_CORE "" CACHE FILEPATH "core.cmake of a build with Relay, whose core is linked")

add_library(tvm_dnnl_relax SHARED ${PLUGIN_SRCS} src/runtime/contrib/dnnl/tvm/json_graph.cc)
if(DNNL_CORE)
  include("${DNNL_CORE}")
  target_link_libraries(tvm_dnnl_relax PRIVATE
    -Wl,--whole-archive dnnl_core -Wl,--no-whole-archive)
else()
  dnnl_add_core()
  target_include_directories(dnnl_core_objs SYSTEM PRIVATE "${TVM_FFI}/include")
  target_link_libraries(tvm_dnnl_relax PRIVATE dnnl_core_objs)
endif()
target_include_directories(tvm_dnnl_relax SYSTEM PRIVATE
  "${TVM_FFI}/include" "${DNNL_INCLUDE_DIR}")
target_compile_options(tvm_dnnl_relax PRIVATE -Wall -Wextra)
# Before glibc 2.34, threads are in a library of their own.
find_package(Threads REQUIRED)
target_link_libraries(tvm_dnnl_relax PRIVATE
  "${TVM_FFI}/lib/libtvm_ffi.so" "${DNNL_LIBRARY}" ${CMAKE_DL_LIBS} Threads::Threads)
target_link_options(tvm_dnnl_relax PRIVATE
  "LINKER:--version-script=${DNNL_EXPORTS}" "LINKER:-z,defs" "LINKER:-z,relro,-z,now")
# Python has opened libtvm_ffi.so before, which is then the one, wherever it lies. oneDNN's library
# is a part of the package.
set_target_properties(tvm_dnnl_relax PROPERTIES
  BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN"
  LINKER_LANGUAGE CXX
  LINK_DEPENDS "${DNNL_EXPORTS}")

# What the package holds beside its Python files, which pyproject.toml lists.
file(REAL_PATH "${DNNL_LIBRARY}" DNNL_FILE)
file(SHA256 "${DNNL_FILE}" DNNL_SHA256)
file(STRINGS "${TVM_FFI}/include/tvm/ffi/c_api.h" TVM_FFI_ABI
     REGEX "#define TVM_FFI_VERSION_(MAJOR|MINOR|PATCH) ")
string(REGEX MATCHALL "[0-9]+" TVM_FFI_ABI "${TVM_FFI_ABI}")
string(REPLACE ";" ", " TVM_FFI_ABI "${TVM_FFI_ABI}")
configure_file("cmake/plugin/_built_with.py.in" "${CMAKE_CURRENT_BINARY_DIR}/_built_with.py" @ONLY)
install(TARGETS tvm_dnnl_relax DESTINATION tvm_dnnl)
install(FILES "${DNNL_FILE}" DESTINATION tvm_dnnl RENAME libdnnl.so.3)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/_built_with.py" DESTINATION tvm_dnnl)
if(SKBUILD)
  # The header's number is that of the binary interface.
  dnnl_ask_python(TVM_FFI_VERSION
    "from importlib.metadata import version; print(version('apache-tvm-ffi'))")
  set(sbom "${CMAKE_CURRENT_BINARY_DIR}/sbom.cdx.json")
  configure_file("cmake/plugin/sbom.cdx.json.in" "${sbom}" @ONLY)
  install(FILES "${sbom}"
          DESTINATION "${SKBUILD_METADATA_DIR}/sboms")
  get_filename_component(DNNL_DOCS "${DNNL_INCLUDE_DIR}/../share/doc/onednn" ABSOLUTE)
  foreach(name LICENSE THIRD-PARTY-PROGRAMS)
    install(FILES "${DNNL_DOCS}/${name}" OPTIONAL
            DESTINATION "${SKBUILD_METADATA_DIR}/licenses" RENAME "oneDNN-${name}.txt")
  endforeach()
endif()
