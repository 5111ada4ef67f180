# SPDX-License-Identifier: Apache-2.0
"""Real models for the tests, the demo and the benchmark of DNNL: one row of a table each."""

import atexit
import dataclasses
import functools
import math
import os
import shutil
import tempfile
from collections.abc import Callable
from types import SimpleNamespace
from unittest import mock

import numpy as np
from tvm import relay
from tvm.relay import testing as relay_testing

from dnnl_tests.models import int8
from dnnl_tests.models import ocr as pp_ocr


class HeInitializer(relay_testing.init.Initializer):
    """Random weights with which activations keep their scale through all layers.

    The usual Xavier weights let MobileNet's activations fade until all outputs are equal, and a
    comparison of equal numbers shows nothing. Statistics of batch normalisation are random too,
    so that folding them must be right.
    """

    def __init__(self, seed=0):
        super().__init__()
        self._random = np.random.default_rng(seed)

    def __call__(self, desc, arr):
        """Fill `arr`, whose name is `desc`."""
        if desc.endswith("weight"):
            fan_in = math.prod(arr.shape[1:])
            # The last convolution of ResNet's blocks is small, or each sum with the shortcut would
            # double the variance.
            gain = 0.1 if desc.endswith("conv3_weight") else 2.0
            arr[:] = self._random.normal(0.0, math.sqrt(gain / fan_in), arr.shape)
        elif desc.endswith(("gamma", "var")):
            # ResNet does not scale its input. TVM's ONNX exporter has it scaled nevertheless.
            spread = 0.0 if desc == "bn_data_gamma" else 0.2
            arr[:] = self._random.uniform(1.0 - spread, 1.0 + spread, arr.shape)
        else:
            arr[:] = self._random.normal(0.0, 0.1, arr.shape)


@dataclasses.dataclass(frozen=True)
class Workload:
    """A model and how to get it.

    Attributes
    ----------
    name : str
        What a command line calls it.
    title : str
        What people call it.
    load : callable
        Returns (module, parameters).
    input_name : str
        The name of its only input.
    shape : tuple of int
        The shape of the input, in float32.
    onnx_path : callable, optional
        Returns the path of the same model as ONNX, for other runtimes.
    has_classes : bool
        Whether the largest number of an output tells a class.
    to_input : callable, optional
        Of a model that reads text: from the image of a line to an input. Its outputs are compared
        for such inputs, those of others for random numbers.
    """

    name: str
    title: str
    load: Callable
    input_name: str
    shape: tuple
    onnx_path: Callable = None
    has_classes: bool = True
    to_input: Callable = None

    def inputs(self, seed=0):
        """Return random inputs in [-1, 1], the range of normalised images."""
        data = np.random.default_rng(seed).uniform(-1.0, 1.0, self.shape)
        return {self.input_name: data.astype("float32")}


def _as_file(name, model):
    """Return a function that writes an ONNX model on its first call, and returns the path."""

    @functools.cache
    def path():
        folder = tempfile.mkdtemp(prefix=f"{name}-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        target = os.path.join(folder, f"{name}.onnx")
        with open(target, "wb") as file:
            file.write(model().SerializeToString())
        return target

    return path


def _image_net(name, title, network):
    """Make a row for a network of tvm.relay.testing with random weights."""

    def load():
        return relay_testing.create_workload(network(), HeInitializer())

    def model():
        # Imported here: only these rows need ONNX.
        import onnx  # pylint: disable=import-outside-toplevel
        from tvm.contrib.target.onnx import to_onnx  # pylint: disable=import-outside-toplevel

        # TVM's exporter reads `onnx.mapping`, which onnx >= 1.19 lacks.
        tensor_type = onnx.helper.np_dtype_to_tensor_dtype
        types = {np.dtype(each): tensor_type(np.dtype(each)) for each in ("float32", "int64")}
        mapping = SimpleNamespace(NP_TYPE_TO_TENSOR_TYPE=types)
        with mock.patch.object(onnx, "mapping", mapping, create=True):
            proto = to_onnx(*load(), name)
        # TVM lists the weights as inputs, too: then they could change, and nobody folds them.
        weights = {weight.name for weight in proto.graph.initializer}
        inputs = [each for each in proto.graph.input if each.name not in weights]
        del proto.graph.input[:]
        proto.graph.input.extend(inputs)
        return proto

    return Workload(name, title, load, "data", (1, 3, 224, 224), _as_file(name, model))


def ocr(name, width=None):
    """Make a row for an OCR model: ``"cls"``, or ``"rec"`` or ``"det"`` for `width` pixels."""
    title, usual = {
        "cls": ("PP-OCR text angle", pp_ocr.CLS_WIDTH),
        "rec": ("PP-OCRv4 text recognition", pp_ocr.REC_WIDTH),
        "det": ("PP-OCRv4 text detection", pp_ocr.PAGE),
    }[name]
    width = width or usual
    return Workload(
        name,
        title,
        lambda: pp_ocr.load_onnx(name, width),
        pp_ocr.INPUT,
        pp_ocr.input_shape(name, width),
        lambda: pp_ocr.model_path(name),
        has_classes=name != "det",
        to_input={
            "rec": lambda image: pp_ocr.to_input(image, width),
            "det": lambda image: pp_ocr.to_page(image, width),
        }.get(name),
    )


def onnx_network(name, title, shape, **sizes):
    """Make a row for a network of onnx_networks with random weights, of its own sizes or these."""

    @functools.cache
    def model():
        # Imported here: only these rows need ONNX.
        from dnnl_tests.models import onnx_networks  # pylint: disable=import-outside-toplevel

        return getattr(onnx_networks, name)(**sizes)

    def load():
        return relay.frontend.from_onnx(model(), shape={"x": shape}, freeze_params=True)

    return Workload(name, title, load, "x", shape, _as_file(name, model), name != "bert")


_ROWS = (
    _image_net("mobilenet", "MobileNet v1", relay_testing.mobilenet.mobile_net),
    _image_net("resnet50", "ResNet-50", lambda: relay_testing.resnet.get_net(1, 1000, 50)),
    ocr("cls"),
    ocr("rec"),
    ocr("det"),
    onnx_network("mobilenet_v2", "MobileNet v2", (1, 3, 224, 224)),
    onnx_network("bert", "BERT encoder, 4 layers", (1, 128, 512)),
    onnx_network("vit", "ViT tiny", (1, 3, 224, 224)),
)

WORKLOADS = {row.name: row for row in _ROWS}
# The same with 8-bit weights and activations, by names such as "bert-int8" and "bert-int8-s8".
INT8 = {
    row.name: row
    for row in (
        int8.quantized(WORKLOADS[name], activations)
        for name in int8.RECIPES
        for activations in int8.SUFFIXES
    )
}


def onnx_session(path, threads=0, is_plain=False):
    """Open an ONNX model with onnxruntime on the CPU.

    Parameters
    ----------
    path : str
        The model.
    threads : int
        Threads for one run; 0 lets onnxruntime choose.
    is_plain : bool
        Whether each op runs as the model has it. Blocked convolutions of onnxruntime's optimized
        graphs are less accurate on CPUs without AVX-512.
    """
    # Imported here: only comparisons with onnxruntime need it.
    import onnxruntime  # pylint: disable=import-outside-toplevel

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    if is_plain:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    # Models in an old format make it warn about each constant; that is not a user's concern.
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
