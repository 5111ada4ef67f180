# SPDX-License-Identifier: Apache-2.0
"""A small DNNL module whose JSON graph the tests read, change and damage."""

import functools
import json

import numpy as np
import tvm
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests.reference import conv2d, rand

ATTRS = dict(kernel_size=(3, 3), channels=8, padding=(1, 1))
X, W, B = rand(1, 8, 6, 6), rand(8, 8, 3, 3, seed=1), rand(8, 1, 1, seed=2)
S = rand(1, 8, 1, 6, seed=3)


def relay_module():
    """Return a module with two outputs: y = relu(conv2d(x, w) + b) and y * s."""
    x = relay.var("x", shape=X.shape)
    y = relay.nn.relu(relay.nn.conv2d(x, relay.const(W), **ATTRS) + relay.const(B))
    return tvm.IRModule.from_expr(relay.Tuple([y, y * relay.const(S)]))


def reference():
    """Return the two outputs for the input X."""
    y = np.maximum(conv2d(X, W, ATTRS) + B, 0)
    return [y, y * S]


def runtime_module():
    """Return the one DNNL runtime module, not initialised yet."""
    (module,) = testing.dnnl_modules(testing.build(dnnl.partition_for_dnnl(relay_module())))
    return module


@functools.cache
def parts():
    """Return symbol, JSON text and names of the constants of the module."""
    module = runtime_module()
    names = [str(name) for name in module.get_function("get_const_vars")()]
    return str(module.get_function("get_symbol")()), str(module.get_source("json")), names


def graph():
    """Return the JSON graph, parsed, as a copy that may be changed."""
    return json.loads(parts()[1])


def constants():
    """Return the constants in the order of their names in the module."""
    # Found by shape, so that the order of the names is not taken for granted.
    by_shape = {value.shape: value for value in (W, B, S)}
    shapes = {n["name"]: n["attrs"]["shape"][0] for n in graph()["nodes"]}
    return [tvm.nd.array(by_shape[tuple(shapes[name])]) for name in parts()[2]]


def create(json_text, names=None):
    """Make a DNNL module from the text of a JSON graph."""
    symbol, _, own_names = parts()
    make = tvm.get_global_func("runtime.DNNLJSONRuntimeCreate")
    return make(symbol, json_text, own_names if names is None else names)


def run(module):
    """Initialise a module made from our graph, run it on X, and return both outputs."""
    symbol = parts()[0]
    assert module.get_function("__init_" + symbol)(constants()) == 0
    outputs = [tvm.nd.empty(X.shape), tvm.nd.empty(X.shape)]
    module.get_function(symbol)(tvm.nd.array(X), *outputs)
    return outputs
