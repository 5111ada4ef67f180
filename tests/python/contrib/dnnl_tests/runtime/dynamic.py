# SPDX-License-Identifier: Apache-2.0
"""A small DNNL module with open dimensions, from the JSON graph that TVM writes of a static one.

``python -m dnnl_tests.runtime.dynamic SHAPES`` calls it with so many shapes and prints how much
memory the process uses after each hundred.
"""

import ctypes
import json
import sys

import numpy as np
import tvm
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests.reference import conv2d, rand

CHANNELS = 8
ATTRS = dict(kernel_size=(3, 3), channels=CHANNELS, padding=(1, 1))
WEIGHTS = [rand(CHANNELS, 3, 3, 3, seed=1), rand(CHANNELS, CHANNELS, 3, 3, seed=2)]
BIAS = rand(CHANNELS, 1, 1, seed=3)


def relay_module(x_shape, fused, constant):
    """A convolution with bias and relu, another one, a sum of both and its softmax.

    Not fused, it is the first convolution and the softmax: oneDNN 3.2 never frees the code of a
    convolution with post-ops (https://github.com/uxlfoundation/oneDNN/pull/1757).
    """
    x = relay.var("x", shape=x_shape)
    values = [*WEIGHTS, BIAS]
    names = ["w0", "w1", "b"]
    if constant:
        w0, w1, b = map(relay.const, values)
    else:
        w0, w1, b = [relay.var(name, shape=value.shape) for name, value in zip(names, values)]
    if not fused:
        return tvm.IRModule.from_expr(relay.nn.softmax(relay.nn.conv2d(x, w0, **ATTRS), axis=1))
    first = relay.nn.relu(relay.nn.conv2d(x, w0, **ATTRS) + b)
    second = relay.nn.conv2d(first, w1, **ATTRS)
    return tvm.IRModule.from_expr(relay.nn.softmax(relay.nn.relu(second + first), axis=1))


def reference(x, fused=True):
    """The result of numpy."""
    last = conv2d(x, WEIGHTS[0], ATTRS)
    if fused:
        first = np.maximum(last + BIAS, 0)
        last = np.maximum(conv2d(first, WEIGHTS[1], ATTRS) + first, 0)
    exp = np.exp(last - last.max(1, keepdims=True))
    return exp / exp.sum(1, keepdims=True)


def open_dims(text, axes):
    """The text of a JSON graph in which axes of all tensors but the weights are open."""
    graph = json.loads(text)
    fixed = [list(value.shape) for value in (*WEIGHTS, BIAS)]
    for node in graph["nodes"]:
        for shape in node["attrs"]["shape"]:
            for axis in axes if shape not in fixed else ():
                shape[axis] = -1
    return json.dumps(graph)


class DynamicModule:
    """The runtime module, initialised.

    Parameters
    ----------
    axes : tuple of int
        The axes that are open; none for a static module.
    shape : tuple of int
        The shape of the input, where it is not open.
    fused : bool
        See `relay_module`.
    constant : bool
        Whether the weights are constants, or inputs after x.
    """

    def __init__(self, axes=(0,), shape=(1, 3, 6, 6), fused=True, constant=True):
        mod = dnnl.partition_for_dnnl(relay_module(shape, fused, constant), prune=False)
        (static,) = testing.dnnl_modules(testing.build(mod))
        self.symbol = str(static.get_function("get_symbol")())
        names = [str(name) for name in static.get_function("get_const_vars")()]
        text = open_dims(str(static.get_source("json")), axes)
        self.module = tvm.get_global_func("runtime.DNNLJSONRuntimeCreate")(self.symbol, text, names)
        by_shape = {value.shape: tvm.nd.array(value) for value in (*WEIGHTS, BIAS)}
        graph = json.loads(text)
        shapes = {n["name"]: tuple(n["attrs"]["shape"][0]) for n in graph["nodes"]}
        leaves = [graph["nodes"][i] for i in graph["arg_nodes"]]
        inputs = [shapes[n["name"]] for n in leaves if n["op"] == "input"]
        #: The inputs in the order of the call; None for x.
        self.inputs = [by_shape.get(shape) for shape in inputs]
        if constant:
            self["__init_" + self.symbol]([by_shape[shapes[name]] for name in names])

    def __getitem__(self, name):
        return self.module.get_function(name)

    def arguments(self, x):
        """The tensors of a call, of which the last is the result."""
        result = np.full((x.shape[0], CHANNELS, *x.shape[2:]), np.nan, "float32")
        inputs = [tvm.nd.array(x) if value is None else value for value in self.inputs]
        return [*inputs, tvm.nd.array(result)]

    def run(self, x):
        """The result for an input."""
        arguments = self.arguments(x)
        self[self.symbol](*arguments)
        return arguments[-1]

    def plans(self):
        """What `get_plan` tells."""
        return json.loads(self["get_plan"]())


class MallInfo(ctypes.Structure):
    """glibc's `struct mallinfo2`; `fordblks` are the bytes of the heap that are free."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
        )
    ]


def used_megabytes():
    """The memory that this process has now, without what is free in its heap.

    The heap grows for hours without a leak, the slower the longer: the pieces that a plan gives
    back are seldom of the sizes that the next one asks for.
    """
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = MallInfo
    with open("/proc/self/status", encoding="ascii") as status:
        (line,) = [line for line in status if line.startswith("VmRSS")]
    return int(line.split()[1]) * 1024 / 1e6 - mallinfo2().fordblks / 1e6


def main(count):
    """Call the module with so many shapes, compare, and print the megabytes after each hundred."""
    module = DynamicModule((0, 2, 3), fused=False)
    rng = np.random.default_rng(0)
    # Each once.
    shapes = [(n, h, w) for n in (1, 2, 3, 4) for h in range(4, 20) for w in range(4, 20)]
    rng.shuffle(shapes)
    megabytes = []
    for i, (batch, height, width) in enumerate(shapes[:count]):
        x = rand(batch, 3, height, width, seed=i)
        testing.assert_close([module.run(x)], [reference(x, fused=False)], 1e-5)
        if (i + 1) % 100 == 0:
            megabytes.append(used_megabytes())
    plans = module.plans()
    assert plans["misses"] == count and len(plans["plans"]) == 16
    print(json.dumps({"megabytes": megabytes, "bytes": plans["bytes"]}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
