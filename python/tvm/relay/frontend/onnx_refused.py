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
"""ONNX nodes that TVM's importer reads as others, or that TVM cannot compile: they are refused."""

from __future__ import annotations

import functools

from tvm.error import OpAttributeUnImplemented

from .common import infer_shape


def refuse(name, attrs, what):
    """Raise an error that names a node, and what of it cannot be imported."""
    node = attrs.get("tvm_custom", {}).get("name") or "without a name"
    raise OpAttributeUnImplemented(f"ONNX {name}, node {node}: {what} cannot be imported")


def _batch_norm(name, convert, inputs, attrs, params):
    if attrs.get("training_mode", 0):
        refuse(name, attrs, "training_mode")
    return convert(inputs, attrs, params)


def _cast(name, convert, inputs, attrs, params):
    """Refuse types that TVM casts to as float32."""
    import onnx  # pylint: disable=import-outside-toplevel

    kind = onnx.TensorProto.DataType.Name(attrs["to"]) if isinstance(attrs["to"], int) else ""
    if kind.startswith(("FLOAT4", "FLOAT8", "INT4", "UINT4", "STRING", "COMPLEX")):
        refuse(name, attrs, f"the type {kind}")
    return convert(inputs, attrs, params)


def refuse_same_pads(name, attrs, data):
    """Refuse automatic pads that depend on open sizes; others were replaced before."""
    mode = attrs.get("auto_pad", b"NOTSET")
    mode = mode.decode() if isinstance(mode, bytes) else mode
    if mode.startswith("SAME") and not all(isinstance(n, int) for n in infer_shape(data)[2:]):
        refuse(name, attrs, f"auto_pad={mode}, where the size of the image is open,")


def _conv(name, convert, inputs, attrs, params):
    refuse_same_pads(name, attrs, inputs[0])
    return convert(inputs, attrs, params)


def _always(what, name, convert, inputs, attrs, params):
    refuse(name, attrs, what)


#: By ONNX op, in the form of the repairs.
REFUSED = {
    "Conv": _conv,
    "Adam": functools.partial(_always, "a step of training"),
    "BatchNormalization": _batch_norm,
    "Cast": _cast,
    "DFT": functools.partial(_always, "a Fourier transform"),
    "Scan": functools.partial(_always, "a loop over a sequence, which TVM does not compile,"),
}
