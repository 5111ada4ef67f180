# SPDX-License-Identifier: Apache-2.0
"""A folder of compiled libraries: what makes another one, two writers, writers that are killed."""

import functools
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from shutil import ignore_patterns

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.contrib.onednn import cache, export
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

X = np.random.default_rng(0).standard_normal((2, 8), "float32")


def model(factor=1.0, alpha=0.1, batch=2):
    weight = np.random.default_rng(1).standard_normal((4, 8), "float32") * np.float32(factor)
    dense = relay.nn.dense(relay.var("x", shape=(batch, 8)), relay.const(weight))
    return tvm.IRModule.from_expr(relay.nn.leaky_relu(dense, alpha))


def cached(folder, mod=None, **options):
    options = {"target": testing.host_target(), **options}
    return dnnl.cached_library(mod or model(), folder=folder, **options)


def outputs(path, executor="graph"):
    return testing.Runner(tvm.runtime.load_module(path), executor)({"x": X})


@pytest.fixture
def never(monkeypatch):
    """Let nothing be compiled from now on, once it is called."""

    def compile_nothing():
        def fail(*args, **kwargs):
            raise AssertionError("it was compiled again")

        monkeypatch.setattr(relay, "build", fail)
        monkeypatch.setattr(relay.vm, "compile", fail)

    return compile_nothing


@pytest.mark.parametrize("executor", ["graph", "vm"])
def test_a_library_is_made_once(executor, tmp_path, never):
    # C source is made for static shapes, and is no module of its own.
    is_json = dnnl.dnnl_codegen() == "JSON"
    mod = model(batch=relay.Any() if is_json and executor == "vm" else 2)
    path = cached(tmp_path / "new", mod, executor=executor)
    partitioned = dnnl.partition_for_dnnl(mod)
    assert testing.offload(partitioned).partitions == 1
    expected = testing.run(partitioned, {"x": X}, executor=executor)
    testing.assert_close(outputs(path, executor), expected, 0)
    assert bool(testing.dnnl_modules(tvm.runtime.load_module(path))) == is_json
    never()
    assert cached(tmp_path / "new", mod, executor=executor) == path
    assert [entry.name for entry in (tmp_path / "new").iterdir()] == [os.path.basename(path)]


def test_what_makes_another_library(tmp_path, monkeypatch):
    compiled = []
    monkeypatch.setattr(cache, "library", lambda folder, key, write: compiled.append(key))
    target = testing.host_target()
    ways = [
        lambda: cached(tmp_path),
        lambda: cached(tmp_path, model(factor=1 + 2e-7)),
        lambda: cached(tmp_path, model(alpha=0.1 + 1e-9)),
        lambda: cached(tmp_path, model(batch=3)),
        lambda: cached(tmp_path, executor="vm"),
        lambda: cached(tmp_path, exclude=["nn.dense"]),
        lambda: cached(tmp_path, num_threads=1),
        lambda: cached(tmp_path, target=f"{target} -num-cores=3"),
        lambda: cached(tmp_path, params={"w": tvm.nd.array(X)}),
        lambda: cached(tmp_path, params={"w": tvm.nd.array(-X)}),
    ]
    contexts = [
        {"opt_level": 1},
        {"disabled_pass": ["AlterOpLayout"]},
        {"config": {"relay.ext.dnnl.options": {"prune": False}}},
        {"config": {"relay.ext.dnnl.codegen": "C_SRC"}},
    ]
    for way in ways:
        way()
    for context in contexts:
        with tvm.transform.PassContext(**context):
            cached(tmp_path)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "SSE41")
    cached(tmp_path)
    monkeypatch.setattr(tvm, "__version__", "0.0")
    cached(tmp_path)
    assert len(set(compiled)) == len(compiled) == len(ways) + len(contexts) + 2


KEY = """
import tvm
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.contrib.onednn import cache
cache.library = lambda folder, key, write: key
mod = tvm.IRModule.from_expr(relay.abs(relay.var("x", shape=(3,))))
for i in range(9):
    x = relay.var(f"x{i}", shape=(3,))
    mod[f"f{i}"] = relay.Function([x], relay.exp(x))
options = {"folder": "f", "target": "llvm", "exclude": {"abs", "nn.relu", "nn.dense", "exp"}}
print(dnnl.cached_library(mod, {"b": 2, "a": 1}, **options))
"""


def key_of_a_process(**environ):
    done = subprocess.run(
        [sys.executable, "-c", KEY], env={**os.environ, **environ}, capture_output=True, text=True
    )
    assert len(done.stdout.strip()) == 64, done.stderr
    return done.stdout


own_key = functools.cache(key_of_a_process)


def test_other_processes_find_it():
    """Names of a module with many functions, or of a set, have no order of their own."""
    keys = {key_of_a_process(PYTHONHASHSEED=str(seed)) for seed in range(2)}
    assert keys == {own_key()}


def test_the_same_package_elsewhere_finds_it(tmp_path):
    """What counts is the content of files, not where they are, nor when they came there."""
    package, copy = Path(tvm.__file__).parent, tmp_path / "tvm"
    shutil.copytree(
        package, copy, copy_function=shutil.copyfile, ignore=ignore_patterns("*.so", "include")
    )
    libraries = [Path(line.split()[-1]) for line in cache._lines("/proc/self/maps") if "/" in line]
    (libtvm,) = {path for path in libraries if path.name in ("libtvm.so", "libtvm_runtime.so")}
    elsewhere = {"PYTHONPATH": str(tmp_path), "TVM_LIBRARY_PATH": str(libtvm.parent)}
    for path in set(libraries):
        if path.name.startswith(("libtvm_dnnl", "libdnnl")):
            # By the name that the other one asks for.
            shutil.copyfile(path, tmp_path / ".".join(path.name.split(".")[:3]))
    # A tree of one's own has this in libtvm.so, and does not look for it.
    elsewhere["TVM_DNNL_LIBRARY"] = str(tmp_path / "libtvm_dnnl.so")
    assert key_of_a_process(**elsewhere) == own_key()
    with (copy / "relay" / "op" / "contrib" / "_dnnl" / "pipeline.py").open("a") as file:
        file.write("#")
    assert key_of_a_process(**elsewhere) != own_key()


def test_libraries_are_told_apart_by_their_content(tmp_path):
    """Those with a build id by it; with none, and those that are gone, in other ways."""
    path, ids = tmp_path / "libtvm.so", set()
    for text in (b"elf" + cache._BEFORE_ID + bytes(range(20)), b"elf", b"elf, too"):
        path.write_bytes(text)
        cache._content_of.cache_clear()
        ids.add(cache._content_of("08:01", "7", str(path)))
    assert bytes(range(20)).hex() in ids and len(ids) == 3
    assert cache._content_of("08:01", "7", f"{path} (deleted)").startswith("08:01 7 ")


def library(folder, text, key="k"):
    """Make a file as a library is made."""

    def write(path):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    return cache.library(folder, key, write)


def content(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def test_a_damaged_library_is_made_anew(tmp_path):
    path = library(tmp_path, "right")
    with open(path, "a", encoding="utf-8") as file:
        file.write("!")
    assert content(library(tmp_path, "right")) == "right"
    assert content(path) == "right"


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to(path.name)])
def test_what_is_no_file_is_replaced(make, tmp_path):
    path = Path(library(tmp_path, "right"))
    path.unlink()
    make(path)
    for _ in range(2):
        assert library(tmp_path, "right") == str(path) and content(path) == "right"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_with_something_in_it_stays(tmp_path):
    path = Path(library(tmp_path, "right"))
    path.unlink()
    path.mkdir()
    (path / "mine").write_text("")
    with pytest.raises(OSError, match="a folder has the name of a library; remove it") as raised:
        library(tmp_path, "right")
    assert raised.value.filename == str(path)
    assert [each.name for each in tmp_path.rglob("*")] == [path.name, "mine"]


@pytest.mark.parametrize(
    "name, error",
    [
        ("file", FileExistsError),
        ("file/below", NotADirectoryError),
        # For root, too, these are not to be written.
        ("/proc/nothing", FileNotFoundError),
        ("/proc/self", FileNotFoundError),
    ],
)
def test_a_folder_that_cannot_be_written(name, error, tmp_path):
    (tmp_path / "file").write_text("")
    folder = tmp_path / name
    with pytest.raises(error, match="folder: .*: no library can be made") as raised:
        library(folder, "right")
    assert raised.value.filename == str(folder)


def test_a_library_is_found_where_none_can_be_made(tmp_path, monkeypatch):
    path = library(tmp_path, "right")

    def read_only(*args, **kwargs):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", read_only)
    monkeypatch.setattr(cache, "making", read_only)
    assert library(tmp_path, "right") == path
    with pytest.raises(OSError, match="Read-only file system: no library can be made"):
        library(tmp_path, "right", key="other")


def test_a_writer_that_fails_leaves_nothing(tmp_path):
    def write(path):
        with open(path, "w", encoding="utf-8"):
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        cache.library(tmp_path, "k", write)
    assert not list(tmp_path.iterdir())


SLOW_WRITER = """
import sys, time
from tvm.contrib.onednn import cache

def write(path):
    with open(path, "w") as file:
        file.write("half")
        file.flush()
        print("writing", flush=True)
        sys.stdin.readline()
        file.write(" and half")

print(cache.library(sys.argv[1], "k", write), flush=True)
"""


@pytest.fixture
def writer(tmp_path):
    """Start a process that has written half of a library."""
    processes = []

    def start():
        process = subprocess.Popen(
            [sys.executable, "-c", SLOW_WRITER, tmp_path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        assert process.stdout.readline() == "writing\n"
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def test_two_writers(writer, tmp_path):
    first, second = writer(), writer()
    paths = [process.communicate("go\n")[0].strip() for process in (second, first)]
    assert paths[0] == paths[1] and content(paths[0]) == "half and half"
    assert [str(entry) for entry in tmp_path.iterdir()] == paths[:1]


def test_a_writer_that_is_killed(writer, tmp_path, monkeypatch):
    alive, killed = writer(), writer()
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    # Nobody takes half a library for one, and what was left goes later, the other's does not.
    assert content(library(tmp_path, "mine", key="other")) == "mine"
    assert len(list(tmp_path.glob(f"{export.MAKING}*"))) == 2
    later = time.time() + 2 * export.ABANDONED
    monkeypatch.setattr(export.time, "time", lambda: later)
    library(tmp_path, "more", key="third")
    assert len(list(tmp_path.glob(f"{export.MAKING}*"))) == 1
    path = alive.communicate("go\n")[0].strip()
    assert content(path) == "half and half"


def test_executor():
    with pytest.raises(ValueError, match="executor must be"):
        cached("nowhere", executor="aot")
    assert not os.path.exists("nowhere")
