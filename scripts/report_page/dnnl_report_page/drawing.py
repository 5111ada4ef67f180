# SPDX-License-Identifier: Apache-2.0
"""Draws the nodes of a report: Graphviz's language, and its layout as SVG."""

from __future__ import annotations

import html
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tvm.contrib.onednn.report.offload_report import Node

# Graphviz itself, or a program that draws the same and comes from the Python package index.
PROGRAMS = ("dot", "graphviz-pure")
REMEDY = (
    "run `pip install graphviz graphviz-pure`; instead of the second, a `dot` program of your "
    "system will do (`apt-get install graphviz`)"
)
_WIDTH = 34  # characters of a line in a box
# Browsers take another font where this one is missing, with letters of about the same width.
_FONT = "Arial"
_LAYOUT = {"rankdir": "TB", "nodesep": "0.25", "ranksep": "0.32", "fontname": _FONT}
_BOX = {
    "shape": "box",
    "style": "filled,rounded",
    "fontname": _FONT,
    "fontsize": "12",
    "margin": "0.3,0.16",
}
_STYLE = {
    "dnnl": {"fillcolor": "#dbeafe", "color": "#1d4ed8"},
    # Dashed: colour alone says nothing to who cannot see it.
    "tvm": {
        "fillcolor": "#fef3c7",
        "color": "#b45309",
        "style": "filled,rounded,dashed",
        "penwidth": "1.6",
    },
    "input": {"fillcolor": "#ffffff", "color": "#64748b", "shape": "ellipse", "margin": "0.1,0.02"},
    "output": {
        "fillcolor": "#ffffff",
        "color": "#64748b",
        "shape": "ellipse",
        "margin": "0.1,0.02",
    },
}
_PARTITION = {
    "style": "filled,rounded",
    "fillcolor": "#eff6ff",
    "color": "#93c5fd",
    "fontname": _FONT,
    "fontsize": "11",
    "fontcolor": "#1e40af",
    "labeljust": "l",
    "margin": "10",
}


def short_name(name: str) -> str:
    """Return the name of a Relay op without its namespace."""
    return name.removeprefix("nn.").removeprefix("dnnl.")


def title_of(node: Node) -> str:
    """Say in one line what a node computes."""
    if node.kind in ("input", "output"):
        return node.name
    return " + ".join(short_name(op) for op in node.ops) or node.name


def _lines(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, break_long_words=True) or [""]


def _label(node: Node) -> str:
    """Write a label: what it computes, then in a smaller font its attributes, shape and reason."""
    small = []
    if node.details:
        small += _lines(node.details)
    if node.shape:
        small += _lines(node.shape)
    text = "<br/>".join(html.escape(line) for line in _lines(title_of(node)))
    if node.kind in ("dnnl", "tvm"):
        text = f"<b>{text}</b>"
    for line in small:
        text += f'<br/><font point-size="10" color="#475569">{html.escape(line)}</font>'
    for line in _lines(node.reason) if node.reason else ():
        text += f'<br/><font point-size="10" color="#9a3412">{html.escape(line)}</font>'
    return f"<{text}>"


def partitions_of(nodes: Iterable[Node]) -> list[str]:
    """Return the names of the partitions in the order of evaluation."""
    return list(dict.fromkeys(node.partition for node in nodes if node.partition))


def dot_source(nodes: list[Node]) -> str:
    """Write the nodes in Graphviz's language.

    The first node has the id "node0" in the drawing, the first partition "partition0".
    """
    try:
        import graphviz  # pylint: disable=import-outside-toplevel
    except ImportError:
        raise RuntimeError(f"drawing needs the Python package graphviz: {REMEDY}") from None

    graph = graphviz.Digraph(graph_attr=_LAYOUT, node_attr=_BOX)
    graph.attr("edge", color="#64748b", arrowsize="0.6")

    def add(where, i):
        node = nodes[i]
        style = {**_STYLE[node.kind], "id": f"node{i}", "class": node.kind}
        where.node(str(i), _label(node), tooltip=" ", **style)

    for number, name in enumerate(partitions_of(nodes)):
        inside = [i for i, node in enumerate(nodes) if node.partition == name]
        with graph.subgraph(name=f"cluster_{number}") as cluster:
            cluster.attr(
                label=f"\N{NO-BREAK SPACE}partition {number + 1}",  # not at the frame itself
                id=f"partition{number}",
                tooltip=name,
                **_PARTITION,
            )
            for i in inside:
                add(cluster, i)
    for i, node in enumerate(nodes):
        if node.partition is None:
            add(graph, i)
    for i, node in enumerate(nodes):
        for source in node.inputs:
            graph.edge(str(source), str(i))
    return graph.source


def find_program() -> str:
    """Return the path of a program that lays out graphs; raise RuntimeError if there is none."""
    beside = Path(sys.executable).parent
    for name in PROGRAMS:
        program = shutil.which(name) or shutil.which(name, path=str(beside))
        if program:
            return program
    raise RuntimeError(f"drawing needs Graphviz, and there is no {' or '.join(PROGRAMS)}: {REMEDY}")


def svg(nodes: list[Node]) -> str:
    """Draw the nodes; return an SVG element, or raise RuntimeError if Graphviz fails."""
    source = dot_source(nodes)
    program = find_program()
    done = subprocess.run(
        [program, "-Tsvg"], input=source.encode(), capture_output=True, check=False
    )
    text = done.stdout.decode()
    if done.returncode or "<svg" not in text:
        raise RuntimeError(f"{program} failed: {done.stderr.decode(errors='replace').strip()}")
    return text[text.index("<svg") :]
