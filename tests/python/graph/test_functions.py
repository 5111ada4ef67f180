# SPDX-License-Identifier: Apache-2.0
"""ONNX ops that importers refuse, replaced by what they are defined as."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper, reference  # noqa: E402
from tvm.contrib.onednn.frontend.decompositions import CORRECTIONS  # noqa: E402
from tvm.contrib.onednn.frontend.functions import expand, import_expanded  # noqa: E402
from tvm.contrib.onednn.frontend.prepare import prepare  # noqa: E402

OPSET = onnx.defs.onnx_opset_version()


pytestmark = pytest.mark.skipif(OPSET < 27, reason="of the ops of onnx 1.23")


def rand(*shape, dtype="float32"):
    return np.random.default_rng(0).normal(size=shape).astype(dtype)


def model(op, operands, constants=(), opset=OPSET, domain="", dims=None, outputs=1, **attrs):
    """Return the model of a node of operands by name, None for one that it omits."""
    given = [name if value is not None else "" for name, value in operands.items()]
    names = [f"y{k}" for k in range(outputs)]
    node = helper.make_node(op, given, names, name="the node", domain=domain, **attrs)
    tensors = {k: numpy_helper.from_array(v, k) for k, v in operands.items() if v is not None}
    infos = [
        helper.make_tensor_value_info(k, each.data_type, (dims or {}).get(k, each.dims))
        for k, each in tensors.items()
        if k not in constants
    ]
    weights = [tensors[k] for k in constants if k in tensors]
    results = [helper.make_empty_tensor_value_info(name) for name in names]
    graph = helper.make_graph([node], "model", infos, results, weights)
    opsets = [helper.make_opsetid("", opset), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def expanded(proto, table=None):
    """Return a model without the op."""
    ops = {node.op_type for node in proto.graph.node}
    new = prepare(proto)
    assert expand(new, ops, *([table] if table is not None else []))
    assert not new.functions and len(new.opset_import) == len(proto.opset_import)
    return new


def evaluated(proto, operands):
    inputs = {each.name for each in proto.graph.input}
    given = {name: value for name, value in operands.items() if name in inputs}
    return reference.ReferenceEvaluator(proto).run(None, given)


SIGNAL, COMPLEX = rand(2, 12, 3, 1), rand(2, 12, 3, 2)
AXIS, LENGTH = np.array(1), np.array(7)
FRAMES = {"x": rand(2, 20, 1), "step": np.array(3)}
OPS = {
    # onnx's evaluator does not take absolute values.
    "lp 1": ("LpNormalization", {"x": np.abs(rand(2, 3, 4))}, (), dict(p=1, axis=1)),
    "lp 2": ("LpNormalization", {"x": rand(2, 3, 4) * np.arange(4, dtype="f")}, (), dict(axis=2)),
    "dft": ("DFT", {"x": SIGNAL, "n": None, "axis": AXIS}, ("axis",), {}),
    "dft of complex": ("DFT", {"x": COMPLEX, "n": None, "axis": AXIS}, ("axis",), {}),
    "dft of a part": ("DFT", {"x": COMPLEX, "n": LENGTH, "axis": AXIS}, ("n", "axis"), {}),
    "padded": ("DFT", {"x": COMPLEX, "n": 2 * LENGTH, "axis": AXIS}, ("n", "axis"), {}),
    "one side": ("DFT", {"x": SIGNAL, "n": LENGTH, "axis": AXIS}, ("n", "axis"), dict(onesided=1)),
    "last": ("DFT", {"x": COMPLEX}, (), dict(inverse=1)),
    "stft": ("STFT", {**FRAMES, "w": None, "n": np.array(8)}, ("step", "n"), {}),
    "window": ("STFT", {**FRAMES, "w": rand(8)}, ("step", "w"), {}),
    "two sides": ("STFT", {**FRAMES, "w": rand(8)}, ("step", "w"), dict(onesided=0)),
    "det": ("Det", {"x": rand(2, 4, 3, 3)}, (), {}),
    "det of 2": ("Det", {"x": rand(5, 2, 2)}, (), {}),
    "eye": ("EyeLike", {"x": rand(3, 4)}, (), dict(k=1, dtype=TensorProto.DOUBLE)),
    "pad": ("Pad", {"x": rand(2, 3), "p": np.array([1, 0, 0, 2]), "v": np.float32(4)}, "p", {}),
    "col2im": (
        "Col2Im",
        {"x": rand(2, 6, 9), "image": np.array([6, 9]), "block": np.array([2, 3])},
        ("image", "block"),
        dict(strides=[2, 3]),
    ),
    "dilated": (
        "Col2Im",
        {"x": rand(1, 4, 20), "image": np.array([5, 5]), "block": np.array([2, 2])},
        ("image", "block"),
        dict(dilations=[2, 1], pads=[0, 1, 1, 0]),
    ),
}


@pytest.mark.parametrize("op, operands, constants, attrs", OPS.values(), ids=OPS)
def test_decompositions(op, operands, constants, attrs):
    proto = model(op, operands, constants, **attrs)
    for got, want in zip(evaluated(expanded(proto), operands), evaluated(proto, operands)):
        assert got.shape == want.shape and got.dtype == want.dtype
        # Of a matmul of float32 in place of additions in another order.
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


EINSUMS = {
    "bqhd,bkhd->bhqk": ((2, 3, 4, 5), (2, 6, 4, 5)),
    "bhqk,bkhd->bqhd": ((2, 4, 3, 6), (2, 6, 4, 5)),
    "nctkv,kvw->nctw": ((2, 3, 4, 2, 5), (2, 5, 6)),
    "i,j->ij": ((3,), (4,)),
    "b i , b j d -> d b j i": ((2, 3), (2, 4, 5)),
    "i,i->": ((4,), (4,)),
    "ij,j->i": ((3, 4), (4,)),
    "ijk,ilm,njm,nlk,abc->": ((2, 3, 4), (2, 5, 6), (7, 3, 6), (7, 5, 4), (1, 2, 3)),
    "...ij,...jk": ((2, 3, 4, 5), (2, 3, 5, 6)),
    "...d,de->...e": ((2, 3, 4), (4, 5)),
    "ij,kj": ((3, 4), (5, 4)),
    "bij->bji": ((2, 3, 4),),
    "bij->j": ((2, 3, 4),),
    "bhwc,hkc->bhwk": ((2, 3, 4, 5), (3, 6, 5)),
}


@pytest.mark.parametrize("equation", EINSUMS)
def test_einsum(equation):
    operands = {f"x{k}": rand(*shape) for k, shape in enumerate(EINSUMS[equation])}
    proto = expanded(model("Einsum", operands, (), equation=equation), CORRECTIONS)
    assert not {each.op_type for each in proto.graph.node} & {"Einsum"}
    (got,) = evaluated(proto, operands)
    want = np.einsum(equation.replace(" ", ""), *operands.values())
    assert got.shape == want.shape
    # Sums of at most 5,040 products in another order.
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "equation, shapes",
    [("ii->i", [(3, 3)]), ("ij,jk", [(3, 1), (4, 5)]), ("ij,jk", [(3, 4), (4, 5)])],
    ids=["diagonal", "broadcast", "integers"],
)
def test_einsum_that_stays(equation, shapes):
    is_integer = shapes[0] == (3, 4)
    operands = {f"x{k}": rand(*shape) for k, shape in enumerate(shapes)}
    operands = {name: x.astype("int32") if is_integer else x for name, x in operands.items()}
    proto = prepare(model("Einsum", operands, (), equation=equation))
    assert not expand(proto, {"Einsum"}, CORRECTIONS)


def test_a_transform_of_reals_has_imaginary_parts_of_zero():
    """As that of onnxruntime and numpy: their sign decides an angle of pi or -pi."""
    operands = {"x": rand(3, 16, 1), "n": None, "axis": np.array(1)}
    (got,) = evaluated(expanded(model("DFT", operands, ("axis",), onesided=1)), operands)
    assert not got[:, [0, 8], 1].any() and got[:, 1:8, 1].all()


def test_inverse_of_half_a_transform():
    """The signal, of even and odd length."""
    for length in (8, 9):
        x = rand(3, length)
        half = np.fft.rfft(x)
        operands = {
            "x": np.stack([half.real, half.imag], -1).astype("float32"),
            "n": np.array(length),
        }
        proto = model("DFT", operands, "n", inverse=1, onesided=1)
        (got,) = evaluated(expanded(proto), operands)
        np.testing.assert_allclose(got[..., 0], x, atol=1e-6)


@pytest.mark.parametrize("is_circular", [False, True], ids=["linear", "circular"])
@pytest.mark.parametrize("has_positions", [False, True], ids=["first", "given"])
def test_tensor_scatter(has_positions, is_circular):
    past, update = rand(2, 3, 5, 4), rand(2, 3, 2, 4) + 9
    first = np.array([1, 4 if is_circular else 3]) if has_positions else np.zeros(2, int)
    want = past.copy()
    for item, begin in enumerate(first):
        want[item][:, [begin, (begin + 1) % 5]] = update[item]
    operands = {"past": past, "update": update, **({"at": first} if has_positions else {})}
    attrs = dict(mode="circular" if is_circular else "linear")
    (got,) = evaluated(expanded(model("TensorScatter", operands, **attrs)), operands)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
def test_cumulative_product(exclusive, reverse):
    x = rand(2, 4, 3)
    flipped = x[:, ::-1] if reverse else x
    want = np.cumprod(flipped, 1)
    if exclusive:
        want = np.concatenate([np.ones_like(x[:, :1]), want[:, :-1]], 1)
    operands = {"x": x, "axis": AXIS}
    proto = model("CumProd", operands, ("axis",), exclusive=exclusive, reverse=reverse)
    (got,) = evaluated(expanded(proto), operands)
    np.testing.assert_allclose(got, want[:, ::-1] if reverse else want, rtol=1e-6)


@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint64"])
def test_shifts_beyond_the_width(dtype, direction):
    """The standard fills with zeros, or with the sign."""
    width = 8 * np.dtype(dtype).itemsize
    x = np.array([-8 if dtype[0] == "i" else 200, 5, 1, 3, 7]).astype(dtype)
    shift = np.array([1, 0, width - 1, width, 100]).astype(dtype)
    numbers = [
        int(v) << int(s) if direction == "LEFT" else int(v) >> int(s) for v, s in zip(x, shift)
    ]
    want = np.array([n % 2**width for n in numbers], "uint64").astype(dtype)
    operands = {"x": x, "shift": shift}
    if dtype[0] == "i":
        operands = {"x": np.append(x, x[:1]), "shift": np.append(shift, np.array(-1, dtype))}
        want = np.append(want, np.array(0 if direction == "LEFT" else -1, dtype))
    proto = model("BitShift", operands, opset=11, direction=direction)
    (got,) = evaluated(expanded(proto, CORRECTIONS), operands)
    np.testing.assert_array_equal(got, want)


def test_shifts_by_a_constant_stay():
    operands = {"x": np.array([3, 4], "uint8"), "shift": np.array(1, "uint8")}
    proto = prepare(model("BitShift", operands, ("shift",), opset=11, direction="LEFT"))
    assert not expand(proto, {"BitShift"}, CORRECTIONS)


def test_remainders_of_infinity():
    """With the sign of the divisor, as numpy's."""
    x = np.array([3, -3, 3, -3, 1, -1, 0, np.inf, np.nan], "float32")
    y = np.array([2, 2, -2, -2, np.inf, np.inf, 5, 2, 1], "float32")
    operands = {"x": x, "y": y}
    (got,) = evaluated(expanded(model("Mod", operands, opset=13), CORRECTIONS), operands)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(got, np.mod(x, y))


@pytest.mark.parametrize("kind", ["INT4", "UINT4"])
@pytest.mark.parametrize("block", [0, 4])
def test_constants_of_4_bits(block, kind):
    """They are written in 8 bits, and blocks as an axis of their own."""
    values = np.arange(24).reshape(3, 8) % 16 - (8 if kind == "INT4" else 0)
    scale = rand(3, 8 // block if block else 1)
    zero = np.full(scale.shape, 3)
    if not block:
        scale, zero = scale[:, 0], zero[:, 0]
    attrs = dict(axis=1, block_size=4) if block else dict(axis=0)
    node = helper.make_node("DequantizeLinear", ["w", "scale", "zero"], ["y"], **attrs)
    weights = [
        helper.make_tensor("w", getattr(TensorProto, kind), values.shape, values.ravel()),
        numpy_helper.from_array(scale, "scale"),
        helper.make_tensor("zero", getattr(TensorProto, kind), zero.shape, zero.ravel()),
    ]
    output = helper.make_empty_tensor_value_info("y")
    graph = helper.make_graph([node], "model", [], [output], weights)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    new = expanded(proto, CORRECTIONS)
    assert {TensorProto.INT8, TensorProto.UINT8} > {t.data_type for t in new.graph.initializer} - {
        1
    }
    want = (values - 3) * np.repeat(scale, 4, 1) if block else (values - 3) * scale[:, None]
    for each in (new, expanded(new)) if block else (new,):
        np.testing.assert_allclose(*evaluated(each, {}), want, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_quantized_blocks(dtype):
    scale, zero = np.abs(rand(3, 2)) / 20, np.array([[1, 2]] * 3, dtype)
    operands = {"x": rand(3, 8), "scale": scale, "zero": zero}
    proto = model("QuantizeLinear", operands, opset=21, axis=1, block_size=4)
    np.testing.assert_array_equal(
        *evaluated(expanded(proto), operands), *evaluated(proto, operands)
    )


@pytest.mark.parametrize("opset", [4, 6])
def test_operands_at_an_axis(opset):
    """Before opset 7, they begin at it."""
    operands = {"x": rand(2, 3, 4), "y": rand(3)}
    proto = model("Add", operands, opset=opset, axis=1, broadcast=1)
    new = expanded(proto, CORRECTIONS)
    new.opset_import[0].version = 7
    for node in new.graph.node:
        del node.attribute[:]
    if opset == 6:
        np.testing.assert_allclose(
            *evaluated(new, operands), operands["x"] + operands["y"][:, None]
        )
    assert [node.op_type for node in new.graph.node] == ["Reshape", "Add"]


def test_nodes_that_are_not_valid_stay():
    for others, attrs in (({"z": rand(2)}, {}), ({}, dict(slope=2))):
        proto = prepare(model("Relu", {"x": rand(2, 3), **others}, **attrs))
        assert not expand(proto, {"Relu"})


def test_functions_of_the_standard():
    """With the defaults of attributes; names of two bodies differ."""
    operands = {"x": rand(2, 6, 4)}
    proto = model("Swish", operands, opset=24)
    proto.graph.node.append(helper.make_node("Swish", ["y0"], ["y1"], alpha=0.5))
    proto.graph.output[0].name = "y1"
    new = expanded(proto)
    assert {node.op_type for node in new.graph.node} == {"CastLike", "Mul", "Sigmoid"}
    np.testing.assert_allclose(*evaluated(new, operands), *evaluated(proto, operands), rtol=1e-6)


def test_softcap_is_applied_before_the_mask():
    q, k, v, mask = rand(1, 2, 3, 4), rand(1, 2, 5, 4), rand(1, 2, 5, 4), rand(3, 5)
    mask[0, 1] = -np.inf
    operands = {"q": q, "k": k, "v": v, "mask": mask}
    scores = np.einsum("bhqd,bhkd->bhqk", q, k) / 2
    scores = 0.5 * np.tanh(scores / 0.5) + mask
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    want = np.einsum("bhqk,bhkd->bhqd", weights / weights.sum(-1, keepdims=True), v)
    (got,) = evaluated(expanded(model("Attention", operands, softcap=0.5)), operands)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


REFUSED = {
    "length": (
        "DFT",
        {"x": SIGNAL, "n": LENGTH},
        {},
        "dft_length that is not constant .*`constants`",
    ),
    "size": ("DFT", {"x": SIGNAL}, {"x": [2, 12, "n", 1]}, r"axis 2 of an open size \(fix it"),
    "matrix": ("Det", {"x": rand(4, 4)}, {}, "a matrix of 4 columns, more than 3, cannot"),
}


@pytest.mark.parametrize("op, operands, dims, reason", REFUSED.values(), ids=REFUSED)
def test_refused(op, operands, dims, reason):
    proto = prepare(model(op, operands, dims=dims))
    with pytest.raises(ValueError, match=f"ONNX {op}, node the node: {reason}"):
        expand(proto, {op})


def test_an_importer_is_called_until_it_refuses_nothing():
    operands = {"x": rand(2, 3)}
    seen = []

    def convert(proto):
        seen.append([node.op_type for node in proto.graph.node])
        for op in seen[-1]:
            if op in ("SwiGLU", "Swish"):
                raise ValueError(f"no converter for {op}")
        return proto

    proto = prepare(model("Swish", operands, opset=24))
    assert import_expanded(proto, convert) is proto and seen[0] == ["Swish"] and len(seen) == 2


def test_the_first_error_is_raised():
    """Not that of what an op was expanded to."""
    errors = ["no converter for Swish", "no converter for Sigmoid"]
    proto = prepare(model("Swish", {"x": rand(2, 3)}, opset=24))

    def convert(proto):
        raise ValueError(errors.pop(0))

    with pytest.raises(ValueError, match="no converter for Swish"):
        import_expanded(proto, convert)
    assert not errors
