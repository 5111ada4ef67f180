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
"""Decides which ops oneDNN runs, and makes partitions of them.

Private: use the names that :py:mod:`tvm.relay.op.contrib.dnnl` exports. The rooms::

    pipeline     what partition_for_dnnl does, step by step and function by function
    pass_context its options that the PassContext has
    ir           Relay: a call as rules see it, a function as a graph; constants; shapes with names
    rewrites     what prepares a function; a driver, and a file for each rewrite
    partition    outlining of the regions that become functions; patterns for TVM's own passes,
                 and what rewrites a quantized model for them
    report       what became of each op
    integration  tvmc, C source, profiling, shape functions, the host's target, the names of
                 TVM's own backend

What knows no Relay, the table of ops first of all, is in :py:mod:`tvm.contrib.onednn`.

A function passes through these files in this order, as ``pipeline.py`` lists them::

    rewrites/simplify           dropouts and copies go
    rewrites/static_reshape     reshapes to a computed shape say what they do
    rewrites/qnn_to_qdq         a dequantize that is spelled out becomes one
    rewrites/simplify           constants are folded, broadcasts go that a binary op does itself
    rewrites/take_to_slice      a take of one constant index is a slice
    rewrites/recurrent          the inputs of all steps of an LSTM or GRU are multiplied at once
    rewrites/simplify           weights that are quantized when the model runs are quantized now
    rewrites/qnn_to_qdq         QNN ops are float ops between dequantize and quantize
    rewrites/simplify           what a quantized model computes several times is computed once
    rewrites/relu_order         a relu goes before a rounding, for its reader to have 8 bits
    rewrites/weight_zero_point  convolutions whose weight needs a zero point are matmuls, or two
    rewrites/move_in_int8       what only moves elements does so in 8 bits
    rewrites/fold_pad           pads go into convolutions and pools
    rewrites/move_in_int8       constants are dequantized, but for weights
    rewrites/fold_scale         batch norms and constants go into weights and biases, if they can
    rewrites/fold_layer_norm    layer norms that are written out become one op
    rewrites/propagate_strides  what strided 1x1 convolutions do not read is not computed
    rewrites/bias_order         a bias goes before a residual, if the caller lets it
    rewrites/rms_norm           formulas that oneDNN has an op for become virtual ops
    rewrites/virtual_ops
    rewrites/reduced_precision  bfloat16 or float16 in the place of float32, if wanted
    partition/dequantize_order  a dequantize goes before a reshape, for what follows to be fused
    partition/outline           what oneDNN runs goes into functions, with the help of
        units                       what is chosen, by these:
        fuse                        an op and what is fused to it
        regions                     what can be one call
        prune, edge_views           what is better left to TVM
    rewrites/static_reshape     what TVM keeps of these reshapes is as it was
    rewrites/virtual_ops        virtual ops are several ops again where a step failed
    partition/single_calls      no partition will be called twice
    rewrites/broadcast_fusion   TVM computes by itself what it broadcasts along an open dimension
"""
