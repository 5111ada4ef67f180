# SPDX-License-Identifier: Apache-2.0
"""QDQ models: the float networks of `workloads`, quantized by onnxruntime as its users do.

A model is made at its first use and kept in ``build/int8``, under a name that tells what it was
quantized from.
"""

import dataclasses
import functools
import hashlib
import logging
import os
import pathlib
import tempfile

FOLDER = pathlib.Path(__file__).resolve().parents[5] / "build" / "int8"
# The first operator set whose QuantizeLinear has scales for channels.
OPSET = 13
# By type of the activations: what the name of such a model ends in.
SUFFIXES = {"u8": "int8", "s8": "int8-s8"}
# So many inputs tell the ranges of the activations.
SAMPLES = 8
# A change of this file that changes the models.
VERSION = 1
# Texts for PP-OCR's ranges; none is one that is read later.
TEXTS = (
    "Compile once, run anywhere",
    "Vector neural network",
    "It is 7:45 pm",
    "Price: $19.99 (net)",
    "page_7/index.html",
    "A man, a plan, a canal",
    "{x | x > 0}",
    "Zebra Quartz Fjord",
    '"quoted" text; ok?',
    "#42 @home ~5%",
    "JKLMNOPQRSTUVWXYZ",
    "abcdefghijklmno",
)


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How a network is quantized.

    Attributes
    ----------
    ops : tuple of str
        The types of ONNX ops that get 8-bit operands and results; the rest stays in float32.
    sensitive : bool
        Whether the first convolution and the depthwise ones stay in float32, too: in small
        networks most of the error is theirs, and little of the time.
    """

    ops: tuple
    sensitive: bool = False


_IMAGES = Recipe(("Conv", "Gemm", "Add", "MaxPool", "AveragePool", "GlobalAveragePool"))
# Normalisation, softmax and gelu stay in float32, as in the recipes that people publish.
_SEQUENCES = Recipe(("MatMul", "Gemm", "Conv"))
RECIPES = {
    "mobilenet": _IMAGES,
    "mobilenet_v2": _IMAGES,
    "resnet50": _IMAGES,
    "bert": _SEQUENCES,
    "vit": _SEQUENCES,
    "rec": Recipe(("Conv", "MatMul"), sensitive=True),
}


def calibration(workload):
    """Return inputs of a workload from which ranges are read, always the same."""
    if workload.name != "rec":
        return [workload.inputs(seed=100 + number) for number in range(SAMPLES)]
    from dnnl_tests.models import ocr  # pylint: disable=import-outside-toplevel

    width = workload.shape[3]
    return [{ocr.INPUT: ocr.to_input(ocr.draw_line(text), width)} for text in TEXTS]


def _group(node):
    return next((attr.i for attr in node.attribute if attr.name == "group"), 1)


def quantize(source, target, samples, recipe, activations="u8", **extra):
    """Quantize an ONNX file to a QDQ model with a scale for each channel of the weights.

    Parameters
    ----------
    source, target : str
        The files.
    samples : list of dict of str to numpy.ndarray
        Inputs from which the ranges of the activations are read.
    recipe : Recipe
        What is quantized.
    activations : str
        "u8" or "s8".
    extra : bool
        Of onnxruntime's `extra_options`, by name.
    """
    # Imported here: only these models need them, and they take a second.
    # pylint: disable=import-outside-toplevel
    import onnx
    import onnx.version_converter
    from onnxruntime import quantization

    class Reader(quantization.CalibrationDataReader):
        def __init__(self):
            self._left = iter(samples)

        def get_next(self):
            return next(self._left, None)

    types = {"u8": quantization.QuantType.QUInt8, "s8": quantization.QuantType.QInt8}
    model = onnx.load(source)
    if max(entry.version for entry in model.opset_import if not entry.domain) < OPSET:
        model = onnx.version_converter.convert_version(model, OPSET)
    logger, level = logging.getLogger(), logging.getLogger().level
    with tempfile.TemporaryDirectory() as folder:
        plain, ready = os.path.join(folder, "plain.onnx"), os.path.join(folder, "ready.onnx")
        onnx.save(model, plain)
        # It folds batch normalisations, and makes a Gemm of a MatMul and an Add.
        quantization.shape_inference.quant_pre_process(plain, ready, skip_symbolic_shape=True)
        convs = [node for node in onnx.load(ready).graph.node if node.op_type == "Conv"]
        kept = [convs[0], *(conv for conv in convs if _group(conv) > 1)] if recipe.sensitive else []
        logger.setLevel(logging.ERROR)
        try:
            quantization.quantize_static(
                ready,
                target,
                Reader(),
                quant_format=quantization.QuantFormat.QDQ,
                op_types_to_quantize=list(recipe.ops),
                per_channel=True,
                activation_type=types[activations],
                weight_type=quantization.QuantType.QInt8,
                nodes_to_exclude=[conv.name for conv in kept],
                extra_options=extra,
            )
        finally:
            logger.setLevel(level)


def path(workload, activations="u8"):
    """Return the path of a workload as a QDQ model; make it if it is not there."""
    import onnxruntime  # pylint: disable=import-outside-toplevel

    source, recipe = workload.onnx_path(), RECIPES[workload.name]
    key = hashlib.sha256(pathlib.Path(source).read_bytes())
    sources = (VERSION, OPSET, SAMPLES, TEXTS, recipe, activations, workload.shape)
    key.update(repr((sources, onnxruntime.__version__)).encode())
    target = FOLDER / f"{workload.name}-{activations}-{key.hexdigest()[:16]}.onnx"
    if not target.is_file():
        FOLDER.mkdir(parents=True, exist_ok=True)
        for old in FOLDER.glob(f"{workload.name}-{activations}-*.onnx"):
            old.unlink(missing_ok=True)
        # Under another name first: another process may want it, too.
        new = target.with_suffix(f".{os.getpid()}")
        quantize(source, str(new), calibration(workload), recipe, activations)
        os.replace(new, target)
    return str(target)


def quantized(workload, activations="u8"):
    """Return the workload with 8-bit weights and activations: "bert" becomes "bert-int8"."""
    onnx_path = functools.cache(lambda: path(workload, activations))

    def load():
        import onnx  # pylint: disable=import-outside-toplevel
        from tvm import relay  # pylint: disable=import-outside-toplevel

        shape = {workload.input_name: workload.shape}
        return relay.frontend.from_onnx(onnx.load(onnx_path()), shape=shape, freeze_params=True)

    return dataclasses.replace(
        workload,
        name=f"{workload.name}-{SUFFIXES[activations]}",
        title=f"{workload.title}, {SUFFIXES[activations]}",
        load=load,
        onnx_path=onnx_path,
    )
