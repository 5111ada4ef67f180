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
"""Reads Relay for oneDNN, and writes what oneDNN runs as partitions.

Private: use the names that :py:mod:`tvm.relay.op.contrib.dnnl` exports. What both TVMs share, the
rewrites and the table of ops first of all, is in :py:mod:`tvm.contrib.onednn`.

    pipeline     what partition_for_dnnl does, function by function
    params       the parameters of a function that become constants
    pass_context the options that the PassContext has
    reader       a function as a graph
    writer       a graph as a function, with functions for the partitions; by body and write_ops
    composites   a composite of somebody's own pattern as a kernel, for the code generators
    ir           a call as rules see it, expressions by number, constants, shapes with names
    rewrites     what is done to a function of Relay before it is read, and after it is written
    partition    patterns and rules for TVM's own passes, and partitions that are called once
    report       what became of each op
    integration  tvmc, C source, profiling, shape functions, the host's target, the names of
                 TVM's own backend
"""
