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
"""The mechanisms behind the offload policy of oneDNN; the policy itself is in ``dnnl.py``.

Private: use the names that :py:mod:`tvm.relay.op.contrib.dnnl` exports. A run passes through the
files in this order::

    options    the arguments, checked
    partition  the steps, function by function
    simplify   parameters become constants, dropout goes
    fold_pad
    fold_scale
    fold_layer_norm
    bias_order    a bias goes first
    short_floats  bfloat16 in place of float32
    spec       the rows of the policy; they ask
        reasons    the rules of the ops
        chain      composites: patterns, and the rule of a bias
        tensors    what any tensor must be like
        cpu        which types oneDNN computes with
    fuse       an op and what follows it become a composite
    cut        regions become functions; both with the help of
        graph      a function as numbers
        regions    what can be one call
        edges      which views are better left outside
        prune      what is worth one
    single_calls  what TVM would do to the calls of these functions
    record     what only the run knows, left on the module for
    report     which calls are offloaded, and why the others are not
"""
