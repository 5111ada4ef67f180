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

# Tells which C++ ABI a libtvm.so was built with.
#
# GCC's library has two layouts of std::string. The names of functions that take one say which: in
# a function of namespace tvm, `std::string const&` is "RKSs" in the old ABI and
# "RKNSt7__cxx1112basic_string..." in the new one. A libtvm has many of one kind, none of the other.

# Sets `result` to 0 (old), 1 (new).
function(tvm_library_cxx11_abi library result)
  find_program(TVM_NM NAMES "${CMAKE_NM}" nm)
  if(NOT TVM_NM)
    message(FATAL_ERROR "the program `nm` is needed to read ${library}: install binutils.")
  endif()
  execute_process(COMMAND "${TVM_NM}" -D --defined-only "${library}"
                  OUTPUT_VARIABLE symbols ERROR_VARIABLE problem RESULT_VARIABLE code)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "`nm` cannot read ${library}: ${problem}")
  endif()
  string(REGEX MATCH "_ZNK?3tvm[A-Za-z0-9_]*RKSs" old "${symbols}")
  string(REGEX MATCH "_ZNK?3tvm[A-Za-z0-9_]*RKNSt7__cxx1112basic_string" new "${symbols}")
  if(old AND NOT new)
    set(${result} 0 PARENT_SCOPE)
  elseif(new AND NOT old)
    set(${result} 1 PARENT_SCOPE)
  else()
    message(FATAL_ERROR "cannot tell the C++ ABI of ${library}: it has no function of namespace "
                        "tvm that takes a std::string, or both kinds. Is it TVM's library?")
  endif()
endfunction()
