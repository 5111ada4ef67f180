# SPDX-License-Identifier: Apache-2.0
"""Prompts of new lengths: the layers of a model have one plan."""

import dataclasses
import json

import numpy as np
import pytest
import tvm
import tvm_dnnl
from dnnl_tests.models import llama

from dnnl_relax.language.test_llama import reference
from dnnl_relax.modules import compiled, imported, partitions, virtual_machine

CONFIG = dataclasses.replace(llama.TINY, layers=6)
LENGTHS = [7, 3, 7, 40, 1, 3, 12]


@pytest.fixture(scope="module")
def model():
    """Return the functions that run a call, by onnxruntime and here, and the partition."""
    proto = llama.model(CONFIG, llama.random_weights(CONFIG))
    partitioned = tvm_dnnl.partition_for_dnnl(tvm_dnnl.from_onnx(proto))
    assert partitions(partitioned) == 1
    machine = virtual_machine(compiled(partitioned))

    def run(inputs):
        results = machine["main"](*(tvm.runtime.tensor(value) for value in inputs.values()))
        return [result.numpy() for result in results]

    (partition,) = imported(machine.module, "dnnl_json")
    return reference(proto), run, partition


def ids(count):
    return [int(each) for each in np.random.default_rng(count).integers(0, 128, count)]


def check(got, expected):
    """Sums in float32 in another order, over six layers."""
    for one, other in zip(got, expected):
        np.testing.assert_allclose(one, other, rtol=0, atol=2e-5 * np.abs(other).max())


def last_plan(partition):
    return json.loads(partition["get_plan"]())["plans"][0]


def test_alternating_lengths(model):
    """Layers are stages, which name their own nodes."""
    expected, run, partition = model
    for count in LENGTHS:
        inputs = llama.inputs(CONFIG, ids(count))
        check(run(inputs), expected(inputs))
        plan = last_plan(partition)
        assert plan["stages"] >= CONFIG.layers
        attention = [step["node"] for step in plan["primitives"] if step["op"] == "dnnl.attention"]
        assert len(attention) == len(set(attention)) == CONFIG.layers


def test_prompts_that_follow_each_other(model):
    """Both the past and the prompt have new lengths; tokens between them have one row."""
    expected, run, _ = model
    caches = [None, None]
    for count in (5, 1, 1, 9, 1, 4, 1, 1):
        inputs = [llama.inputs(CONFIG, ids(count), cache) for cache in caches]
        results = [one(each) for one, each in zip((run, expected), inputs)]
        check(*results)
        caches = [result[1:] for result in results]


def test_a_length_that_fails(model):
    """The others stay usable."""
    expected, run, _ = model
    for count in (6, 14):
        wrong = llama.inputs(CONFIG, ids(count))
        wrong["attention_mask"] = wrong["attention_mask"][:, :-1]
        with pytest.raises(Exception, match="(?i)shape|mask|dimension|equal"):
            run(wrong)
        inputs = llama.inputs(CONFIG, ids(count))
        check(run(inputs), expected(inputs))


def test_constants_are_packed_once(model):
    _, run, partition = model
    sizes = []
    for count in (21, 22, 23):
        run(llama.inputs(CONFIG, ids(count)))
        sizes.append(json.loads(partition["get_plan"]())["packed_constant_bytes"])
    assert len(set(sizes)) == 1
