# SPDX-License-Identifier: Apache-2.0
"""ONNX models of one node for tests: imported, partitioned, and compared with onnxruntime."""

import numpy as np
import tvm_dnnl
from dnnl_tests.onnx_models import onnx_session
from dnnl_tests.onnx_reference import is_quantized, reference_results
from onnx import helper, numpy_helper

from dnnl_relax.modules import compiled, composites, partitions, run

CONTRIB = "com.microsoft"


def normal(*shape, seed=0):
    """Return an array of normally distributed numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def node_model(
    op, operands, outputs=1, domain=CONTRIB, opset=17, consts=(), dims=None, others=(), **attrs
):
    """Return the model of one node.

    Parameters
    ----------
    op : str
        The op.
    operands : dict[str, numpy.ndarray | None]
        The inputs by name, None for one that is left out.
    outputs : int | str
        The number of outputs, or a digit for each: 0 for one that is left out.
    consts : Sequence[str]
        The inputs that are constants.
    dims : dict[str, Sequence[int | str]] | None
        Shapes with open dimensions by input.
    others : dict[str, Any]
        Attributes that are named as a parameter of this function.
    """
    names = [name if value is not None else "" for name, value in operands.items()]
    flags = "1" * outputs if isinstance(outputs, int) else outputs
    results = [f"y{k}" if flag == "1" else "" for k, flag in enumerate(flags)]
    node = helper.make_node(op, names, results, domain=domain, name="node", **attrs, **dict(others))
    given, weights = [], []
    for name, value in operands.items():
        if value is None:
            continue
        tensor = numpy_helper.from_array(value, name)
        if name in consts:
            weights.append(tensor)
        else:
            shape = (dims or {}).get(name, value.shape)
            given.append(helper.make_tensor_value_info(name, tensor.data_type, shape))
    infos = [helper.make_empty_tensor_value_info(name) for name in results if name]
    graph = helper.make_graph([node], "model", given, infos, weights)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(CONTRIB, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def onnxruntime_results(model, operands):
    """Return what onnxruntime computes without optimizations of operands by name or in order.

    Of models with quantized products, those of numpy.
    """
    names = [each.name for each in model.graph.input]
    if isinstance(operands, dict):
        operands = [operands[name] for name in names]
    inputs = dict(zip(names, operands))
    if is_quantized(model):
        return reference_results(model, inputs)
    return onnx_session(model).run(None, inputs)


def results(model, operands):
    """Return what the partitioned module computes, and the module."""
    partitioned = tvm_dnnl.partition_for_dnnl(tvm_dnnl.from_onnx(model), prune=False)
    values = [operands[each.name] for each in model.graph.input]
    return run(compiled(partitioned), *values), partitioned


def assert_close(got, expected, tolerance=1e-5):
    """Compare float32 tensors relative to the largest element, as sums have another order."""
    assert len(got) == len(expected)
    for one, other in zip(got, expected):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance * np.abs(other).max())


def check_node(op, operands, expected=None, tolerance=1e-5, parts=None, **options):
    """Compare a node with onnxruntime, or with results that are given.

    Returns
    -------
    counts : dict[str, int]
        The composites; `parts` is how many partitions have them.
    """
    model = node_model(op, operands, **options)
    expected = onnxruntime_results(model, operands) if expected is None else expected
    got, partitioned = results(model, operands)
    assert_close(got, expected, tolerance)
    assert parts is None or partitions(partitioned) == parts
    return composites(partitioned)
