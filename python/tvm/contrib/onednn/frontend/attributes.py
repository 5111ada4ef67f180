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
"""The attributes of an ONNX node, which note what a converter reads."""

from __future__ import annotations

#: Attributes that do not change the results of inference: hints of opsets before 7, which broadcast
#: on request only, and the seed of a Dropout that passes its input through.
_WITHOUT_EFFECT = frozenset(
    {"broadcast", "consumed_inputs", "is_test", "output_sequence", "seed", "tvm_custom"}
)


class Attributes(dict):
    """The attributes of a node, as the importer passes these; notes which of them are read.

    Iteration, and so a copy, reads all of them.

    Attributes
    ----------
    unread : set[str]
        The names of those that were not read.
    """

    def __init__(self, values):
        super().__init__(values)
        self.unread = set(values)

    def __getitem__(self, name):
        self.unread.discard(name)
        return super().__getitem__(name)

    def get(self, name, default=None):
        """Return an attribute, or a default."""
        return self[name] if name in self else default

    def pop(self, name, *default):
        """Remove and return an attribute."""
        self.unread.discard(name)
        return super().pop(name, *default)

    def replaced(self, **values) -> Attributes:
        """Return a copy with other values, which notes here what is read of the rest."""
        self.unread -= values.keys()
        copy = Attributes({**dict(dict.items(self)), **values})
        copy.unread = self.unread
        return copy

    def __iter__(self):
        self.unread.clear()
        return super().__iter__()

    def items(self):
        """Return names and values."""
        self.unread.clear()
        return super().items()

    def ignored(self, op: str, inputs: int, opset: int) -> str | None:
        """Return an attribute that was not read and that changes the results.

        Parameters
        ----------
        op : str
            The ONNX op.
        inputs : int
            The number of inputs.
        opset : int
            The version of the standard domain.

        Returns
        -------
        text : str | None
            Its name and value; None if there is none.
        """
        for name in sorted(self.unread - _WITHOUT_EFFECT):
            value = dict.__getitem__(self, name)
            # The operands have the shape of a kernel and the size of a state, too.
            is_known = name in ("hidden_size", "kernel_shape") and inputs > 1
            if not is_known and not _is_default(op, name, value, opset):
                return f"{name}={value}"
        return None


def _is_default(op: str, name: str, value, opset: int) -> bool:
    """Whether a value is the default that the standard has for an attribute."""
    from onnx import defs, helper

    try:
        attribute = defs.get_schema(op, opset, "").attributes[name]
    except (defs.SchemaError, KeyError):  # an op or attribute of another domain
        return False
    if not attribute.default_value.name:
        return False
    default = helper.get_attribute_value(attribute.default_value)
    return (tuple(default) if isinstance(default, list) else default) == value
