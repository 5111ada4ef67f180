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
"""Ways to damage a JSON graph, and what the error of each must say. They know no TVM.

The graph has an input x as node 0, a convolution as its first kernel, and three constants.
"""

import json

# Each changes the parsed graph. In it node 0 is the input x; kernel() is the convolution.


def index(graph, op):
    """Return the number of the first node of a kind, or of a name."""
    nodes = enumerate(graph["nodes"])
    return next(i for i, node in nodes if op in (node["op"], node["name"]))


def kernel(graph):
    return graph["nodes"][index(graph, "kernel")]


def const(graph):
    return graph["nodes"][index(graph, "const")]


def put(where, key, value):
    """Return a change that sets where(graph)[key] to a value."""
    return lambda graph: where(graph).__setitem__(key, value)


def drop(where, key):
    """Return a change that removes where(graph)[key]."""
    return lambda graph: where(graph).pop(key)


def top(graph):
    return graph


def attrs(graph):
    return kernel(graph)["attrs"]


def node(number):
    return lambda graph: graph["nodes"][number]


def use_last_node_as_input(graph):
    kernel(graph)["inputs"][0] = [len(graph["nodes"]) - 1, 0, 0]


def use_itself_as_input(graph):
    kernel(graph)["inputs"][0] = [index(graph, "kernel"), 0, 0]


def name_a_head_behind_the_end(graph):
    graph["heads"][0] = [len(graph["nodes"]), 0, 0]


def name_a_kernel_as_argument(graph):
    graph["arg_nodes"].append(index(graph, "kernel"))


def name_an_argument_twice(graph):
    graph["arg_nodes"].append(graph["arg_nodes"][0])


def name_two_constants_alike(graph):
    first, second = [n for n in graph["nodes"] if n["op"] == "const"][:2]
    second["name"] = first["name"]


MUTATIONS = {
    # The top object.
    "no-nodes-key": (drop(top, "nodes"), '"nodes" is missing'),
    "no-arg-nodes": (drop(top, "arg_nodes"), '"arg_nodes" is missing'),
    "no-heads-key": (drop(top, "heads"), '"heads" is missing'),
    "no-row-ptr": (drop(top, "node_row_ptr"), '"node_row_ptr" is missing'),
    "unknown-key": (put(top, "extra", 1), 'Unknown key "extra"'),
    "newer-format": (put(top, "format_version", 3), "reads only versions 1 and 2"),
    "format-text": (put(top, "format_version", "2"), "cannot be read"),
    "older-format": (drop(top, "format_version"), "cannot be read"),
    "nodes-object": (put(top, "nodes", {}), "cannot be read"),
    "nodes-null": (put(top, "nodes", None), "cannot be read"),
    "nodes-empty": (put(top, "nodes", []), "no nodes"),
    "symbol-number": (put(top, "symbol", 1), "cannot be read"),
    # Nodes.
    "unknown-type": (put(kernel, "op", "kernal"), "input, const or kernel"),
    "type-number": (put(kernel, "op", 3), "cannot be read"),
    "no-name": (drop(kernel, "name"), 'no "name"'),
    "no-attrs": (drop(kernel, "attrs"), 'no "attrs"'),
    "unknown-node-key": (put(kernel, "hidden", 1), 'Unknown key "hidden"'),
    "input-later-node": (use_last_node_as_input, "earlier node"),
    "input-itself": (use_itself_as_input, "earlier node"),
    "input-huge": (put(kernel, "inputs", [[2**32 - 1, 0, 0]] * 3), "earlier node"),
    "input-overflow": (put(kernel, "inputs", [[2**32, 0, 0]] * 3), "not a 32 bit index"),
    "input-negative": (put(kernel, "inputs", [[-1, 0, 0]] * 3), "not a 32 bit index"),
    "input-no-output": (put(kernel, "inputs", [[0, 1, 0]] * 3), "does not have"),
    "input-short": (put(kernel, "inputs", [[0]] * 3), "node, index, version"),
    "input-text": (put(kernel, "inputs", ["0"] * 3), "cannot be read"),
    "leaf-with-inputs": (put(node(1), "inputs", [[0, 0, 0]]), "only a kernel"),
    # Counts, shapes and types.
    "outputs-none": (put(attrs, "shape", []), '"num_outputs" is 0'),
    "outputs-many": (put(attrs, "shape", [[1]] * 70_000), '"num_outputs" is 70000'),
    "outputs-two": (put(attrs, "shape", [[1], [1]]), "one type for each output"),
    "no-shape": (drop(attrs, "shape"), "no attribute 'shape'"),
    "no-dtype": (drop(attrs, "dtype"), "no attribute 'dtype'"),
    "shape-flat": (put(attrs, "shape", [1, 8, 6, 6]), "a shape for each output"),
    "shape-deep": (put(attrs, "shape", [[[1, 8, 6, 6]]]), "a shape for each output"),
    "shape-strings": (put(attrs, "shape", [["1", "8"]]), "a shape for each output"),
    "shape-fraction": (put(attrs, "shape", [[1.5, 8, 6, 6]]), "a shape for each output"),
    "shape-negative": (put(attrs, "shape", [[1, -8, 6, 6]]), "a dimension must be"),
    "shape-product": (put(attrs, "shape", [[2**31, 2**31, 2**31]]), "64 bits"),
    "shape-number": (put(attrs, "shape", [[2**64]]), "cannot be read"),
    "shape-rank": (put(attrs, "shape", [[1] * 1000]), "too many dimensions"),
    "dtype-unknown": (put(attrs, "dtype", ["flaot32"]), "unknown type 'flaot32'"),
    "dtype-wraps": (put(attrs, "dtype", ["float288"]), "unknown type 'float288'"),
    "dtype-open": (put(attrs, "dtype", ["custom["]), "unknown type"),
    "dtype-two": (put(attrs, "dtype", ["float32", "float32"]), "one type for each output"),
    "attr-deep": (put(attrs, "groups", json.loads("[" * 20 + "]" * 20)), "nested too deep"),
    "attr-nan": (put(attrs, "groups", float("nan")), "cannot be read"),
    # Tables.
    "arg-node-kernel": (name_a_kernel_as_argument, 'in "arg_nodes", but is a kernel'),
    "arg-node-twice": (name_an_argument_twice, 'twice in "arg_nodes"'),
    "arg-node-missing": (put(top, "arg_nodes", [0]), 'is not in "arg_nodes"'),
    "arg-node-huge": (put(top, "arg_nodes", [10**6]), "not there"),
    "arg-node-negative": (put(top, "arg_nodes", [-1]), "not a 32 bit index"),
    "heads-empty": (put(top, "heads", []), "no heads"),
    "head-behind-end": (name_a_head_behind_the_end, "a head refers to a node that does not exist"),
    "head-no-output": (put(top, "heads", [[0, 5, 0]]), "a head names output 5"),
    "row-ptr-short": (put(top, "node_row_ptr", [0, 1]), '"node_row_ptr" must have'),
    "row-ptr-wrong": (lambda g: g["node_row_ptr"].__setitem__(-1, 99), '"node_row_ptr" does not'),
    # Constants.
    "const-renamed": (put(const, "name", "other"), "no constant of this name"),
    "const-twice": (name_two_constants_alike, "another node is the same constant"),
    "const-is-input": (put(const, "op", "input"), "no node uses the constant"),
    "input-is-const": (put(node(0), "op", "const"), "no constant of this name"),
}

TEXTS = {
    "empty": lambda text: "",
    "space": lambda text: " \n",
    "null": lambda text: "null",
    "half": lambda text: text[: len(text) // 2],
    "last-brace-missing": lambda text: text.rstrip()[:-1],
    "two-graphs": lambda text: text + text,
    "not-ascii": lambda text: text.replace('"symbol"', '"sÿmbol"', 1),
    "trailing-brace": lambda text: text + "}",
    "duplicate-key": lambda text: text.replace('"heads"', '"heads": [[0, 0, 0]], "heads"', 1),
    "open-brackets": lambda text: "[" * 1_000_000,
    "open-braces": lambda text: '{"nodes":' * 1_000_000,
    "deep-attribute": lambda text: text.replace("[[", "[" * 1_000_000, 1),
    "deep-object": lambda text: text.replace('"attrs": {', '"attrs": ' + '{"a":' * 1_000_000, 1),
    "endless-string": lambda text: '{"symbol": "' + "a" * 1_000_000,
}

# By id: the names of the constants that are passed, from those of the graph, and the error.
NAMES = {
    "none": (lambda names: [], "no constant of this name"),
    "others": (lambda names: ["a", "b", "c"], "no constant of this name"),
    "fewer": (lambda names: names[:2], "no constant of this name"),
    "more": (lambda names: names + ["more"], "no node uses the constant 'more'"),
    "twice": (lambda names: names + names[:1], "listed twice"),
}
