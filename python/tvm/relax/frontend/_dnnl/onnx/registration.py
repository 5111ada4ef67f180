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
"""The registration of ONNX converters with TVM's importer."""

from __future__ import annotations

import functools
import importlib

from tvm.contrib.onednn import progress
from tvm.relax.frontend.onnx import onnx_frontend

from .attributes import refuse_unread

#: Files of this folder. `CONVERTERS` is a dict from ONNX ops to converters, `REPLACEMENTS` the
#: same for ops whose converter of TVM fails or returns wrong results; docs/onnx_importers.md tells.
_FAMILIES = (
    "attention",
    "blocked",
    "borders",
    "clip",
    "detection",
    "elementwise",
    "group_query_attention",
    "old_opsets",
    "partial_support",
    "quantized",
    "quantized_contrib",
    "quantized_matmul",
    "recurrent",
    "reductions",
    "resize",
    "rotary",
    "selections",
    "sequences",
    "squeeze",
    "training",
    "transformer",
)


@functools.cache
def register():
    """Let TVM's Relax importer use the converters for ops that it has none or a wrong one for.

    It also notes its progress.
    """
    families = [importlib.import_module(f".{name}", __package__) for name in _FAMILIES]
    converters, replacements = (
        {name: each for family in families for name, each in getattr(family, table, {}).items()}
        for table in ("CONVERTERS", "REPLACEMENTS")
    )
    progress.note_nodes(onnx_frontend.ONNXGraphImporter)
    refuse_unread(onnx_frontend.ONNXGraphImporter)
    own = onnx_frontend._get_convert_map
    # TVM's importer asks for it at each node.
    onnx_frontend._get_convert_map = functools.cache(
        lambda: {**converters, **own(), **replacements}
    )
