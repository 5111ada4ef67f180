# SPDX-License-Identifier: Apache-2.0
"""A plugin of pytest that keeps the graphs that the tests compile, for `./dev.py fuzz --artifacts`.

Each is in a file of its own in build/corpus, without what differs from run to run.

`python -m scripts.test.corpus` adds a few of them to the fixed graphs of `./dev.py fuzz --gate`.
"""

import hashlib
import json
import re
import shutil
import sys

from scripts.files import write_atomically
from scripts.layout import Layout

CREATE = "runtime.DNNLJSONRuntimeCreate"
# Networks are left out: what is damaged in them is damaged in small graphs, too, and sooner.
MOST_BYTES = 1 << 16


def name_of(text):
    """Return the name of the file of a graph."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def keep(symbol, text):
    """Write a graph, unless it is there."""
    if len(text) > MOST_BYTES:
        return
    # The symbol is a name, or a part of one: a test's `f` is not that of float32. On a line, as the
    # fixed graphs are: it has the same name there.
    text = re.sub(rf'(?<=["_]){re.escape(symbol)}(?=["_])', "main", text)
    text = json.dumps(json.loads(text), separators=(",", ":"))
    path = Layout().corpus / f"{name_of(text)}.json"
    if not path.exists():
        write_atomically(path, text, parents=True)


def pytest_collection_finish():
    """Stand between the codegen and the runtime, where the tests have loaded TVM."""
    tvm = sys.modules.get("tvm")
    create = tvm and tvm.get_global_func(CREATE, allow_missing=True)
    if not create:
        return
    Layout().corpus.mkdir(parents=True, exist_ok=True)

    @tvm.register_func(CREATE, override=True)
    def _(symbol, text, names):
        module = create(symbol, text, names)
        # Some tests damage graphs themselves. What is refused does not get here.
        keep(str(symbol), str(text))
        return module


def features(graph):
    """Return what of a graph may take a way of its own through the runtime.

    Of each kernel: the op with its types, with each attribute, such as that of what is fused to it,
    and with open dimensions; and each op that is fused.
    """
    nodes, seen = graph["nodes"], set()
    version = graph.get("format_version", 1)
    for node in nodes:
        if node["op"] != "kernel":
            continue
        attrs = node["attrs"]
        op = _first(attrs.get("root_op", node["name"]))
        dtypes = [
            _outputs(nodes[number], "dtype", version)[k] for number, k, *_ in node["inputs"][:1]
        ]
        seen.add((op, "from", *dtypes, "to", _outputs(node, "dtype", version)[0]))
        seen |= {(op, name) for name in attrs if "." not in name}
        seen |= {("fused", *names) for names in _fused(attrs.get("post_ops", []), version)}
        if any(-1 in shape for shape in _outputs(node, "shape", version)):
            seen.add((op, "open"))
    return seen if version == 1 else {(*feature, version) for feature in seen}


def _fused(post_ops, version):
    """Return the names of post-ops, alone and with each attribute; in version 1 alone."""
    if version == 1:
        return {(name,) for row in post_ops for name in row}
    # Tests make graphs that are refused later, in which it may be anything.
    post_ops = post_ops if isinstance(post_ops, list) else []
    objects = [each for each in post_ops if isinstance(each, dict)]
    return {(each["op"], *name) for each in objects if "op" in each for name in [(), *zip(each)]}


def _first(value):
    """Return an attribute without the lists that version 1 has around it."""
    return _first(value[0]) if isinstance(value, list) else value


def _outputs(node, key, version):
    """Return the shapes or types of the outputs of a node."""
    return node["attrs"][key][0] if version == 1 else node["attrs"][key]


def choose(graphs, known=()):
    """Return the graphs that have what none of `known` and none before them has, small ones first.

    Parameters
    ----------
    graphs, known : iterable of str
        The texts of graphs.
    """
    seen = set().union(*(features(json.loads(text)) for text in known))
    chosen = []
    for text in sorted(graphs, key=lambda text: (len(text), text)):
        new = features(json.loads(text)) - seen
        if new:
            seen |= new
            chosen.append(text)
    return chosen


def read_fixed(layout):
    """Return the texts of the fixed graphs: a line each."""
    return layout.gate_graphs.read_text(encoding="utf-8").splitlines()


def unpack(layout):
    """Write each fixed graph to a file named after its text; return the folder."""
    shutil.rmtree(layout.gate_corpus, ignore_errors=True)
    layout.gate_corpus.mkdir(parents=True)
    for text in read_fixed(layout):
        (layout.gate_corpus / f"{name_of(text)}.json").write_text(text, encoding="utf-8")
    return layout.gate_corpus


def main():
    """Add the graphs of build/corpus that have something new."""
    layout = Layout()
    fixed = read_fixed(layout) if layout.gate_graphs.exists() else []
    texts = [path.read_text("utf-8") for path in layout.corpus.glob("*.json")]
    lines = sorted({*fixed, *choose(texts, fixed)})
    write_atomically(layout.gate_graphs, "".join(f"{line}\n" for line in lines))
    print(f"{len(lines)} graphs, {len(lines) - len(fixed)} of them new")


if __name__ == "__main__":
    main()
