# SPDX-License-Identifier: Apache-2.0
"""The JSON graph that the code generator writes."""

import json

import tvm_dnnl
from dnnl_tests.fused_conv import FUSED_CONV
from tvm import relax
from tvm.relax import op

from dnnl_relax.modules import const, module, var


def test_a_fused_kernel_is_the_one_of_relay():
    def build(builder, x):
        y = builder.emit(op.nn.conv2d(x, const(8, 8, 3, 3), padding=1))
        return op.nn.relu(builder.emit(op.add(y, const(1, 8, 1, 1))))

    mod = tvm_dnnl.partition_for_dnnl(module(build, var("x", 1, 8, 6, 6)), prune=False)
    (code,) = relax.transform.RunCodegen()(mod).attrs["external_mods"]
    graph = json.loads(code.inspect_source("json"))
    names = [str(name) for name in code["get_const_vars"]()]
    assert list(graph)[:3] == ["format_version", "symbol", "nodes"] and graph["format_version"] == 2
    assert graph["symbol"] == code["get_symbol"]()
    assert [node["op"] for node in graph["nodes"]] == ["input", "const", "const", "kernel"]
    assert [node["name"] for node in graph["nodes"][1:3]] == names
    assert graph["nodes"][3] == FUSED_CONV
    assert (graph["arg_nodes"], graph["heads"]) == ([0, 1, 2], [[3, 0, 0]])
