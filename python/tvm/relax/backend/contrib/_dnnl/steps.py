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
"""Runs a step of the partitioner on each function of a module, whole or not at all."""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm.contrib.onednn import interrupts
from tvm.contrib.onednn.failures import note_failure

from .reading import own_functions


def on_each_function(
    mod: tvm.IRModule, name: str, step: Callable, failures: dict[str, str], strict: bool = False
) -> tvm.IRModule:
    """Return a module with each function that is ours to change as a step returns it.

    A function of which the step raises stays as it was, with a warning.

    Parameters
    ----------
    mod : tvm.IRModule
        The module.
    name : str
        What messages call the step.
    step : Callable
        Returns a builder with new functions, and the new function, for the module, the function's
        variable, and the function.
    failures : dict[str, str]
        By function: why it was left as it was.
    strict : bool
        Whether a step that raises is an error.

    Raises
    ------
    PartitionError
        With `strict`.
    """
    for var, func in own_functions(mod):
        interrupts.deliver()
        try:
            builder, written = step(mod, var, func)
            builder.update_func(var, written)
            mod = builder.finalize()
        # A pass of TVM raises whatever it likes, and a model must not fail to compile because a
        # part of it cannot be offloaded.
        except Exception as error:  # pylint: disable=broad-except
            note_failure(failures, var.name_hint, name, error, stacklevel=4, strict=strict)
    return mod
