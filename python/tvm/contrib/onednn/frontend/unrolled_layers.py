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
"""Tells reports which recurrent layers of a model an importer unrolls, and why."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

_notes: ContextVar[dict[str, None] | None] = ContextVar("notes", default=None)


def note(op: str, node: str, reason: str) -> None:
    """Note that a layer is imported as the ops of its steps.

    Parameters
    ----------
    op, node : str
        ONNX's op, and the name of the node.
    reason : str
        Why it is not one op.
    """
    notes = _notes.get()
    if notes is not None:
        # Once, though an importer may convert a node twice.
        notes[f"{op} {node}".rstrip() + f": {reason}"] = None


@contextlib.contextmanager
def noted() -> Iterator[dict[str, None]]:
    """Return what is noted in a block, for `Record.unrolled`."""
    notes: dict[str, None] = {}
    token = _notes.set(notes)
    try:
        yield notes
    finally:
        _notes.reset(token)
