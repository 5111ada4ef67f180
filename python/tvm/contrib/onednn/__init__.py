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
"""The part of the oneDNN backend that Relay and Relax share.

It imports NumPy, ml_dtypes and the standard library, and works on a graph that a reader for either
IR makes, and a writer writes. Private: the API is :py:mod:`tvm.relay.op.contrib.dnnl`, or
:py:mod:`tvm.relax.backend.contrib.dnnl`. The folders, each of which imports those before it only::

    ir         nodes and edits, open dimensions, an op as rules see it; op-agnostic
    ops        a file for each family of ops; a row has an op's rule, inference and definition
    frontend   ONNX models, prepared for an importer of TVM
    rewrites   a file for each rewrite of a graph; the order is in `rewrites/pipeline.py`
    partition  fusion, regions, and what is too small to be worth a call
    report     what became of each op, as a table, for programs and drawn
    verify     a compiled model against its source

The files beside them::

    options    the arguments of partition_for_dnnl, checked
    cpu        the data types that oneDNN computes in on this CPU
    failures   steps that raised: a warning each, and a line of the report
    export     libraries that are written as a whole
    host       the LLVM target of this machine
    compiled_model  a compiled model that is called with arrays
    progress   what a call does that takes more than seconds
    cache      compiled libraries, under the digest of what they were made from
"""
