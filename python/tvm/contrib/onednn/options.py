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
"""The options of partition_for_dnnl, checked."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from . import cpu
from .arguments import close_to
from .environment import is_on

DEFAULTS = {
    "prune": True,
    "exclude": (),
    "precision": "float32",
    "keep_bias_order": True,
    "exact_nan": False,
    "num_threads": None,
    "strict": False,
}

PRECISIONS = ("auto", *cpu.REAL)

# As kMaxThreads in core/exec/threads.h of the runtime.
_MAX_THREADS = 4096


@dataclasses.dataclass(frozen=True)
class Options:
    """The options of partition_for_dnnl, validated.

    Parameters
    ----------
    mod_name : str
        Prefix of the partitions' names.
    prune : bool
        Whether small partitions stay on TVM.
    exclude : frozenset[str]
        Ops and composites that stay on TVM.
    precision : str
        The floating-point type to compute in.
    keep_bias_order : bool
        Whether a bias is added where the module adds it.
    exact_nan : bool
        Whether ops that select a value, such as relu, propagate NaN.
    num_threads : int | None
        Number of threads that the partitions run on; 0 if the process decides, None if the
        PassContext of the compilation does.
    strict : bool
        Whether an op that cannot be rewritten or written is an error instead of a warning. The
        default is that of the environment variable `TVM_DNNL_STRICT`.
    """

    mod_name: str = "default"
    prune: bool = True
    exclude: frozenset[str] = frozenset()
    precision: str = "float32"
    keep_bias_order: bool = True
    exact_nan: bool = False
    num_threads: int | None = None
    strict: bool = False


def make_options(
    mod_name: str,
    given: dict,
    rows: Sequence[str],
    op_names: Callable[[], Iterable[str]],
    context: dict | None = None,
) -> Options:
    """Check the arguments of partition_for_dnnl, and the options of the PassContext.

    Parameters
    ----------
    mod_name : str
        As passed by the caller.
    given : dict
        The other arguments by name. None stands for the PassContext's value, or the default.
    rows : Sequence[str]
        The names of the ops with a row.
    op_names : Callable[[], Iterable[str]]
        Returns the names of all of TVM's ops, which `exclude` may also contain.
    context : dict | None
        The options in the PassContext, by name.

    Raises
    ------
    TypeError, ValueError
        Naming the option.
    """
    if not isinstance(mod_name, str):
        raise TypeError(f"mod_name must be a string, not {mod_name!r}")
    if not mod_name:
        raise ValueError("mod_name must not be empty; it is the prefix of the partitions' names")
    given = {key: value for key, value in given.items() if value is not None}
    environment = {"strict": True} if is_on("TVM_DNNL_STRICT", False) else {}
    chosen = {**DEFAULTS, **_of_bf16(dict(context or {})), **environment, **_of_bf16(given)}
    for name, default in DEFAULTS.items():
        if isinstance(default, bool) and not isinstance(chosen[name], bool):
            raise TypeError(f"{name} must be True or False, not {chosen[name]!r}")
    chosen["num_threads"] = _checked_threads(chosen["num_threads"])
    chosen["precision"] = precision_of(chosen["precision"])
    chosen["exclude"] = _check_exclude(chosen["exclude"], rows, op_names)
    return Options(mod_name, **chosen)


def _of_bf16(options: dict) -> dict:
    """Replace the deprecated option `bf16` by `precision`."""
    if "bf16" not in options:
        return options
    bf16 = options.pop("bf16")
    if not isinstance(bf16, bool):
        raise TypeError(f"bf16 must be True or False, not {bf16!r}")
    precision = "bfloat16" if bf16 else "float32"
    text = f'bf16 is deprecated; use precision="{precision}"'
    warnings.warn(text, DeprecationWarning, stacklevel=6)
    if options.setdefault("precision", precision) != precision:
        raise ValueError(f"bf16={bf16} contradicts precision={options['precision']!r}")
    return options


def precision_of(precision) -> str:
    """Return the floating-point type that `precision` stands for; None is the default.

    Raises
    ------
    TypeError, ValueError
        It is invalid, or oneDNN does not support it on this CPU.
    """
    precision = DEFAULTS["precision"] if precision is None else precision
    if not isinstance(precision, str):
        raise TypeError(f"precision must be a string, not {precision!r}")
    if precision not in PRECISIONS:
        known = f"{', '.join(PRECISIONS[:-1])} or {PRECISIONS[-1]}"
        raise ValueError(f"precision must be {known}, but is {precision!r}")
    if precision == "auto":
        return "bfloat16" if cpu.prefers("bfloat16") else "float32"
    if not cpu.computes(precision):
        raise ValueError(
            f"precision={precision!r}: oneDNN does not support {precision} on this CPU"
        )
    return precision


def _checked_threads(number) -> int | None:
    if number is None:
        return None
    if not isinstance(number, (int, np.integer)) or isinstance(number, bool):
        raise TypeError(f"num_threads must be an integer, not {number!r}")
    if not 0 <= number <= _MAX_THREADS:
        raise ValueError(
            f"num_threads must be a number from 1 to {_MAX_THREADS}, or 0 to let the process "
            f"decide, but is {number}"
        )
    return int(number)


def _check_exclude(exclude, rows: Sequence[str], op_names: Callable) -> frozenset[str]:
    if isinstance(exclude, str):
        raise TypeError(f"exclude must be a sequence of names; use exclude=({exclude!r},)")
    try:
        names = list(exclude)
    except TypeError:
        raise TypeError(f"exclude must be a sequence of names, not {exclude!r}") from None
    # There are some 800 names of ops: asking for them takes longer than to partition a small model.
    known = {*rows, *map(str, op_names())} if names else rows
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"exclude must contain names of ops or composites, not {name!r}")
        if name not in known:
            close = close_to(name, known)
            hint = f"did you mean '{close[0]}'?" if close else "the report of a model names its ops"
            raise ValueError(f"exclude has '{name}', which is not an op or composite; {hint}")
    return frozenset(names)
