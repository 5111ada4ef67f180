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
"""What an op's row draws random calls with: shapes, values and axes.

The calls have no TVM: tests of both TVMs and of the runtime write them as their own.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple, Union

import numpy as np

from ..ir.numpy_types import Array
from ..ir.op_view import Tensor
from .windows import SPATIAL

SIZES = (1, 1, 2, 2, 3, 4, 4, 5, 6, 7)


class Call(NamedTuple):
    """The values of the operands, a list for a tuple, and the attributes."""

    values: list[Union[Array, list[Array]]]
    attrs: dict[str, Any]

    def types(self, opened: Iterable[tuple[int, Any]] = ()) -> list:
        """Return the types of the operands, with what a dictionary has in the place of sizes."""

        def type_of(value):
            if isinstance(value, list):
                return tuple(map(type_of, value))
            sizes = dict(opened)
            return Tensor(tuple(sizes.get(n, n) for n in value.shape), str(value.dtype))

        return [type_of(value) for value in self.values]


class Draw:
    """What an op is drawn with; the same seed draws the same.

    Parameters
    ----------
    seed : int
        The seed of all choices.
    edges : bool
        Whether to draw what rules refuse or numpy has no result of, too.
    """

    def __init__(self, seed: int, edges: bool = False):
        self.random, self.numbers = random.Random(seed), np.random.default_rng(seed)
        self.edges = edges

    def choice(self, items: Collection) -> Any:
        """Return one of the items."""
        return self.random.choice(list(items))

    def rare(self, *items: Any) -> tuple:
        """Return the items at times if those at the edges are drawn; else none."""
        return items if self.edges and self.chance(0.4) else ()

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return self.random.random() < probability

    def integer(self, low: int, high: int) -> int:
        """Return an integer from low to high, both included."""
        return self.random.randint(low, high)

    def shape(self, *ranks: int) -> list[int]:
        """Return a shape, at times of ones and equal sizes."""
        shape = [self.choice(SIZES) for _ in range(self.choice(ranks or range(1, 6)))]
        return [self.choice((1, shape[0])) for _ in shape] if shape and self.chance(0.2) else shape

    def any_shape(self) -> list[int]:
        """Return the shape of data of elementwise ops."""
        return self.shape(*range(1 - self.edges, 6 + self.edges))

    def values(self, shape: Sequence[int]) -> Array:
        """Return positive values, which every function accepts."""
        return np.asarray(self.numbers.uniform(0.5, 1.5, shape), "float32")

    def axis(self, shape: Sequence[int]) -> int:
        """Return an axis, maybe from the end."""
        return self.integer(-len(shape), len(shape) - 1)

    def axes(self, shape: Sequence[int], least: int = 0) -> list[int]:
        """Return some axes."""
        picked = self.random.sample(range(len(shape)), self.integer(least, len(shape)))
        return [axis - len(shape) * self.integer(0, 1) for axis in picked]

    def groups(self, channels: int) -> int:
        """Return a number of groups of channels of one size."""
        return self.choice([n for n in range(1, channels + 1) if channels % n == 0])

    def features(self) -> int:
        """Return a number of output channels, of each group where there are groups."""
        return self.choice((1, 2, 3))

    def image(self, n: int) -> tuple[dict[str, int], str]:
        """Return sizes by letter, and a layout."""
        least = self.choice((4, *self.rare(0)))
        sizes = {letter: self.choice(SIZES) + least for letter in SPATIAL[-n:]}
        sizes.update(N=self.choice((1, 2)), C=self.choice((2, 4, 6, *self.rare(1))))
        return sizes, self.choice((f"NC{SPATIAL[-n:]}", f"N{SPATIAL[-n:]}C"))

    def laid_out(self, n: int) -> tuple[Array, str]:
        """Return an image of n spatial axes, and its layout."""
        sizes, layout = self.image(n)
        return self.values([sizes[letter] for letter in layout]), layout

    def broadcast(self, shape: Sequence[int]) -> list[int]:
        """Return a shape that is broadcast to another one."""
        sizes = [self.choice((n, n, 1)) for n in shape]
        return sizes[min(len(shape), self.choice((0, 0, 1, *self.rare(2)))) :]

    def window(self, n: int) -> dict[str, list[int]]:
        """Return strides, padding and dilation of n spatial axes."""
        return dict(
            strides=[self.choice((1, 1, 2, 3, *self.rare(4))) for _ in range(n)],
            padding=[
                self.choice((0, 0, 1, *self.rare(2))) for _ in range(self.choice((1, n, 2 * n)))
            ],
            dilation=[self.choice((1, 1, 2)) for _ in range(n)],
        )


def unary(**attrs: Sequence) -> Callable[[Draw], Call]:
    """Return what draws data of any rank, and each attribute from a few values."""
    return lambda d: Call([d.values(d.any_shape())], {k: d.choice(v) for k, v in attrs.items()})


def shaped(*ranks: int) -> Callable[[Draw], Call]:
    """Return what draws data of these ranks, and no attributes."""
    return lambda d: Call([d.values(d.shape(*ranks))], {})


def broadcast_operands(d: Draw) -> Call:
    """Draw two operands that are broadcast to one shape."""
    shape = d.any_shape()
    return Call([d.values(d.broadcast(shape)) for _ in "lr"], {})


def along_axis(d: Draw) -> Call:
    """Draw data, and a parameter for each item of an axis."""
    shape = d.shape()
    axis = d.axis(shape)
    return Call([d.values(shape), d.values([shape[axis]])], {"axis": axis})


def drawn(row: Any, count: int = 40) -> Iterable[Call]:
    """Yield some calls of a row's op."""
    for seed in range(count):
        yield row.draw(Draw(seed))
