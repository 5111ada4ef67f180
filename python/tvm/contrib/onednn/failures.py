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
"""Steps of the partitioner that raised: a warning each, and a line of the report."""

from __future__ import annotations

import warnings


class PartitionWarning(UserWarning):
    """A function, or an op of it, was left as it was because a pass could not cope with it."""


class PartitionError(RuntimeError):
    """What is a `PartitionWarning` without the option `strict`."""


def add_failure(failures: dict[str, str], function: str, reason: str) -> None:
    """Add a reason to the failures by function, once."""
    known = failures.get(function, "")
    if reason not in known:
        failures[function] = f"{known}; {reason}" if known else reason


def note_failure(
    failures: dict[str, str],
    function: str,
    what: str,
    error: Exception,
    stacklevel: int,
    strict: bool = False,
) -> None:
    """Warn that a step failed, and add that to the failures by function, once.

    Parameters
    ----------
    failures : dict[str, str]
        By function: why it, or an op of it, was left as it was.
    function, what : str
        The names of the function, and of the step, perhaps with the op that it failed at.
    error : Exception
        What the step raised.
    stacklevel : int
        Of the warning, counted from the caller.
    strict : bool
        Whether to raise instead.

    Raises
    ------
    PartitionError
        With `strict`; its cause is the error.
    """
    if strict and isinstance(error, PartitionError):
        raise error
    reason = f"{what} failed: {message_of(error)}"
    text = f"oneDNN: function {function}: {reason}"
    if strict:
        raise PartitionError(text) from error
    if reason not in failures.get(function, ""):
        add_failure(failures, function, reason)
        warnings.warn(text, PartitionWarning, stacklevel=stacklevel + 1)


def message_of(error: Exception) -> str:
    """Return the last line of an error, which follows TVM's backtrace; its type if it has none."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
