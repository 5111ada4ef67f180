# SPDX-License-Identifier: Apache-2.0
"""The nodes that the C++ tests damage: each op of the table is among them."""

from tvm.contrib.onednn.ops.quantize import DEQUANTIZE
from tvm.contrib.onednn.ops.table import TABLE

from scripts.test import drawn_nodes


def test_each_op_has_valid_nodes():
    nodes = drawn_nodes.single_nodes()
    assert {name: len(of_op) for name, of_op in nodes.items()} == dict.fromkeys(
        TABLE, drawn_nodes.COUNT
    )


def test_each_post_op_is_fused():
    nodes = [node for chain in drawn_nodes.fused_nodes().values() for node in chain]
    fused = {each["op"] for node in nodes for each in node["attrs"]["post_ops"]}
    assert fused >= {row.name for row in TABLE.values() if row.post} - {DEQUANTIZE}
    roots = {node["attrs"]["root_op"] for node in nodes}
    assert roots >= {row.name for row in TABLE.values() if row.heavy and row.fuses}
    assert {"int8", "uint8"} & {node["inputs"]["dtype"][0] for node in nodes}
