# SPDX-License-Identifier: Apache-2.0
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
