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
"""Attributes and inputs of ONNX nodes: one that a converter does not read is refused.

TVM's importer passes each converter, the plug-in's and its own, a dict and a list that note what is
read. Attributes that have their default may remain unread.
"""

from __future__ import annotations

import functools

import tvm
from tvm.contrib.onednn.frontend.attributes import Attributes

#: Inputs that may remain unread, by op: the region of a Resize that crops nothing, the ratio of a
#: Dropout that passes its input through, and lengths that other inputs have.
_INPUTS_WITHOUT_EFFECT = {"Dropout": {1, 2}, "Resize": {1}, "GroupQueryAttention": {5}}


def refuse(op: str, attr: dict, reason: str):
    """Raise the error of a node that cannot be imported.

    Parameters
    ----------
    op : str
        The ONNX op.
    attr : dict
        The attributes of the node, as the importer passes these.
    reason : str
        The attribute or input, and its value.
    """
    name = attr.get("tvm_custom", {}).get("name", "")
    where = f"ONNX {op}, node {name}" if name else f"ONNX {op}"
    raise tvm.error.OpAttributeUnImplemented(f"{where}: {reason} cannot be imported")


class Inputs(list):
    """The inputs of a node, None after the last one; notes which of them are read.

    Attributes
    ----------
    unread : set[int]
        The positions of those that were not read.
    """

    def __init__(self, values):
        super().__init__(values)
        self.unread = {number for number, value in enumerate(values) if value is not None}

    def __getitem__(self, item):
        if isinstance(item, slice):
            stop = len(self) if item.stop is None else item.stop
            return [self[number] for number in range(stop)[item]]
        self.unread.discard(item if item >= 0 else len(self) + item)
        return super().__getitem__(item) if item < len(self) else None

    def __iter__(self):
        self.unread.clear()
        return super().__iter__()

    def __add__(self, others):
        self.unread.clear()
        return super().__add__(others)


def refuse_unread(importer: type) -> type:
    """Let a class of TVM that imports ONNX graphs refuse what no converter reads."""
    convert = importer._convert_operator

    @functools.wraps(convert)
    def convert_operator(self, op_name, inputs, attrs, opset):
        if not isinstance(attrs, Attributes):  # of a subclass
            attrs = Attributes(attrs)
        inputs = Inputs(inputs)
        result = convert(self, op_name, inputs, attrs, opset)
        for number in sorted(inputs.unread - _INPUTS_WITHOUT_EFFECT.get(op_name, set())):
            refuse(op_name, attrs, f"the input {_input_name(op_name, number, opset)}")
        ignored = attrs.ignored(op_name, len(inputs), opset)
        if ignored:
            refuse(op_name, attrs, f"the attribute {ignored}")
        return result

    importer._convert_operator = convert_operator
    return importer


def _input_name(op: str, number: int, opset: int) -> str:
    """Return the name that the standard has for an input, or its number."""
    from onnx import defs

    try:
        return defs.get_schema(op, opset, "").inputs[number].name
    except (defs.SchemaError, IndexError):
        return str(number)
