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
"""ONNX ops that compute something else in training."""

from __future__ import annotations

from ... import expr as _expr
from ... import op as _op
from .incremental import infer_type
from .refusals import refuse


def batch_norm(name, convert, inputs, attrs, params):
    """Refuse BatchNormalization of training."""
    if attrs.get("training_mode", 0):
        refuse(name, attrs, "training_mode")
    attrs.get("momentum")  # of training
    return convert(inputs, attrs, params)


def dropout(opset, name, convert, inputs, attrs, params):
    """Convert Dropout to its operand, and a mask that is true.

    Parameters
    ----------
    opset : int
        The opset of the model. The mask is of booleans since opset 10.
    """
    data, ratio, is_training = (inputs[k] for k in range(3))
    attrs.get("ratio")  # before opset 12, and of no effect
    if is_training is not None and not (_is_zero(is_training) or _is_zero(ratio)):
        refuse(name, attrs, "training_mode other than a constant false")
    result = _op.nn.dropout(data, 0.0)
    if attrs["tvm_custom"]["num_outputs"] < 2:
        return result
    mask = _op.ones_like(data)
    if opset >= 10 and infer_type(data).checked_type.dtype != "bool":
        mask = _op.cast(mask, "bool")
    return _expr.TupleWrapper(_expr.Tuple([result, mask]), 2)


def _is_zero(expr):
    return isinstance(expr, _expr.Constant) and not expr.data.numpy().any()
