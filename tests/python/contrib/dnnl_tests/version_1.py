# SPDX-License-Identifier: Apache-2.0
"""Version 1 of the JSON graph, which earlier builds wrote and TVM's other backends write."""


def _text(value):
    if value is None:
        return ""
    return str(int(value)) if isinstance(value, bool) else str(value)


def _rows(value):
    values = value if isinstance(value, list) else [value]
    is_nested = any(isinstance(each, list) for each in values)
    return [list(map(_text, row)) for row in (values if is_nested else [values])]


def _flat(attrs):
    """Return the attributes of a node by name, those of fused ops under names with dots."""
    flat = dict(attrs)
    for k, post_op in enumerate(flat.pop("post_ops", [])):
        flat.setdefault("post_ops", []).append(post_op["op"])
        flat.update({f"post_ops.{k}.{key}": post_op[key] for key in post_op if key != "op"})
    for each in flat.pop("dequantize", []):
        flat.update({f"dequantize.{each['input']}.{key}": each[key] for key in each})
    return flat


def in_version_1(graph):
    """Return a graph of version 2 in version 1: each attribute is rows of strings."""
    nodes = []
    for node in graph["nodes"]:
        attrs = {name: _rows(value) for name, value in _flat(node["attrs"]).items()}
        attrs["shape"] = [node["attrs"]["shape"]]
        if node["op"] == "kernel":
            attrs["num_inputs"] = str(len(node["inputs"]))
            attrs["num_outputs"] = str(len(node["attrs"]["shape"]))
        nodes.append({**node, "attrs": attrs})
    kept = {key: value for key, value in graph.items() if key != "format_version"}
    return {**kept, "nodes": nodes}
