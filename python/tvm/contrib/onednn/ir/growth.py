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
"""Bounds the memory that constant folding takes."""

from __future__ import annotations

from collections.abc import Iterable

# What may be added to a model in any case, in bytes.
_LEAST = 2**26


class Growth:
    """By how much folded constants may be larger in total than what they are computed from.

    A fold that makes a constant smaller, or as large, is free: such a chain of any length takes the
    memory of two of its constants. Without a bound, each of 45 concatenations of a constant with
    itself would double it.

    Parameters
    ----------
    own : int
        The bytes of the model's own constants: they may double.
    """

    def __init__(self, own: int = 0):
        self._left = _LEAST + own

    def admits(self, result: int, operands: Iterable[tuple[object, int]]) -> bool:
        """Whether a result may be folded; if so, it counts.

        Parameters
        ----------
        result : int
            Its bytes.
        operands : Iterable[tuple[object, int]]
            What identifies each operand, and its bytes. One that is read several times counts once.
        """
        added = max(result - sum(dict(operands).values()), 0)
        if added > self._left:
            return False
        self._left -= added
        return True
