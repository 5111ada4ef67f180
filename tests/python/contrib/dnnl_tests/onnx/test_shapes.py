# SPDX-License-Identifier: Apache-2.0
"""ONNX nodes whose result is empty, has another shape, or depends on a loop, in Relay."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from tvm.error import OpAttributeInvalid, OpAttributeUnImplemented, OpNotImplemented
from tvm.relay.op.contrib import dnnl

from dnnl_tests.onnx.test_integers import check, results
from dnnl_tests.reference import rand


@pytest.mark.parametrize("dims", [(3, 5), ("n", "m")], ids=["fixed", "open"])
@pytest.mark.parametrize(
    "bounds", [(3, 1, 1, 1), (0, 3, 1, -1), (-1, -3, -1, 1), (2, 2, 0, 1)], ids=str
)
def test_empty_slice(bounds, dims):
    """TVM refuses an end before the start."""
    x, names = rand(3, 5), ("start", "end", "axes", "steps")
    start, end, axis, step = bounds
    wanted = x[start:end:step] if axis == 0 else x[:, start:end:step]
    constants = {name: np.array([value]) for name, value in zip(names, bounds)}
    check("Slice", {"x": x}, wanted, constants=constants, dims={"x": dims})


# Start, end and step along an axis of 5.
BOUNDS = [
    *((3, 1, 1), (-1, 1, 1), (-9, -1, 1), (1, -9, 1), (1, -1, 1), (2, 9, 2), (7, 9, 1)),
    *((-1, -9, -1), (9, 1, -2), (0, 3, -1), (-9, -7, -1), (3, -4, -1), (-1, 1, -1)),
]


def compiled(nodes, inputs, dims, constants):
    """Compile a model with a result y."""
    infos = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(value.dtype), dims.get(name, value.shape)
        )
        for name, value in inputs.items()
    ]
    weights = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    output = helper.make_empty_tensor_value_info("y")
    graph = helper.make_graph(nodes, "model", infos, [output], weights)
    return dnnl.compile(helper.make_model(graph, ir_version=8), prune=False)


@pytest.mark.parametrize("dims", [(3, 5), ("n", "m")], ids=["fixed", "open"])
@pytest.mark.parametrize("step", [1, -2, None])
def test_slice_of_computed_bounds(step, dims):
    """TVM computes negative sizes, or reads other elements; None: the step is computed, too."""
    x, axis, steps = rand(3, 5), np.array([1]), np.array([step or 0])
    inputs, constants = {"x": x, "start": axis, "end": axis}, {"axis": axis}
    (constants if step else inputs)["steps"] = steps
    node = helper.make_node("Slice", ["x", "start", "end", "axis", "steps"], ["y"])
    model = compiled([node], inputs, {"x": dims}, constants)
    for start, end, each in BOUNDS:
        each = step or each
        given = {"start": np.array([start]), "end": np.array([end]), "steps": np.array([each])}
        got = model(x=x, **{name: given[name] for name in inputs if name != "x"})
        np.testing.assert_array_equal(np.asarray(got), x[:, start:end:each])


@pytest.fixture(scope="module")
def sliced():
    """A model of slices of open sizes, which is compiled once for all of them."""
    constants, nodes, names = {"axis": np.array([1]), "all": np.array([-1])}, [], []
    for k, bounds in enumerate(BOUNDS):
        given = [f"{name}{k}" for name in ("start", "end", "step")]
        constants.update({name: np.array([value]) for name, value in zip(given, bounds)})
        nodes.append(helper.make_node("Slice", ["x", *given[:2], "axis", given[2]], [f"part{k}"]))
        nodes.append(helper.make_node("Reshape", [f"part{k}", "all"], [f"flat{k}"]))
        names.append(f"flat{k}")
    nodes.append(helper.make_node("Concat", names, ["y"], axis=0))
    return compiled(nodes, {"x": rand(3, 5)}, {"x": ("n", "m")}, constants)


@pytest.mark.parametrize("size", [5, 2, 1])
def test_slices_of_open_sizes(size, sliced):
    """Bounds that are in order for most sizes are not for the smallest."""
    x = rand(3, size)
    wanted = [x[:, start:end:step].ravel() for start, end, step in BOUNDS]
    np.testing.assert_array_equal(np.asarray(sliced(x=x)), np.concatenate(wanted))


def test_slice_of_which_one_axis_is_empty():
    x = rand(3, 5)
    check("Slice", {"x": x}, x[2:1, 1:4], opset=9, starts=[2, 1], ends=[1, 4], axes=[0, 1])


def test_empty_slice_in_a_concat():
    x, bounds = rand(3, 5), {"start": np.array([2]), "end": np.array([1])}
    part = helper.make_node("Slice", ["x", *bounds], ["none"])
    join = helper.make_node("Concat", ["none", "x"], ["y"], axis=0)
    np.testing.assert_array_equal(results([part, join], {"x": x}, bounds), x)


@pytest.mark.parametrize("counts", [(0, 2), (1, 0), (2, 3)], ids=str)
def test_tile(counts):
    """TVM refuses to repeat zero times."""
    x = rand(3, 5)
    check("Tile", {"x": x}, np.tile(x, counts), constants={"counts": np.array(counts)})


@pytest.mark.parametrize("dims", [(3, 5), ("n", "m")], ids=["fixed", "open"])
@pytest.mark.parametrize("mode", ["constant", "edge", "reflect"])
@pytest.mark.parametrize("axes", [[1], [-1], [1, 0]], ids=str)
def test_pad_of_some_axes(axes, mode, dims):
    """TVM ignores the axes and the value."""
    x, widths = rand(3, 5), [(0, 0), (0, 0)]
    for k, axis in enumerate(axes):
        widths[axis] = (k + 1, 2)
    wanted = np.pad(x, widths, mode, **({"constant_values": 3} if mode == "constant" else {}))
    pads = [k + 1 for k in range(len(axes))] + [2] * len(axes)
    constants = {"pads": np.array(pads), "value": np.float32(3), "axes": np.array(axes)}
    check("Pad", {"x": x}, wanted, opset=18, constants=constants, dims={"x": dims}, mode=mode)


@pytest.mark.parametrize("is_constant", [False, True], ids=["computed", "constant"])
@pytest.mark.parametrize("shape, wanted", [((0, 3, 4), (3, 4, 0)), ((2, 3), (3, 2))], ids=str)
def test_reshape_with_allowzero(shape, wanted, is_constant):
    """TVM lets a zero stand for the size of the data."""
    x, sizes = rand(*shape), {"sizes": np.array(wanted)}
    operands, constants = {"x": x, **sizes}, {}
    if is_constant or 0 in wanted:
        constants["sizes"] = operands.pop("sizes")
    check("Reshape", operands, x.reshape(wanted), 14, constants, allowzero=1)


@pytest.mark.parametrize("opset, dtype", [(7, "float32"), (10, "bool"), (13, "bool")])
def test_the_mask_of_a_dropout(opset, dtype):
    """TVM has no second result."""
    x = rand(3, 5)
    node = helper.make_node("Dropout", ["x"], ["kept", "mask"])
    add = helper.make_node("Cast", ["mask"], ["y"], to=TensorProto.FLOAT)
    if dtype == "float32":
        add = helper.make_node("Add", ["mask", "kept"], ["y"])
    wanted = x + 1 if dtype == "float32" else np.ones_like(x)
    np.testing.assert_allclose(results([node, add], {"x": x}, opset=opset), wanted)


def body(prefix="", is_computed=False):
    """Return the body of a loop that adds x, and collects the squares of the sums."""
    c_in, s_in, c, s, square = (prefix + each for each in ("c_in", "s_in", "c", "s", "square"))
    condition = [helper.make_node("Identity", [c_in], [c])]
    if is_computed:
        condition = [
            helper.make_node("ReduceSum", [s], [prefix + "total"], keepdims=0),
            helper.make_node("Less", [prefix + "total", "limit"], [c]),
        ]
    nodes = [helper.make_node("Add", [s_in, "x"], [s]), *condition]
    nodes.append(helper.make_node("Mul", [s, s], [square]))

    def info(name, kind, shape):
        return helper.make_tensor_value_info(name, kind, shape)

    kinds = TensorProto
    given = [info(prefix + "i", kinds.INT64, []), info(c_in, kinds.BOOL, [])]
    given.append(info(s_in, kinds.FLOAT, [3]))
    outputs = [info(c, kinds.BOOL, []), info(s, kinds.FLOAT, [3]), info(square, kinds.FLOAT, [3])]
    return helper.make_graph(nodes, f"{prefix}body", given, outputs)


@pytest.mark.parametrize(
    "limit, trips", [("constant", [2]), ("constant", [0]), ("computed", [2, 0]), ("", [2])], ids=str
)
@pytest.mark.parametrize("condition", ["constant", "computed", ""])
def test_loop(limit, trips, condition):
    """TVM needs a limit and a condition, and collects nothing of a shape of its own."""
    if not limit and condition != "computed":
        pytest.skip("endless")
    x, start = np.array([1, 2, 3], "float32"), np.zeros(3, "float32")
    operands, constants = {"x": x, "s": start}, {"limit": np.float32(9), "c": np.array(True)}
    if limit:
        (constants if limit == "constant" else operands)["m"] = np.array(trips[0])
    loop_body = body(is_computed=condition == "computed")
    names = ["m" if limit else "", "c" if condition else "", "s"]
    node = helper.make_node("Loop", names, ["last", "all"], body=loop_body)
    join = helper.make_node("Concat", ["all", "rows"], ["y"], axis=0)
    model = compiled([node, join], operands, {}, {**constants, "rows": x[None]})
    for count in trips:
        given = {name: np.array(count) if name == "m" else operands[name] for name in operands}
        rows = [(x * (k + 1)) ** 2 for k in range(count)]
        np.testing.assert_allclose(np.asarray(model(**given)), np.stack([*rows, x]))


def test_two_loops_over_one_input():
    """A graph input that a loop reads first, and nodes later, is one variable."""
    x, start = np.array([1, 2, 3], "float32"), np.zeros(3, "float32")
    constants = {"limit": np.float32(9), "c": np.array(True), "m": np.array(2)}
    nodes = [
        helper.make_node("Loop", ["m", "c", "s"], ["a", "a2"], body=body("a", True)),
        helper.make_node("Loop", ["m", "c", "s"], ["b", "b2"], body=body("b")),
        helper.make_node("Add", ["a", "b"], ["y"]),
    ]
    np.testing.assert_allclose(results(nodes, {"x": x, "s": start}, constants, 18), 4 * x)


@pytest.mark.parametrize("op", ["Max", "Min"])
def test_an_extremum_of_nan_is_nan(op):
    """TVM returns the second operand."""
    a, b = (np.array(each, "float32") for each in ([1, np.nan, 3, 5], [np.nan, 2, 2, 6]))
    check(op, {"a": a, "b": b}, (np.maximum if op == "Max" else np.minimum)(a, b), 13)
    check(op, {"a": a}, a, 13)


def refused(node, error, text, shape=(3, 5), opset=19, constants=()):
    """Check that an error names a node."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_empty_tensor_value_info(node.output[-1])
    weights = [helper.make_tensor(n, k, [len(v)], v) for n, k, v in constants]
    graph = helper.make_graph([node], "model", [x], [y], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    with pytest.raises(error, match=text):
        dnnl.from_onnx(model)


def test_errors_name_the_node():
    """Whatever TVM's converters raise."""
    pads = [("p", TensorProto.INT64, [1, 1, 1, 1])]
    node = helper.make_node("Pad", ["x", "p"], ["y"], name="the pad", mode="wrap")
    refused(node, OpAttributeInvalid, "ONNX Pad, node the pad: .*wrap", constants=pads)
    node = helper.make_node("Dropout", ["x", "r", "t"], ["y"], name="drop")
    constants = [("r", TensorProto.FLOAT, [0.5]), ("t", TensorProto.BOOL, [True])]
    refused(node, OpAttributeUnImplemented, "node drop: training_mode", constants=constants)
    node = helper.make_node("LpPool", ["x"], ["y"], name="p", kernel_shape=[2], dilations=[2])
    refused(node, OpNotImplemented, "ONNX LpPool, node p cannot be imported", (1, 2, 8))
