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
"""The least numbers that open dimensions may be, with which more sizes are known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import tvm
from tvm import tirx

from ..backend import Analyzer, Dim, Size, dim_from, size_from, substituted, symbols_in

# Numbers that are tried for a dimension.
_MAX_STEPS = 4096


class LeastSizes:
    """The least number that each open dimension of a model may be, given that no tensor is empty.

    Parameters
    ----------
    sizes : Iterable[Size]
        The sizes of the inputs.
    known : Mapping[str, int]
        What is known of them from another import, by name.
    """

    def __init__(self, sizes: Iterable[Size] = (), known: Mapping[str, int] = MappingProxyType({})):
        self._symbols = {symbol.key: symbol for size in sizes for symbol in symbols_in(size)}
        least = ((key, known.get(each.native.name)) for key, each in self._symbols.items())
        self._least = {key: number for key, number in least if number is not None}
        self._seen: set[Dim] = set()
        self._undecided: list[Dim] = []

    def observe(self, size: Size) -> None:
        """Record the size of a tensor, which smaller numbers of its dimension make less than 1."""
        symbols = {*symbols_in(size)}
        if len(symbols) != 1 or size in self._seen:
            return
        self._seen.add(size)
        (symbol,) = symbols
        start = self._least.get(symbol.key, 1)
        for number in range(start, start + _MAX_STEPS) if symbol.key in self._symbols else ():
            if substituted(size, {symbol.key: number}) > 0:
                self._least[symbol.key] = number
                break

    def is_natural(self, size: Size) -> bool:
        """Whether a size is known not to be negative; one that is not is kept for `lacking`."""
        is_known = is_negative(size, 1, self._least) is False
        if not is_known:
            self._undecided.append(size)
        return is_known

    def lacking(self) -> dict[str, int]:
        """Return what would have decided a size, had it been known before, by name."""
        if not any(is_negative(size, 1, self._least) is False for size in self._undecided):
            return {}
        return {self._symbols[key].native.name: number for key, number in self._least.items()}


def is_negative(size: Size, least: int = 0, known: Mapping = MappingProxyType({})) -> bool | None:
    """Return whether a size is negative; None if it may be.

    Dimensions are at least `least`, or what is `known` by the key of their symbol.
    """
    if isinstance(size, int):
        return size < 0
    expression, analyzer = dim_from(size), Analyzer()
    for each in tirx.analysis.undefined_vars(expression):
        (symbol,) = symbols_in(size_from(each))
        first = known.get(symbol.key, least)
        analyzer.bind(each, tvm.ir.Range.from_min_extent(first, tirx.IntImm("int64", 2**40)))
    if analyzer.can_prove(expression >= 0):
        return False
    return True if analyzer.can_prove(expression < 0) else None
