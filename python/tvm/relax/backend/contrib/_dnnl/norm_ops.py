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
"""How normalizations of Relax are read."""

from __future__ import annotations

from tvm import relax

from .read_op import Composed, ReadOp, Row, attrs_of, same
from .reading import UnsupportedOp, dims, is_constant, value_of


def _only_axis(call: relax.Call) -> int:
    if len(call.attrs.axes) != 1:
        names = [n for n in ("axes", "epsilon", "center", "scale") if hasattr(call.attrs, n)]
        raise Composed(**attrs_of(call, names))
    return int(call.attrs.axes[0])


def _layer_norm(call: relax.Call) -> ReadOp:
    # First, as what is refused is so for any axes.
    affine = _affine(call)
    attrs = {"axis": _only_axis(call), "epsilon": float(call.attrs.epsilon), **affine}
    return ReadOp("nn.layer_norm", list(call.args), attrs)


def _affine(call: relax.Call) -> dict:
    """Read two switches, which TVM's own kernels ignore: what is off must change nothing."""
    switches = {}
    for name, arg, neutral in (("scale", call.args[1], 1), ("center", call.args[2], 0)):
        switches[name] = bool(getattr(call.attrs, name))
        if not switches[name] and not (is_constant(arg) and (value_of(arg) == neutral).all()):
            raise UnsupportedOp(
                f"{name}=False, but the values are not {neutral}, and TVM applies them"
            )
    return switches


def _rms_norm(call: relax.Call) -> ReadOp:
    axis, rank = _only_axis(call), len(dims(call.args[0]))
    if axis % rank != rank - 1:
        raise UnsupportedOp(f"axis={axis} is not the last axis")
    return ReadOp("dnnl.rms_norm", list(call.args), {"epsilon": float(call.attrs.epsilon)})


def _group_norm(call: relax.Call) -> ReadOp:
    """Read a normalization of groups of channels, and of all axes that follow these."""
    rank, axis = len(dims(call.args[0])), int(call.attrs.channel_axis)
    axes = sorted(int(a) % rank for a in call.attrs.axes)
    attrs = {**_channels(call), "num_groups": int(call.attrs.num_groups)}
    if axes != list(range(axis % rank + 1, rank)):
        raise Composed(**attrs, axes=axes)
    return ReadOp("nn.group_norm", list(call.args), attrs)


def _instance_norm(call: relax.Call) -> ReadOp:
    """Read a normalization of all axes but those of batch and channels."""
    rank, axis = len(dims(call.args[0])), int(call.attrs.channel_axis)
    axes = list(call.attrs.axes)
    if sorted(int(a) % rank for a in axes) != [a for a in range(1, rank) if a != axis % rank]:
        raise UnsupportedOp(f"axes={axes} are not all except batch and channels")
    return ReadOp("nn.instance_norm", list(call.args), _channels(call))


def _channels(call: relax.Call) -> dict:
    axis, epsilon = int(call.attrs.channel_axis), float(call.attrs.epsilon)
    return {"axis": axis, "epsilon": epsilon, **_affine(call)}


def _batch_norm(call: relax.Call) -> ReadOp:
    """Read a normalization by given statistics."""
    if call.attrs.training:
        raise UnsupportedOp("training=True normalizes by the mean and variance of the data")
    attrs = attrs_of(call, ("axis", "epsilon", "center", "scale"))
    return ReadOp("nn.batch_norm", list(call.args), attrs)


ROWS: dict[str, Row] = {
    "relax.nn.batch_norm": _batch_norm,
    "relax.nn.layer_norm": _layer_norm,
    "relax.nn.rms_norm": _rms_norm,
    "relax.nn.group_norm": _group_norm,
    "relax.nn.instance_norm": _instance_norm,
    "relax.nn.softmax": same("nn.softmax", "axis"),
    "relax.nn.log_softmax": same("nn.log_softmax", "axis"),
}
