# SPDX-License-Identifier: Apache-2.0
"""Weights of a model with open dimensions: one packed copy serves one row and many rows."""

import json
from pathlib import Path

import numpy as np
import pytest
import tvm
import tvm_dnnl
from tvm import relax
from tvm.relax import op

from dnnl_relax.modules import compiled, imported, module, partitions, rand, var
from dnnl_relax.runtime.test_memory import in_new_process, resident_megabytes

# One row, few rows, and more than an inner_product is chosen for.
ROWS = (50, 1, 200, 2)


def layers_of(values, transposed):
    """Dense layers with relus on rows of an open number."""

    def build(builder, x):
        for value in values:
            weight = relax.const(value)
            if transposed:
                weight = builder.emit(op.permute_dims(weight))
            x = builder.emit(op.nn.relu(builder.emit(op.matmul(x, weight))))
        return x

    return module(build, var("x", "n", values[0].shape[1 if transposed else 0]))


def packed_bytes(partition):
    """Return the bytes of packed weights of all plans that are there, and of the largest."""
    plans = json.loads(partition["get_plan"]())["plans"]
    own = [plan["constant_bytes"] - plan["constant_bytes_shared"] for plan in plans]
    return sum(own), max(plan["constant_bytes"] for plan in plans)


@pytest.mark.parametrize("transposed", [False, True], ids=["as-matmul", "as-dense"])
@pytest.mark.parametrize("columns", [5, 64, 192, 1000], ids=str)
def test_plans_of_all_lengths_share_weights(columns, transposed):
    shape = (columns, 96) if transposed else (96, columns)
    weight = rand(*shape, seed=1)
    mod = layers_of([weight], transposed)
    library = tvm.compile(compiled(tvm_dnnl.partition_for_dnnl(mod, prune=False)), target="llvm")
    machine = relax.VirtualMachine(library, tvm.cpu())
    (partition,) = imported(machine.module, "dnnl_json")
    for rows in ROWS:
        x = rand(rows, 96, seed=rows)
        expected = np.maximum(x.astype("float64") @ (weight.T if transposed else weight), 0)
        got = machine["main"](tvm.runtime.tensor(x)).numpy()
        # Sums of 96 products in float32.
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
    if columns < 64:
        # Too few for blocks: rows are multiplied by the weight as oneDNN prefers.
        return
    if "avx512" not in json.loads(partition["get_plan"]())["plans"][0]["primitives"][0]["impl"]:
        pytest.skip("oneDNN has one blocked layout for all numbers of rows with AVX-512 only")
    total, one = packed_bytes(partition)
    assert total <= one, "the weight was packed more than once"


def growth(small, large):
    """Load a small library, then a large one, and run each with all numbers of rows."""
    kept, before = [], 0
    for path in (small, large):
        before = resident_megabytes()
        machine = relax.VirtualMachine(tvm.runtime.load_module(path), tvm.cpu(), "naive")
        kept.append(machine)
        for rows in ROWS:
            machine["main"](tvm.runtime.tensor(rand(rows, 1024, seed=rows)))
    print(resident_megabytes() - before)


def test_weights_of_a_library_are_in_memory_once(tmp_path):
    """Their originals stay in the file, also where the next length may need another layout."""
    values = [rand(1024, 1024, seed=k) / 32 for k in range(16)]
    paths = []
    for name, some in (("small", values[:1]), ("large", values)):
        mod = compiled(tvm_dnnl.partition_for_dnnl(layers_of(some, True)))
        paths.append(str(tmp_path / f"{name}.so"))
        tvm.compile(mod, target="llvm").export_library(paths[-1])
    megabytes = sum(value.nbytes for value in values) / 1e6
    printed = in_new_process("growth", *paths, module=__name__)
    # One row and many rows have one blocked layout with AVX-512 only; else there are two copies.
    copies = 1 if "avx512f" in Path("/proc/cpuinfo").read_text("utf-8") else 2
    # Besides them, the results of up to 200 rows, and a part of what a memory page rounds up.
    assert float(printed) < (copies + 0.15) * megabytes + 4


@pytest.mark.parametrize("width", range(3, 7), ids=str)
def test_constants_at_any_address_of_the_file(tmp_path, width):
    """A mask of one byte an element moves others to addresses that are no multiple of 4."""
    mask = np.arange(width) % 2 == 0
    weight, bias = rand(width, 5), rand(5, seed=1)

    def build(builder, x):
        some = builder.emit(op.where(relax.const(mask), x, relax.const(np.float32(0))))
        some = builder.emit(op.matmul(some, relax.const(weight)))
        return builder.emit(op.subtract(relax.const(bias), builder.emit(op.exp(some))))

    mod = module(build, var("x", "n", width))
    partitioned = tvm_dnnl.partition_for_dnnl(mod, prune=False)
    assert partitions(partitioned) == 1
    path = tmp_path / "model.so"
    tvm.compile(compiled(partitioned), target="llvm").export_library(str(path))
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(path)), tvm.cpu())
    for rows in (1, 4):
        x = rand(rows, width, seed=rows)
        expected = bias - np.exp((x * mask) @ weight)
        got = machine["main"](tvm.runtime.tensor(x)).numpy()
        # The relative error of exp is that of its argument.
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
