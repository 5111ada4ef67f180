# SPDX-License-Identifier: Apache-2.0
"""What the policy sees of ops and graphs: made by hand without an IR, and read from Relay."""

from types import SimpleNamespace

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.contrib.onednn.ir.graph import Graph
from tvm.contrib.onednn.ir.node import CALL, INPUT, Node, constant
from tvm.contrib.onednn.ir.op_view import NoTensor, OpView, Tensor
from tvm.contrib.onednn.ops.rules import Rules
from tvm.contrib.onednn.ops.schema import OpSchema
from tvm.contrib.onednn.ops.table import TABLE
from tvm.contrib.onednn.options import Options
from tvm.contrib.onednn.partition.units import OffloadDecision, Units
from tvm.relay.op.contrib._dnnl.ir.relay_view import view_of

from dnnl_tests.single_op import var

CONV = dict(data_layout="NCHW", kernel_layout="OIHW", out_layout="", groups=1)
CONV.update(strides=(1, 1), padding=[1, 1], dilation=(1, 1))


def conv(data=(None, 3, 8, 8), **attrs):
    """Return a convolution of four output channels, with the batch open."""
    args = [Tensor(data, "float32"), Tensor((4, 3, 3, 3), "float32")]
    result = Tensor((data[0], 4, *data[2:]), "float32")
    attrs = SimpleNamespace(**{**CONV, **attrs})
    return OpView("nn.conv2d", args, (result,), attrs, ["data", "weight"])


def read(expr):
    """Return the view of the call that ends an expression."""
    return view_of(relay.transform.InferType()(tvm.IRModule.from_expr(expr))["main"].body)


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (conv(), None),
        (conv((1, None, 8, 8)), "data of shape (1, ?, 8, 8) has open channels; oneDNN requires"),
        (conv(strides=(1, "n")), "strides=[1, 'n'] is not 2 positive integers"),
        (conv(groups=2), "groups=2 does not divide 3 input channels"),
        (
            OpView("nn.relu", [NoTensor("TupleType")], ()),
            "argument 0 is of TupleType, not a tensor",
        ),
        (OpView("atan", [], ()), "no rule for this op"),
        (None, "no rule for this op"),
    ],
)
def test_rules_need_no_ir(call, reason):
    got = Rules(TABLE).refusal(call)
    assert got == reason if reason is None else got.startswith(reason)


def test_a_rule_is_asked_once_for_a_call(monkeypatch):
    asked = []
    row = OpSchema("nn.relu", asked.append)
    rules, x = Rules({"nn.relu": row}), var("x", (2, 3))
    body = relay.transform.InferType()(tvm.IRModule.from_expr(relay.nn.relu(x)))["main"].body
    assert rules.refusal(view_of(body)) is None and rules.refusal(view_of(body)) is None
    assert len(asked) == 1
    assert rules.refusal(read(relay.nn.relu(x))) is None and len(asked) == 2


def test_an_open_result_needs_a_shape_function():
    tensor = Tensor((None, 4), "float32")
    call = OpView("nn.relu", [tensor], (tensor,))
    assert Rules(TABLE).refusal(call) is None
    call.has_shape_function = False
    reason = "the result has open dimensions, and TVM has no shape function for this op"
    assert Rules(TABLE).refusal(call) == reason


def test_a_constant_is_read_when_its_value_is():
    reads = []
    tensor = Tensor((2,), "float32", lambda: reads.append(1) or np.ones(2, "float32"))
    assert tensor.is_constant and not reads
    assert tensor.value.shape == (2,) and reads
    assert Tensor((2,), "float32").value is None


def test_relay_call():
    weight = relay.const(np.ones((4, 3, 3, 3), "float32"))
    call = read(relay.nn.conv2d(var("x", (relay.Any(), 3, 8, 8)), weight, padding=(1, 1)))
    data, kernel = call.args
    assert (call.name, call.arg_names) == ("nn.conv2d", ["data", "weight"])
    assert (data.shape, data.dtype, data.is_constant) == ((None, 3, 8, 8), "float32", False)
    assert kernel.is_constant and kernel.shape == (4, 3, 3, 3) and kernel.value.all()
    assert call.result.shape == (None, 4, 8, 8) and not call.returns_tuple
    assert call.attrs.kernel_layout == "OIHW" and call.has_shape_function


def test_relay_tuples():
    x = var("x", (4, 3))
    parts = relay.split(x, 2)
    assert [part.shape for part in read(parts.astuple()).results] == [(2, 3), (2, 3)]
    assert read(parts.astuple()).returns_tuple
    (fields,) = read(relay.concatenate([x, x], 0)).args
    assert [field.shape for field in fields] == [(4, 3), (4, 3)]
    assert read(relay.concatenate(parts.astuple(), 0)).args == [NoTensor("TupleType")]


def test_relay_expressions_that_call_no_op():
    x = var("x", (4, 3))
    func = relay.Function([x], x)
    for expr in (x, relay.Tuple([x]), relay.Call(func, [x]), func):
        assert view_of(expr) is None
    virtual = relay.Call(func.with_attr("Composite", "dnnl.gelu_erf"), [x])
    view = view_of(virtual)
    assert (view.name, view.arg_names) == ("dnnl.gelu_erf", ["argument 0"])


def test_partitions_need_no_ir():
    graph, call = Graph(), conv()
    data = graph.append(Node(INPUT, None, [], call.args[0]))
    weight = graph.append(constant(np.ones((4, 3, 3, 3), "float32")))
    node = graph.append(Node(CALL, call.name, [data, weight], call.result, call.attrs))
    relu = graph.append(Node(CALL, "nn.relu", [node], call.result, SimpleNamespace()))
    units = Units(graph, Rules(TABLE))
    decision = OffloadDecision(units)
    assert [(fused.name, fused.chain) for fused in units.fused.values()] == [
        ("dnnl.conv2d_relu", [node, relu])
    ]
    assert decision.partitions == [[relu]] and not decision.reasons
    assert decision.regions.inputs([relu]) == [data]
    excluded = Rules(TABLE, Options(exclude=frozenset(["nn.conv2d"])))
    decision = OffloadDecision(Units(graph, excluded))
    assert decision.partitions == []
    assert decision.reasons == {
        relu: "pruned: too small to be faster: cost of 256 elements, below 65536"
    }
