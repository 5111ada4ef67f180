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
"""Binds values to the parameters of a module."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relay
from tvm.contrib.onednn.arguments import check_mapping, warn_of_unknown
from tvm.contrib.onednn.ops.tensors import text_of_shape


def bind_params(mod: tvm.IRModule, params: dict) -> tvm.IRModule:
    """Make the parameters of main that are in `params` constants.

    Parameters
    ----------
    mod : tvm.IRModule
        A module with a function main, which is changed.
    params : dict[str, tvm.nd.NDArray | numpy.ndarray]
        Values by name of main's parameters. Other names are ignored with a warning: importers
        return more than main uses, such as the shape that a reshape was given.

    Raises
    ------
    TypeError
        `params` is not a dict.
    ValueError
        There is no main, or a value does not fit its parameter.
    """
    if not params:
        return mod
    check_mapping("params", params)
    if "main" not in {var.name_hint for var in mod.functions}:
        raise ValueError("params can only be bound to a function main, and the module has none")
    main = mod["main"]
    inputs: dict[str, list[relay.Var]] = {}
    for var in main.params:
        inputs.setdefault(var.name_hint, []).append(var)
    bound = {}
    for name in (name for name in params if name in inputs):
        if len(inputs[name]) > 1:
            raise ValueError(f"params['{name}']: main has {len(inputs[name])} parameters so named")
        bound[inputs[name][0]] = relay.const(_value(name, params[name], inputs[name][0]))
    warn_of_unknown(params, inputs, 4)
    mod["main"] = relay.bind(main, bound)
    return mod


def _value(name: str, value, var: relay.Var) -> tvm.nd.NDArray:
    """Check a parameter's value against its variable, and return it as an NDArray."""
    if isinstance(value, relay.Constant):
        value = value.data
    if not isinstance(value, tvm.nd.NDArray):
        value = tvm.nd.array(np.asarray(value))
    type_ = var.type_annotation
    if isinstance(type_, relay.TensorType):
        same_shape = len(type_.shape) == len(value.shape) and all(
            not isinstance(dim, tvm.tir.IntImm) or int(dim) == size
            for dim, size in zip(type_.shape, value.shape)
        )
        if not same_shape or type_.dtype != value.dtype:
            raise ValueError(
                f"params['{name}'] is {value.dtype} of shape {text_of_shape(value.shape)}, "
                f"but that of main is {type_.dtype} of shape {text_of_shape(type_.shape)}"
            )
    return value
