# SPDX-License-Identifier: Apache-2.0
"""Libraries that carry constants: the memory that loading takes, copies of files, cut-off files."""

import ctypes
import gc
import mmap
import os
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
import tvm
import tvm_dnnl
from tvm import relax
from tvm.relax import op

from dnnl_relax.modules import module, rand, run, var
from dnnl_relax.runtime.test_memory import in_new_process, resident_megabytes

WIDTH, LAYERS = 1024, 12
X = rand(2, WIDTH)


def dense_layers(layers, width=WIDTH):
    """Dense layers of 4 MB each, with what stays on TVM at the end."""

    def build(builder, x):
        for k in range(layers):
            weight = relax.const(rand(width, width, seed=k) / np.float32(width**0.5))
            x = builder.emit(op.nn.relu(builder.emit(op.matmul(x, weight))))
        return op.atan(x)

    return module(build, var("x", 2, width))


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """Return a library, and the module that it was compiled from."""
    path = tmp_path_factory.mktemp("library") / "model.so"
    mod = dense_layers(2)
    tvm_dnnl.compile(mod).export_library(path)
    return path, mod


def called(path, x=X):
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(path)), tvm.cpu())
    return machine["main"](tvm.runtime.tensor(x)).numpy()


def peaks(small, large):
    """Load a library after a small one, and run it; print the megabytes that each step adds."""
    called(small)
    before = max(map(resident_megabytes, ("VmRSS", "VmHWM")))
    loaded = tvm.runtime.load_module(large)
    print(resident_megabytes("VmHWM") - before, resident_megabytes() - before)
    machine = relax.VirtualMachine(loaded, tvm.cpu())
    machine["main"](tvm.runtime.tensor(X))
    print(resident_megabytes("VmHWM") - before)


def test_peak_memory(tmp_path):
    """Loading copies nothing; the first run has some originals beside the packed weights."""
    paths = [tmp_path / f"{layers}.so" for layers in (1, LAYERS)]
    for path, layers in zip(paths, (1, LAYERS)):
        tvm_dnnl.compile(dense_layers(layers)).export_library(path)
    one = WIDTH * WIDTH * 4 / 1e6
    printed = in_new_process("peaks", *map(str, paths), module=__name__)
    peak, loaded, ran = map(float, printed.split())
    # Linux may map the file where it is read, up to 2 MB at once; a copy would be twice as much.
    assert peak < 1.1 * LAYERS * one
    assert loaded < one
    assert ran < (LAYERS + 3) * one


def test_copies_of_a_file(library, tmp_path):
    """Each is loaded on its own, also where the first one is gone."""
    path, mod = library
    (expected,) = run(mod, X)
    for name in ("first.so", "second.so"):
        shutil.copy(path, tmp_path / name)
        np.testing.assert_allclose(called(tmp_path / name), expected, rtol=1e-5, atol=1e-5)
    (tmp_path / "first.so").unlink()
    np.testing.assert_allclose(called(tmp_path / "second.so"), expected, rtol=1e-5, atol=1e-5)


def test_modules_and_functions(library):
    """A library has the modules that TVM's loader reads, with the same functions."""
    path, _ = library
    loaded = tvm.runtime.load_module(str(path))
    kinds, stack = [], [loaded]
    while stack:
        each = stack.pop()
        kinds.append(each.kind)
        stack.extend(each.imports)
    assert sorted(kinds) == ["const_loader", "dnnl_json", "library", "relax.VMExecutable"]
    assert loaded.implements_function("vm_load_executable")
    (code,) = (each for each in _all(loaded) if each.kind == "library")
    assert code.is_runnable() and not code.implements_function("no such function")
    assert code.get_function_doc("main") is None


def _all(loaded):
    yield loaded
    for each in loaded.imports:
        yield from _all(each)


@pytest.mark.parametrize("part", [0.9, 0.5, 0.1, 1e-5, 0])
def test_a_file_that_is_cut_off(library, tmp_path, part):
    """An error, and no signal, which the first access to a missing page would be."""
    good = library[0].read_bytes()
    path = tmp_path / "part.so"
    path.write_bytes(good[: int(len(good) * part)])
    with pytest.raises(ValueError, match="part.so is (cut off|not a library|empty)"):
        tvm_dnnl.load_model(path)
    words = f"part.so is cut off: it has {path.stat().st_size} bytes|file too short"
    with pytest.raises(RuntimeError, match=words):
        tvm.runtime.load_module(str(path))


def test_a_tree_of_modules_that_is_damaged(library, tmp_path):
    good = library[0].read_bytes()
    opened = ctypes.CDLL(str(library[0]))
    carried = ctypes.addressof(ctypes.c_char.in_dll(opened, "__tvm_ffi__library_bin"))
    # The size of all, two vectors of numbers with their counts, and the kind of the first module.
    head = ctypes.string_at(carried, 8 * 12)
    begin = good.index(head)
    (count,) = struct.unpack_from("<Q", good, begin + 8)
    children = begin + 16 + 8 * count
    places = [begin + 8, begin + 16 + 8 * (count - 1), children, children + 8]
    for number, place in enumerate(places):
        for value in (2**31, 2**60, 2**64 - 1):
            data = bytearray(good)
            struct.pack_into("<Q", data, place, value)
            path = tmp_path / f"{number}-{value}.so"
            path.write_bytes(data)
            with pytest.raises(RuntimeError, match="What a library carries is cut off or damaged"):
                tvm.runtime.load_module(str(path))


def test_what_is_no_library(tmp_path):
    path = tmp_path / "text.so"
    path.write_text("text")
    with pytest.raises(RuntimeError, match="text.so: file too short|invalid ELF header"):
        tvm.runtime.load_module(str(path))


def test_a_library_with_any_name(library, tmp_path):
    """Caches of models name files by their digest, and link to them."""
    path, mod = library
    (expected,) = run(mod, X)
    digest, link = tmp_path / "2af8dc9e68b1", tmp_path / "model.so"
    shutil.copy(path, digest)
    link.symlink_to(digest)
    for name in (digest, link):
        np.testing.assert_allclose(tvm_dnnl.load_model(name)(X), expected, rtol=1e-5, atol=1e-5)


def test_a_mapped_file_whose_name_is_not_utf8(library, tmp_path):
    path = os.path.join(os.fsencode(tmp_path), b"d\xe4ta.bin")
    with open(path, "wb+") as file:
        file.write(bytes(4096))
        file.flush()
        with mmap.mmap(file.fileno(), 4096):
            assert tvm_dnnl.load_model(library[0])(X).shape == X.shape


def mapped(path):
    return str(path) in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")


def test_a_dropped_model_is_freed(library, tmp_path):
    """Its results stay."""
    path, mod = library
    shutil.copy(path, tmp_path / "dropped.so")
    path = tmp_path / "dropped.so"
    (expected,) = run(mod, X)
    model = tvm_dnnl.load_model(path)
    machine = relax.VirtualMachine(model.library, tvm.cpu())
    result, array = machine["main"](tvm.runtime.tensor(X)), model(X)
    assert mapped(path)
    del model, machine
    gc.collect()
    assert not mapped(path)
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(array, result.numpy())
    np.testing.assert_array_equal(tvm_dnnl.load_model(path)(X), array)


def load_and_drop(path):
    def once():
        tvm_dnnl.load_model(path)(X)
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        return resident_megabytes()

    once()
    before = once()
    print(max(once() for _ in range(4)) - before)


def test_memory_of_dropped_models(library):
    """The weights are 8 MB, packed once."""
    grown = in_new_process("load_and_drop", str(library[0]), module=__name__)
    assert float(grown) < 4
