# SPDX-License-Identifier: Apache-2.0
"""Networks whose batch, image size or length is open, and the shapes that they are run with."""

import functools
import os
import tempfile
from collections.abc import Callable
from typing import NamedTuple

import onnx

from dnnl_tests.models import int8, onnx_networks, workloads


class OpenNetwork(NamedTuple):
    """A network of one input.

    Attributes
    ----------
    name : str
        What a command line calls it.
    title : str
        What people call it.
    model : callable
        Returns it as an ONNX model.
    shapes : list of tuple of int
        Shapes that its input may have.
    """

    name: str
    title: str
    model: Callable
    shapes: list


def _resnet50():
    model = onnx.load(workloads.WORKLOADS["resnet50"].onnx_path())
    dims = model.graph.input[0].type.tensor_type.shape.dim
    for i, name in ((0, "batch"), (2, "height"), (3, "width")):
        dims[i].dim_param = name
    for value in model.graph.output:
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    del model.graph.value_info[:]
    return model


def _recognition():
    model = onnx.load(workloads.WORKLOADS["rec"].onnx_path())
    # Paddle's export leaves the height open, too, which its reshapes take for 48.
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_value = 48
    return model


_ROWS = (
    OpenNetwork(
        "mobilenet_v2",
        "MobileNet v2",
        lambda: onnx_networks.mobilenet_v2(batch="batch"),
        [(batch, 3, 224, 224) for batch in (1, 2, 4, 7)],
    ),
    OpenNetwork(
        "resnet50", "ResNet-50", _resnet50, [(1, 3, 224, 224), (1, 3, 160, 192), (1, 3, 97, 131)]
    ),
    OpenNetwork(
        "rec",
        workloads.WORKLOADS["rec"].title,
        _recognition,
        [(1, 3, 48, width) for width in (320, 480, 641)],
    ),
    OpenNetwork(
        "bert",
        "BERT encoder, 4 layers",
        lambda: onnx_networks.bert(batch="batch", length="length"),
        [(1, length, 512) for length in (128, 64, 37, 1)],
    ),
)
NETWORKS = {row.name: row for row in _ROWS}


@functools.cache
def in_int8(name, activations="u8"):
    """Return a network as a QDQ model with the same open dimensions.

    Parameters
    ----------
    name : str
        The network.
    activations : str
        "u8" or "s8".
    """
    samples = int8.calibration(workloads.WORKLOADS[name])
    with tempfile.TemporaryDirectory() as folder:
        source, target = (os.path.join(folder, file) for file in ("float32.onnx", "int8.onnx"))
        onnx.save(NETWORKS[name].model(), source)
        int8.quantize(source, target, samples, int8.RECIPES[name], activations)
        return onnx.load(target)
