# SPDX-License-Identifier: Apache-2.0
"""Each op of Relax in bfloat16 and float16, on a CPU that lacks the type."""

import pytest
import tvm_dnnl
from dnnl_tests.net import TRIES
from dnnl_tests.pretended_cpu import only_float32
from tvm.contrib.onednn.ops.evaluate import evaluate
from tvm.contrib.onednn.ops.rules import Rules
from tvm.contrib.onednn.ops.table import TABLE
from tvm_dnnl._dnnl.reading import constant_of

from dnnl_relax.ops.draws import DRAWS
from dnnl_relax.ops.test_net import (
    WRONG_IN_TVM,
    differences,
    draw,
    graph_of,
    judged,
    partitions,
    results_of,
    type_problems,
    values_of,
)


@pytest.mark.parametrize("dtype", ["float16", pytest.param("bfloat16", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", [name for name in DRAWS if name not in WRONG_IN_TVM])
def test_in_float32(name, dtype):
    """What oneDNN runs in float32 it runs in float32 if the model has it in another type."""
    for seed in range(TRIES):
        mod, wide = (draw(name, each, seed, False) for each in (dtype, "float32"))
        if mod is None or wide is None or not judged(wide, []):
            continue
        with only_float32():
            partitioned = tvm_dnnl.partition_for_dnnl(mod, prune=False, strict=True)
        graph, report = graph_of(mod), tvm_dnnl.offload_report(partitioned)
        # Data that are only moved or converted stay, and an op that changes nothing is gone.
        names = [node.name for node in graph.nodes if node.is_call and node.name != "cast"]
        stays = all(map(Rules(TABLE).moves, names)) or not report.total
        assert stays or partitions(partitioned), partitioned.script()
        assert not [each for func in partitions(partitioned) for each in type_problems(func)]
        inputs = [values_of(param.ty, k) for k, param in enumerate(mod["main"].params)]
        inputs = [constant_of(a, str(p.ty.dtype)) for a, p in zip(inputs, mod["main"].params)]
        inputs = [getattr(each, "value", None) or each.data for each in inputs]
        wanted = evaluate(graph, [each.numpy() for each in inputs])
        got = results_of(partitioned, inputs)
        assert not differences("ordinary", {name}, got, wanted, 0.0), mod.script()
        return
    pytest.skip("Relax has no such call, or oneDNN does not run it in float32")
