# SPDX-License-Identifier: Apache-2.0
"""Keys and values that are appended to those of earlier tokens in the memory of these."""

import numpy as np
import pytest
import tvm
import tvm_dnnl
import tvm_ffi
from dnnl_tests.models import llama
from tvm import relax

from dnnl_relax.modules import module, partitions, rand, var

CONFIG = llama.Config(layers=2, width=64, hidden=96, heads=4, kv_heads=2, vocabulary=300)


@pytest.fixture(scope="module", params=["compiled", "loaded"])
def decoders(request, tmp_path_factory):
    """Return functions that run a model: with copies of the cache, and in place."""
    model = llama.model(CONFIG, llama.random_weights(CONFIG), last_only=True)
    return [decoder(model, request.param, tmp_path_factory, flag) for flag in (False, True)]


def decoder(model, kind, tmp_path_factory, append_in_place):
    mod = tvm_dnnl.from_onnx(model)
    assert partitions(tvm_dnnl.partition_for_dnnl(mod, append_in_place=append_in_place)) == 1
    compiled = tvm_dnnl.compile(mod, append_in_place=append_in_place)
    library = compiled.library
    if kind == "loaded":
        path = tmp_path_factory.mktemp("library") / "model.so"
        compiled.export_library(path)
        library = tvm.runtime.load_module(str(path))
    main = relax.VirtualMachine(library, tvm.cpu(), memory_cfg="naive")["main"]
    tensor = tvm.runtime.tensor

    def run(ids, cache=None):
        inputs = llama.inputs(CONFIG, ids, cache).values()
        given = [tensor(each) if isinstance(each, np.ndarray) else each for each in inputs]
        logits, *cache = main(*given)
        return logits.numpy(), cache

    return run


def address(tensor):
    return np.from_dlpack(tensor).ctypes.data


def assert_same(got, want):
    np.testing.assert_allclose(got[0], want[0], rtol=1e-5, atol=1e-5)
    for one, other in zip(got[1], want[1], strict=True):
        np.testing.assert_allclose(np.from_dlpack(one), other.numpy(), rtol=1e-5, atol=1e-5)


def test_tokens(decoders):
    """Results are those of copies; the memory changes only where there is no room."""
    copying, appending = decoders
    want, got, moved = copying([3, 7, 11]), appending([3, 7, 11]), 0
    assert_same(got, want)
    for token in range(130):
        old = list(map(address, got[1]))
        got, want = appending([token], got[1]), copying([token], want[1])
        assert_same(got, want)
        new = list(map(address, got[1]))
        assert [a == b for a, b in zip(old, new)] in ([True] * len(old), [False] * len(old))
        moved += old != new
    # There is room for 64, then for 128.
    assert moved == 2


def test_two_continuations(decoders):
    """A second run from the same past does not overwrite what the first one appended."""
    copying, appending = decoders
    want, got = copying([3, 7, 11]), appending([3, 7, 11])
    firsts = [appending([token], got[1]) for token in (5, 6)]
    for token, first in zip((5, 6), firsts):
        expected = copying([token], want[1])
        assert_same(first, expected)
        assert_same(appending([9], first[1]), copying([9], expected[1]))


def test_dense_pasts(decoders):
    """A past that is no result of a run is copied."""
    copying, appending = decoders
    cache = copying([3, 7, 11])[1]
    arrays = [each.numpy() for each in cache]
    want = copying([5], cache)
    for past in (cache, arrays):
        assert_same(appending([5], past), want)
    for before, after in zip(arrays, cache, strict=True):
        np.testing.assert_array_equal(before, after.numpy())


def growing(append_in_place, more=(), **options):
    """Return a function that appends to a past, and whether it does so in place."""

    def build(bb, past, new):
        key = bb.emit(relax.op.concat([past, new], 1))
        out = bb.emit(relax.op.matmul(key, relax.const(rand(8, 8, seed=3))))
        others = [bb.emit(each(bb, past, key)) for each in more]
        return bb.emit(relax.Tuple([key, out, *others]))

    mod = module(build, var("past", 2, "n", 8), var("new", 2, 1, 8))
    compiled = tvm_dnnl.compile(mod, append_in_place=append_in_place, prune=False, **options)
    return relax.VirtualMachine(compiled.library, tvm.cpu(), memory_cfg="naive")["main"]


def token(seed):
    return tvm.runtime.tensor(rand(2, 1, 8, seed=seed))


@pytest.mark.parametrize("count", [60, 64, 65, 66, 130])
@pytest.mark.parametrize("cut", [1, 3])
def test_pasts_that_are_cut(count, cut):
    """A view of the first rows continues, also if less room would be reserved for it."""
    run, past = growing(True), tvm.runtime.tensor(np.zeros((2, 0, 8), "float32"))
    for seed in range(count):
        past, _ = run(past, token(seed))
    before = np.from_dlpack(past).copy()
    kept = tvm_ffi.from_dlpack(np.from_dlpack(past)[:, : count - cut])
    key, _ = run(kept, token(999))
    expected = np.concatenate([before[:, : count - cut], rand(2, 1, 8, seed=999)], 1)
    np.testing.assert_array_equal(np.from_dlpack(key), expected)
    np.testing.assert_array_equal(np.from_dlpack(past), before)


READERS = {
    "another partition": lambda bb, past, key: relax.op.matmul(past, relax.const(rand(8, 8))),
    "an op of TVM": lambda bb, past, key: relax.op.cumsum(past, 1),
    "an op of TVM, of the result": lambda bb, past, key: relax.op.cumsum(key, 1),
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_other_readers(reader):
    """What else reads the past or the result wants dense tensors: they are copied."""
    with pytest.warns(UserWarning, match="append_in_place: past is copied"):
        appending = growing(True, [reader])
    copying = growing(False, [reader])
    pasts = [tvm.runtime.tensor(rand(2, 3, 8))] * 2
    for seed in range(4):
        got, want = (run(past, token(seed)) for run, past in zip((appending, copying), pasts))
        pasts = got[0], want[0]
        for one, other in zip(got, want, strict=True):
            np.testing.assert_array_equal(np.from_dlpack(one), other.numpy())


def test_results_as_arrays():
    """A model that is called with arrays returns dense ones."""
    mod = module(
        lambda bb, past, new: bb.emit(relax.op.concat([past, new], 1)),
        var("past", 2, "n", 16),
        var("new", 2, 1, 16),
    )
    past, new = rand(2, 5, 16), rand(2, 1, 16, seed=1)
    model = tvm_dnnl.compile(mod, append_in_place=True, prune=False)
    assert model.report.partitions == 1
    np.testing.assert_array_equal(model(past, new), np.concatenate([past, new], 1))


def test_option_is_checked():
    with pytest.raises(TypeError, match="append_in_place must be True or False, not 1"):
        tvm_dnnl.partition_for_dnnl(tvm.IRModule(), append_in_place=1)
