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
"""The kernel in the JSON graph of relu(conv2d(x, w) + b), which is the same of Relay and Relax."""

FUSED_CONV = {
    "op": "kernel",
    "name": "dnnl.conv2d_bias_relu",
    "inputs": [[0, 0, 0], [1, 0, 0], [2, 0, 0]],
    "attrs": {
        "root_op": "nn.conv2d",
        "post_ops": [{"op": "add", "operand": 2, "is_bias": True}, {"op": "nn.relu"}],
        "strides": [1, 1],
        "padding": [1, 1, 1, 1],
        "dilation": [1, 1],
        "groups": 1,
        "data_layout": "NCHW",
        "kernel_layout": "OIHW",
        "out_layout": "",
        "out_dtype": "",
        "shape": [[1, 8, 6, 6]],
        "dtype": ["float32"],
    },
}
