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
