# SPDX-License-Identifier: Apache-2.0
"""The matmuls of the inputs of a recurrent layer's steps, which become one."""

import numpy as np
import pytest
from tvm import relay
from tvm.relay.op.contrib import dnnl

from dnnl_tests import direct
from dnnl_tests.reference import RTOL, rand
from dnnl_tests.relay import module, partition, var

STEPS, BATCH, INPUTS, HIDDEN = 3, 2, 8, 16
X = rand(STEPS, BATCH, INPUTS)


def weights(*shape, same=True):
    """Return the weights of each step."""
    return [rand(*shape, seed=0 if same else i) for i in range(STEPS)]


def parts(x, axis=0):
    """Return the inputs of the steps as TVM's importers write them."""
    count = int(x.type_annotation.shape[axis])
    return [relay.squeeze(part, axis=[axis]) for part in relay.split(x, count, axis)]


def layer(inputs, kernels, biases):
    """Return the states of steps that multiply their input and the last state by weights.

    Importers make the constants of each step anew.
    """
    state, states = relay.zeros((BATCH, HIDDEN), "float32"), []
    for x_t, kernel, bias in zip(inputs, kernels, biases):
        step = relay.concatenate([x_t, state], axis=1)
        gates = relay.add(relay.nn.dense(step, relay.const(kernel)), relay.const(bias))
        # An RNN with tanh would be one op.
        state = relay.sigmoid(gates)
        states.append(state)
    return relay.stack(states, axis=0)


def states(inputs, kernels, biases):
    """Compute the states in float64."""
    state, out = np.zeros((BATCH, HIDDEN)), []
    for x_t, kernel, bias in zip(inputs.astype("float64"), kernels, biases):
        gates = np.concatenate([x_t, state], axis=1) @ kernel.T + bias
        state = 1 / (1 + np.exp(-gates))
        out.append(state)
    return np.stack(out)


@pytest.mark.parametrize("sign", [1, -1], ids=["forward", "backward"])
def test_inputs_of_all_steps_are_multiplied_at_once(sign):
    kernels, biases = weights(HIDDEN, INPUTS + HIDDEN), weights(HIDDEN)
    x = var("x", STEPS, BATCH, INPUTS)
    mod = module(layer(parts(x)[::sign], kernels, biases))
    report = dnnl.offload_report(partition(mod))
    assert report.partitions == 1 and report.offloaded == report.total
    # The first state is constant, and so is its matmul.
    others = {"dnnl.dense_sum_sigmoid": STEPS - 1, "dnnl.add_sigmoid": 1}
    assert report.composites == {"dnnl.dense_bias": 1, **others}
    assert "concatenate" not in report.ops
    direct.check(mod, {"x": X}, reference=[states(X[::sign], kernels, biases)], rtol=RTOL)


def test_inputs_without_a_state():
    """As a GRU has them."""
    kernels, biases = weights(HIDDEN, INPUTS), weights(1, HIDDEN)
    x = var("x", STEPS, BATCH, INPUTS)
    own = [
        relay.nn.bias_add(relay.nn.dense(x_t, relay.const(kernel)), relay.const(bias[0]))
        for x_t, kernel, bias in zip(parts(x), kernels, biases)
    ]
    mod = module(relay.stack([relay.tanh(each) for each in own], axis=0))
    report = dnnl.offload_report(partition(mod))
    assert report.composites == {"dnnl.dense_bias": 1} and report.ops["nn.dense"] == 1
    expected = np.tanh(X.astype("float64") @ kernels[0].T + biases[0])
    direct.check(mod, {"x": X}, reference=[expected], rtol=RTOL)


STAYS = {
    "weights of each step": dict(same=False),
    "biases of each step": dict(same_biases=False),
    "some of the steps": dict(shape=(STEPS + 1, BATCH, INPUTS)),
    "another axis": dict(shape=(BATCH, STEPS, INPUTS), axis=1),
    "excluded": dict(exclude=["strided_slice"]),
}


@pytest.mark.parametrize("case", STAYS.values(), ids=STAYS)
def test_steps_that_stay(case):
    kernels = weights(HIDDEN, INPUTS + HIDDEN, same=case.get("same", True))
    biases = weights(HIDDEN, same=case.get("same_biases", True))
    x = var("x", *case.get("shape", X.shape))
    axis = case.get("axis", 0)
    mod = module(layer(parts(x, axis), kernels, biases))
    options = {"exclude": case.get("exclude", [])}
    report = dnnl.offload_report(partition(mod, **options))
    assert report.ops["nn.dense"] == report.ops["concatenate"] == STEPS
    values = rand(*case.get("shape", X.shape))
    expected = states(np.moveaxis(values, axis, 0), kernels, biases)
    direct.check(mod, {"x": values}, options=options, reference=[expected], rtol=RTOL)
