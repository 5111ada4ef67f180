# SPDX-License-Identifier: Apache-2.0
"""Random Relay graphs, to compare oneDNN with TVM without it.

A graph is drawn step by step from the rows of `rows/`, of which each op has one: how its
operands and attributes are drawn, and how it is built. To add an op, add its row. Graphs are plain
data, so that one that fails can be made smaller (`shrinking`).
"""

from .draw import random_graph, single
from .fuzzing import fuzz, is_failure
from .graph import Graph, Step
from .judging import judge, replay
from .rows import ROWS

__all__ = [
    "ROWS",
    "Graph",
    "Step",
    "fuzz",
    "is_failure",
    "judge",
    "random_graph",
    "replay",
    "single",
]
