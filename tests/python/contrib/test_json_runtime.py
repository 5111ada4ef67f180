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
"""The JSON graph and the base class of JSON modules, seen from Python through a DNNL module."""

import json

import numpy as np
import pytest
import tvm
from dnnl_tests import small_graph as small
from dnnl_tests.marks import json_only
from dnnl_tests.reference import RTOL
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

pytestmark = json_only


def check_runs(module):
    testing.assert_close(small.run(module), small.reference(), RTOL)


def test_layout_of_the_graph():
    graph = small.graph()
    symbol, _, names = small.parts()
    assert list(graph) == ["symbol", "nodes", "arg_nodes", "heads", "node_row_ptr"]
    assert graph["symbol"] == symbol
    kinds = [node["op"] for node in graph["nodes"]]
    assert sorted(kinds) == ["const"] * 3 + ["input"] + ["kernel"] * 2
    assert graph["arg_nodes"] == [i for i, kind in enumerate(kinds) if kind != "kernel"]
    assert graph["node_row_ptr"] == list(range(len(kinds) + 1))
    assert len(graph["heads"]) == 2
    assert [node["name"] for node in graph["nodes"] if node["op"] == "const"] == names
    for node in graph["nodes"]:
        assert ("inputs" in node) == (node["op"] == "kernel")
        assert list(node["attrs"]["shape"][0][0]) and node["attrs"]["dtype"] == [["float32"]]


def test_constants_are_named_as_the_updater_names_them():
    """TVM wants the names to begin with that of the backend; they are counted from 0."""
    symbol, text, names = small.parts()
    assert sorted(names) == [f"dnnl_{symbol}_const_{i}" for i in range(3)]
    # 576 numbers of the weight alone would need more.
    assert len(text) < 5000


def test_text_is_the_same_in_every_build():
    text = small.parts()[1]
    assert str(small.runtime_module().get_source("json")) == text


def test_get_source():
    module = small.create(small.parts()[1])
    assert module.get_source("json") == module.get_source() == small.parts()[1]
    assert module.get_source("asm") == ""
    assert module.type_key == "dnnl_json"


def kernel_attrs(expr, op):
    """Return the attributes of the node of `op` in the graph of a partitioned expression."""
    mod = dnnl.partition_for_dnnl(tvm.IRModule.from_expr(expr), prune=False)
    (module,) = testing.dnnl_modules(testing.build(mod))
    nodes = json.loads(module.get_source("json"))["nodes"]
    (attrs,) = [n["attrs"] for n in nodes if op in (n["name"], *n["attrs"].get("root_op", [[]])[0])]
    return attrs


def test_attributes_as_text():
    x = relay.var("x", shape=(1, 8, 6, 6))
    w = relay.var("w", shape=(8, 2, 3, 3))
    conv = relay.nn.conv2d(x, w, kernel_size=(3, 3), channels=8, groups=4, padding=(1, 0, 2, 1))
    attrs = kernel_attrs(conv, "nn.conv2d")
    assert attrs["num_inputs"] == "2" and attrs["num_outputs"] == "1"
    assert attrs["groups"] == [["4"]]
    assert attrs["channels"] == [["8"]]
    assert attrs["padding"] == [["1", "0", "2", "1"]]
    assert attrs["data_layout"] == [["NCHW"]]
    assert attrs["out_layout"] == [[""]] and attrs["out_dtype"] == [[""]]
    assert attrs["shape"] == [[[1, 8, 7, 5]]]


@pytest.mark.parametrize("epsilon", [1e-5, 0.1, 1 / 3, 1e-300])
def test_floats_keep_every_bit(epsilon):
    x = relay.var("x", shape=(1, 8, 6, 6))
    stats = [relay.var(name, shape=(8,)) for name in "gbmv"]
    norm = relay.nn.batch_norm(x, *stats, axis=1, epsilon=epsilon, scale=False)
    attrs = kernel_attrs(norm.astuple(), "nn.batch_norm")
    assert float(attrs["epsilon"][0][0]) == epsilon
    assert attrs["center"] == [["1"]] and attrs["scale"] == [["0"]]
    assert attrs["num_outputs"] == "3"
    assert attrs["shape"] == [[[1, 8, 6, 6], [8], [8]]]


def test_a_module_made_from_the_text_runs():
    check_runs(small.create(small.parts()[1]))


def without_optional_parts(graph):
    """What other writers may leave out or add."""
    del graph["symbol"]
    graph["format_version"] = 1
    for node in graph["nodes"]:
        node["attrs"].pop("num_inputs", None)
        node["attrs"].pop("num_outputs", None)
        node["inputs"] = [entry[:2] for entry in node.get("inputs", [])]
    graph["heads"] = [entry[:2] for entry in graph["heads"]]
    return graph


@pytest.mark.parametrize("indent", [None, 0, 3], ids=lambda indent: f"indent-{indent}")
def test_other_writers_are_read(indent):
    check_runs(small.create(json.dumps(without_optional_parts(small.graph()), indent=indent)))


def test_the_binary_form(tmp_path):
    """export_library keeps symbol, graph and names; load_module gives the same module."""
    lib = testing.build(dnnl.partition_for_dnnl(small.relay_module()))
    path = str(tmp_path / "model.so")
    lib.export_library(path)
    (loaded,) = testing.dnnl_modules(tvm.runtime.load_module(path))
    symbol, text, names = small.parts()
    assert loaded.get_source("json") == text
    assert loaded.get_function("get_symbol")() == symbol
    assert [str(name) for name in loaded.get_function("get_const_vars")()] == names
    check_runs(loaded)


def test_init_runs_once_and_returns_zero():
    module = small.create(small.parts()[1])
    init = module.get_function("__init_" + small.parts()[0])
    assert init(small.constants()) == 0
    # The second call is ignored, even with other constants.
    assert init([tvm.nd.array(2 * value.numpy()) for value in small.constants()]) == 0
    check_runs(module)


def changed_constant(change):
    """Return the constants, the first of them changed, and the name of that one."""
    values = small.constants()
    values[0] = tvm.nd.array(change(values[0].numpy()))
    return values


BAD_CONSTANTS = {
    "none": (lambda: [], "has 3 constants, got 0"),
    "too-few": (lambda: small.constants()[:2], "has 3 constants, got 2"),
    "too-many": (lambda: small.constants() * 2, "has 3 constants, got 6"),
    "shape": (lambda: changed_constant(lambda v: v[..., :1]), "_const_.*another shape"),
    "rank": (lambda: changed_constant(np.ravel), "_const_.*another shape"),
    "dtype": (lambda: changed_constant(lambda v: v.astype("int32")), "_const_.*type int32"),
}


@pytest.mark.parametrize("values, message", BAD_CONSTANTS.values(), ids=BAD_CONSTANTS.keys())
def test_bad_constants(values, message):
    module = small.create(small.parts()[1])
    with pytest.raises(tvm.TVMError, match=message) as error:
        module.get_function("__init_" + small.parts()[0])(values())
    assert small.parts()[0] in str(error.value)
    # It is not initialised, and can still be.
    check_runs(module)


def test_unknown_functions_are_not_there():
    module = small.create(small.parts()[1])
    for name in ("other", "__init_other", "__init_"):
        with pytest.raises(AttributeError):
            module.get_function(name)


if __name__ == "__main__":
    tvm.testing.main()
