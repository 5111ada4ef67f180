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
"""Computes a Relay call of constants in numpy: TVM compiles a function for each."""

from __future__ import annotations

import numpy as np
from tvm import relay
from tvm.contrib.onednn.ops.evaluate import evaluate_op, has_definition
from tvm.relay.transform import InferTypeLocal

from .constants import to_constant, to_numpy
from .relay_view import op_name, plain_attrs, value_of_type


def constant_result(call: relay.Call) -> relay.Expr | None:
    """Compute a call of constants.

    Parameters
    ----------
    call : relay.Call
        The call of an op; its operands are constants or tuples of constants.

    Returns
    -------
    result : relay.Constant | relay.Tuple | None
        None if numpy has no definition of the op, or the definition gives no result for these
        values. QNN ops have none here: passes of TVM look for them.
    """
    name = op_name(call)
    if not has_definition(name) or name.startswith("qnn."):
        return None
    type_ = InferTypeLocal(call)
    fields = type_.fields if isinstance(type_, relay.TupleType) else None
    types = tuple(map(value_of_type, fields)) if fields is not None else value_of_type(type_)
    try:
        values = evaluate_op(name, plain_attrs(call), types, [_value(arg) for arg in call.args])
    # Among these is UndefinedResult.
    except (ValueError, ZeroDivisionError):
        return None
    if fields is None:
        return to_constant(values, types.dtype)
    return relay.Tuple([to_constant(value, each.dtype) for value, each in zip(values, types)])


def _value(operand: relay.Expr) -> np.ndarray | list[np.ndarray]:
    if isinstance(operand, relay.Tuple):
        return [to_numpy(field.data) for field in operand.fields]
    return to_numpy(operand.data)
