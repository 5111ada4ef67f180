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
"""Values of a model's inputs: those that are given, and drawn ones for the others."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple, Optional, Union

import ml_dtypes
import numpy as np

from ..ops.tensors import EIGHT_BITS
from .check import CannotRun
from .compare import EPSILON

#: Sizes of open dimensions: of the first axis, and of the others.
SIZES = 2, 8
#: Those of others, in the order in which they are tried: an image may have to be larger.
TRIED = SIZES[1], 64, 256
_MOST_INTEGER = 2
_MOST_OF_8_BITS = 100


class Spec(NamedTuple):
    """The type of an input.

    Parameters
    ----------
    dtype : str
        The name of its type.
    dims : tuple
        The size of each dimension, or what tells open dimensions apart. None is an open one that
        is equal to no other.
    """

    dtype: str
    dims: tuple[Optional[Union[int, Hashable]], ...]


def input_values(
    specs: Mapping[str, Spec | None],
    given: Mapping[str, np.ndarray] | Sequence[np.ndarray] | None,
    bound: Callable[[str], int | None] = lambda name: None,
    size: int = SIZES[1],
) -> dict[str, np.ndarray]:
    """Return the values of all inputs by name.

    Parameters
    ----------
    specs : Mapping[str, Spec | None]
        The inputs, in order; None for one that is no tensor of a known rank.
    given : Mapping[str, numpy.ndarray] | Sequence[numpy.ndarray] | None
        Values by name or in order. Others are drawn: normal numbers and small integers; masks are
        one, and positions count up.
    bound : Callable[[str], int | None]
        Below what an integer of an input must be; None for no bound.
    size : int
        That of open dimensions other than the first.

    Raises
    ------
    CannotRun
        Nothing can be drawn for an input.
    TypeError, ValueError
        There is no such input, or a value has another shape or dtype.
    """
    names = [*specs]
    if given is not None and not isinstance(given, Mapping):
        if len(given) != len(names):
            raise ValueError(f"{len(given)} inputs are passed for {len(names)}: {_text(names)}")
        given = dict(zip(names, given))
    values = {name: np.asarray(value) for name, value in (given or {}).items()}
    unknown = sorted(map(str, values.keys() - set(names)))
    if unknown:
        raise ValueError(f"there is no input {unknown[0]}; the inputs are: {_text(names)}")
    sizes: dict[Hashable, int] = {}
    for name, value in values.items():
        if (spec := specs[name]) is not None:
            _check(name, value, spec, sizes)
    return {
        name: values[name] if name in values else _drawn(name, spec, size, sizes, bound(name))
        for name, spec in specs.items()
    }


def _text(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


def _check(name: str, value: np.ndarray, spec: Spec, sizes: dict) -> None:
    if str(value.dtype) != spec.dtype:
        raise TypeError(f"input {name}: dtype {value.dtype}, but the model expects {spec.dtype}")
    wanted = [_size(dim, size, sizes) for dim, size in zip(spec.dims, value.shape)]
    if value.ndim != len(spec.dims) or wanted != [*value.shape]:
        expected = ", ".join(str(dim) if isinstance(dim, int) else "any" for dim in spec.dims)
        raise ValueError(f"input {name}: shape {value.shape}, but the model expects ({expected})")


def _size(dim, default: int, sizes: dict) -> int:
    """Return a size; an open one that is not known becomes the default."""
    if isinstance(dim, int):
        return dim
    return default if dim is None else sizes.setdefault(dim, default)


def _drawn(name: str, spec: Spec | None, size: int, sizes: dict, bound: int | None) -> np.ndarray:
    if spec is None:
        raise CannotRun(f"input {name} is no tensor of a known rank")
    shape = [_size(dim, size if axis else SIZES[0], sizes) for axis, dim in enumerate(spec.dims)]
    rng, dtype = np.random.default_rng(sum(map(ord, name))), spec.dtype
    if dtype in EPSILON:
        return rng.standard_normal(shape).astype(getattr(ml_dtypes, dtype, dtype))
    if np.dtype(dtype).kind not in "iub":
        raise CannotRun(f"input {name} has the type {dtype}")
    if "mask" in name.lower():
        return np.ones(shape, dtype)
    if "position" in name.lower() and shape:
        return np.broadcast_to(np.arange(shape[-1]), shape).astype(dtype)
    most = _MOST_OF_8_BITS if dtype in EIGHT_BITS else _MOST_INTEGER
    return rng.integers(0, most if bound is None else bound, shape).astype(dtype)
