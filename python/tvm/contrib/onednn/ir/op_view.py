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
"""Describes an op to the rules: operands, results and attributes, independent of the IR.

The nodes of a graph are such descriptions, see `ir/node.py`. Ops and attributes have the names
of the table, which are Relay's, and operands Relay's order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Union

import numpy as np

from .dim import Dim, Size
from .op import attributes_of


class Tensor:
    """A tensor that an op reads or writes.

    Parameters
    ----------
    dims : tuple[int | Dim | None, ...]
        The dimensions: a `Dim` for an open one, None where nothing is known of it.
    dtype : str
        The type of the elements, such as "float32", "bfloat16", "int8" or "bool".
    value : numpy.ndarray | Callable[[], numpy.ndarray] | None
        The value of a constant, or what reads it when it is asked for; None for other tensors.
        bfloat16 is that of `ml_dtypes`.

    Attributes
    ----------
    shape : tuple[int | None, ...]
        The dimensions, None for each open one. Two open ones in one place of two shapes count as
        the same here: the runtime checks in each call whether they are.
    """

    __slots__ = ("dims", "shape", "dtype", "_value")

    def __init__(
        self,
        dims: tuple[Size, ...],
        dtype: str,
        value: np.ndarray | Callable[[], np.ndarray] | None = None,
    ):
        self.dims, self.dtype, self._value = dims, dtype, value
        self.shape = tuple(None if isinstance(dim, Dim) else dim for dim in dims)

    @property
    def is_constant(self) -> bool:
        """Whether the value is known; to ask does not read it."""
        return self._value is not None

    @property
    def value(self) -> np.ndarray | None:
        """The value of a constant, None for other tensors; a large one may be copied each time."""
        return self._value() if callable(self._value) else self._value


@dataclass(frozen=True)
class NoTensor:
    """An operand or a result that is neither a tensor nor a tuple of tensors given one by one.

    Parameters
    ----------
    kind : str
        What messages call its type, such as "TupleType" for the tuple that another call returns.
    """

    kind: str


# An operand or a result: a tuple has tensors that are given one by one, as to
# concatenate.
Value = Union[Tensor, tuple[Tensor, ...], NoTensor]


def tensor_of(value: Value) -> Tensor:
    """Return an operand or a result that is a tensor.

    Raises
    ------
    TypeError
        It is a tuple, or nothing that a view knows.
    """
    if not isinstance(value, Tensor):
        raise TypeError(f"{value} is no tensor")
    return value


class OpView:
    """A call of an op, as rules see it.

    Rules remember what they said of a view, so two of one call should be equal, or the same object.
    A reader may derive from this class to read what is asked for only.

    Parameters
    ----------
    name : str
        The op in the table: Relay's name, or that of a virtual op, which starts with "dnnl.".
    args : Sequence[Value]
        The operands, in Relay's order.
    results : tuple[Value, ...]
        The result, or those of an op that returns a tuple.
    attrs : object | Callable[[], object]
        The attributes by Relay's names, or what reads them when they are asked for. Those that the
        row of the op declares are read in their types; of these, one with a default may be missing.
    arg_names : Sequence[str] | None
        What messages call each operand, such as "data"; None for "argument 0" and so on.
    returns_tuple : bool
        Whether the op returns a tuple, perhaps of one tensor.
    """

    name: str

    # Whether TVM can tell the shape of the results where that is open.
    has_shape_function: bool = True

    # Whether the attributes have been read.
    _is_read: bool = False

    # Another number where the operands have changed.
    version: int = 0

    def __init__(
        self,
        name: str,
        args: Sequence[Value],
        results: tuple[Value, ...],
        attrs: object | Callable[[], object] = None,
        arg_names: Sequence[str] | None = None,
        returns_tuple: bool = False,
    ):
        self.name, self._args, self._results, self._attrs = name, args, results, attrs
        self._names = arg_names or [f"argument {i}" for i in range(len(args))]
        self._returns_tuple = returns_tuple

    @property
    def args(self) -> Sequence[Value]:
        """The operands."""
        return self._args

    @property
    def results(self) -> tuple[Value, ...]:
        """The result, or those of an op that returns a tuple."""
        return self._results

    @property
    def arg_names(self) -> Sequence[str]:
        """What messages call each operand."""
        return self._names

    @property
    def returns_tuple(self) -> bool:
        """Whether the op returns a tuple, perhaps of one tensor."""
        return self._returns_tuple

    @property
    def attrs(self) -> Any:
        """The attributes."""
        if not self._is_read:
            given = self._attrs() if callable(self._attrs) else self._attrs
            self._attrs, self._is_read = self._declared(given), True
        return self._attrs

    def _declared(self, given: object) -> object:
        """Return attributes as the row of the op declares them."""
        return attributes_of(self.name, given)

    def is_filled(self, k: int, axis: int) -> bool | None:
        """Whether tensor `k` of the first operand has elements along an axis in each run.

        The first operand is a tuple, or one tensor, of which `k` is 0.

        Returns
        -------
        is_filled : bool | None
            None for one that may be empty, but is not computed by an op of the table. False also
            for one of which nothing is known.
        """
        return False

    @property
    def result(self) -> Value:
        """The only result, or the first."""
        return self.results[0]
