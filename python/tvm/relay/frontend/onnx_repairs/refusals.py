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

from tvm.contrib.onednn.frontend.attributes import Attributes
from tvm.error import OpAttributeUnImplemented, OpError, OpNotImplemented

from ... import expr as _expr
from ... import op as _op
from .incremental import infer_shape, infer_type


def refuse(name, attrs, what):
    """Raise an error that names a node, and what of it cannot be imported."""
    raise OpAttributeUnImplemented(f"{_where(name, attrs)}: {what} cannot be imported")


def _where(name, attrs):
    node = attrs.get("tvm_custom", {}).get("name") or "without a name"
    return f"ONNX {name}, node {node}"


def named(name, convert, opset, inputs, attrs, params):
    """Convert a node, and let each error name the node.

    Parameters
    ----------
    name : str
        The ONNX op.
    convert : Callable
        Its converter, which is called with the other arguments.
    opset : int
        The opset of the model.

    Raises
    ------
    tvm.error.OpError
        The node cannot be converted, has attributes that the converter does not read or more
        results than it computes, or has a type error.
    """
    # Some converters remove the attributes that they read.
    custom, attrs = dict(attrs), Attributes(attrs)
    try:
        result = _results(convert(inputs, attrs, params))
    except MemoryError:
        raise
    except OpError as error:
        message = str(error).strip()
        if "ONNX " in message and ", node " in message:
            raise
        raise type(error)(f"{_where(name, custom)}: {message}") from error
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        raise OpNotImplemented(
            f"{_where(name, custom)} cannot be imported: {type(error).__name__}: {lines[-1]}"
        ) from error
    ignored = attrs.ignored(name, len(inputs), opset)
    if ignored:
        refuse(name, custom, f"the attribute {ignored}")
    count = len(result) if isinstance(result, _expr.TupleWrapper) else 1
    wanted = custom["tvm_custom"]["num_outputs"]
    # TVM's importer has a converter for the second result of MaxPool.
    if count < wanted and name not in ("MaxPool", "MaxPoolLocation"):
        refuse(name, custom, f"more than {count} of {wanted} results")
    return result


def _results(result):
    """Return what a converter returned, with known types, and copies of variables.

    TVM gives each result a span. A variable with another span is another variable.
    """
    if isinstance(result, _expr.TupleWrapper):
        fields = result.tuple_value
        if isinstance(fields, _expr.Tuple):
            fields = _expr.Tuple([_results(each) for each in fields.fields])
        return _expr.TupleWrapper(fields, len(result))
    if isinstance(result, _expr.Var):
        return _op.copy(result)
    return infer_type(result) if isinstance(result, _expr.Call) else result


def _cast(name, convert, inputs, attrs, params):
    """Refuse types that TVM casts to as float32; read attributes of opset 19 and later.

    LLVM has no function that converts float64 to float16.
    """
    import onnx  # pylint: disable=import-outside-toplevel

    kind = onnx.TensorProto.DataType.Name(attrs["to"]) if isinstance(attrs["to"], int) else ""
    if kind.startswith(("FLOAT4", "FLOAT8", "INT4", "UINT4", "STRING", "COMPLEX")):
        refuse(name, attrs, f"the type {kind}")
    data = inputs[0]
    if kind == "FLOAT16":
        data = _narrow(data)
    return convert(type(inputs)([data]), {"to": attrs["to"]}, params)


def _cast_like(name, convert, inputs, attrs, params):
    if infer_type(inputs[1]).checked_type.dtype == "float16":
        inputs = type(inputs)([_narrow(inputs[0]), inputs[1]])
    return convert(inputs, {}, params)


def _narrow(data):
    is_double = infer_type(data).checked_type.dtype == "float64"
    return _op.cast(data, "float32") if is_double else data


def _space_to_depth(name, convert, inputs, attrs, params):
    if attrs.get("mode", b"DCR") not in (b"DCR", "DCR"):
        refuse(name, attrs, f"mode={attrs['mode']}")
    return convert(inputs, attrs, params)


def refuse_same_pads(name, attrs, data):
    """Refuse automatic pads that depend on open sizes; others were replaced before."""
    mode = attrs.get("auto_pad", b"NOTSET")
    mode = mode.decode() if isinstance(mode, bytes) else mode
    if mode.startswith("SAME") and not all(isinstance(n, int) for n in infer_shape(data)[2:]):
        refuse(name, attrs, f"auto_pad={mode} with an image of open size")


def _conv(name, convert, inputs, attrs, params):
    refuse_same_pads(name, attrs, inputs[0])
    return convert(inputs, attrs, params)


def _lrn(name, convert, inputs, attrs, params):
    if attrs["size"] % 2 == 0:
        refuse(name, attrs, f"an even size={attrs['size']}")
    return convert(inputs, attrs, params)


def _computed_size(name, convert, inputs, attrs, params):
    """Refuse bfloat16 results whose size is computed: TVM compiles no kernel of them."""
    is_known = all(isinstance(each, _expr.Constant) for each in inputs)
    if infer_type(inputs[0]).checked_type.dtype == "bfloat16" and not is_known:
        refuse(name, attrs, "bfloat16 of a computed size")
    return convert(inputs, attrs, params)


def _always(what, name, convert, inputs, attrs, params):
    refuse(name, attrs, what)


#: By ONNX op, in the form of the repairs.
REFUSED = {
    "Conv": _conv,
    "Adam": functools.partial(_always, "a training step"),
    "Cast": _cast,
    "CastLike": _cast_like,
    "DFT": functools.partial(_always, "the discrete Fourier transform"),
    "LRN": _lrn,
    **dict.fromkeys(("Range", "Unique"), _computed_size),
    "SpaceToDepth": _space_to_depth,
    "Scan": functools.partial(_always, "a loop over a sequence"),
}
