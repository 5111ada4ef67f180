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
"""Damage the JSON graph of a small DNNL module at random and use what still loads.

``python -m dnnl_tests.runtime.damage text|tree SEED ROUNDS`` prints how many graphs gave an error
and how many a module. It runs in a process of its own: a crash ends that process, and the test sees
it.
"""

import copy
import json
import random
import resource
import sys

import numpy as np
import tvm

from dnnl_tests import small_graph as small

ALPHABET = '{}[]",:0123456789-+.eE\\ \n\x00nulltruefalse\x7f'
VALUES = [
    *(-1, 0, 1, 2, 3, 7, 1.5, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, -(2**63), 10**30),
    *("", "0", "1", "-1", "4294967296", "1e400", "nan", "kernel", "const", "input", "int8"),
    *("float64", "NCHW", "nn.relu", "nn.dense", "add", "custom[", "x" * 10000),
    *(None, True, [], [[]], [[[]]], {}, [0], [0, 0, 0], [[0, 0, 0]], [["1"]], [[[1, 2]]]),
]


def damage_text(text, rng):
    """Change, remove, insert or repeat bytes at a few positions."""
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(text))
        start = rng.randrange(len(text))
        action = rng.choice(["change", "remove", "insert", "repeat"])
        before, after = text[:at], text[at:]
        if action == "change":
            text = before + rng.choice(ALPHABET) + after[1:]
        elif action == "remove":
            text = before + after[rng.randint(1, 9) :]
        elif action == "insert":
            text = before + rng.choice(ALPHABET) + after
        else:
            text = before + text[start : start + rng.randint(1, 80)] + after
    return text


def positions(value):
    """Return (container, key) of every value inside a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    result = []
    for key, item in list(items) if isinstance(value, (dict, list)) else []:
        result.append((value, key))
        if isinstance(item, (dict, list)):
            result.extend(positions(item))
    return result


def damage_tree(text, rng):
    """Replace, remove, repeat or exchange values; the result is always JSON."""
    graph = json.loads(text)
    for _ in range(rng.randint(1, 3)):
        container, key = rng.choice(positions(graph))
        other, other_key = rng.choice(positions(graph))
        action = rng.choice(["replace", "replace", "remove", "repeat", "copy"])
        if action == "replace":
            container[key] = copy.deepcopy(rng.choice(VALUES))
        elif action == "remove":
            del container[key]
        elif action == "repeat" and isinstance(container, list):
            container.insert(key, copy.deepcopy(container[key]))
        else:
            container[key] = copy.deepcopy(other[other_key])
        if not positions(graph):
            break
    return json.dumps(graph)


def tensors(graph, nodes):
    """Return a tensor for each output of some nodes, or None if numpy has no such small one."""
    result = []
    for node in nodes:
        attrs = graph["nodes"][node]["attrs"]
        for shape, dtype in zip(attrs["shape"][0], attrs["dtype"][0]):
            if np.prod([float(dim) for dim in shape]) > 1e5 or min(shape, default=1) < 0:
                return None
            try:
                result.append(tvm.nd.array(np.ones(shape, dtype)))
            except TypeError:  # For example a vector type.
                return None
    return result


def use(module, text):
    """Initialise a module and call it, as far as its graph names small tensors."""
    try:
        graph = json.loads(text)
    except ValueError:  # TVM's reader takes a few things more than Python's, as the number 01.
        return
    symbol = small.parts()[0]
    kinds = [node["op"] for node in graph["nodes"]]
    by_name = {graph["nodes"][i]["name"]: i for i in graph["arg_nodes"] if kinds[i] == "const"}
    consts = tensors(graph, [by_name[name] for name in small.parts()[2]])
    inputs = tensors(graph, [i for i in graph["arg_nodes"] if kinds[i] == "input"])
    outputs = []
    for head in graph["heads"]:
        values = tensors(graph, [head[0]])
        outputs.append(values and values[head[1]])
    if consts is None:
        return
    module.get_function("__init_" + symbol)(consts)
    if inputs is not None and None not in outputs:
        module.get_function(symbol)(*inputs, *outputs)


def main(kind, seed, rounds):
    """Run `rounds` rounds and print the counts."""
    # What a damaged number makes us allocate shall fail, not take the machine's memory.
    limit = 16 << 30
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    rng = random.Random(seed)
    damage = {"text": damage_text, "tree": damage_tree}[kind]
    counts = {"error": 0, "module": 0, "used": 0}
    for number in range(rounds):
        text = damage(small.parts()[1], rng)
        print(f"round {number}", file=sys.stderr)
        try:
            module = small.create(text)
        except tvm.TVMError:
            counts["error"] += 1
            continue
        counts["module"] += 1
        try:
            use(module, text)
            counts["used"] += 1
        except tvm.TVMError:
            pass
    print(json.dumps(counts))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
