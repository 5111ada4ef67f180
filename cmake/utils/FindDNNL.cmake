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

# Finds oneDNN: headers and library of one installation, of a version that the backend is for.
#
#   find_dnnl(${USE_DNNL})
#
# Looks in that directory; if USE_DNNL is none, where CMake looks by itself. Sets DNNL_INCLUDE_DIR,
# DNNL_LIBRARY and DNNL_VERSION, or stops with the reason.

# Which threads compute the parallel regions of oneDNN: this backend's, which suit a machine with
# other work, or OpenMP's.
option(USE_DNNL_TEAM "Run parallel regions of oneDNN on threads of the DNNL backend" ON)

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

macro(find_dnnl use_dnnl)
  set(__dnnl_root "")
  __dnnl_read_option("${use_dnnl}" __dnnl_kind)
  if(__dnnl_kind STREQUAL "PATH")
    get_filename_component(__dnnl_root "${use_dnnl}" ABSOLUTE)
  endif()
  __dnnl_find("${__dnnl_root}")
  __dnnl_check("${DNNL_INCLUDE_DIR}" "${DNNL_LIBRARY}" "${__dnnl_root}")
endmacro()
