# SPDX-License-Identifier: Apache-2.0
"""`export_library` writes the whole file or leaves the old one."""

import errno
import os
import subprocess
import sys
import time

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.contrib.onednn import export
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests.marks import json_only

X = np.random.default_rng(0).standard_normal((2, 8), "float32")


def compiled(factor, executor="graph"):
    """Compile a dense of one partition; return it and what it computes of X."""
    weight = np.full((4, 8), factor, "float32")
    dense = relay.nn.dense(relay.var("x", shape=(2, 8)), relay.const(weight))
    mod = dnnl.partition_for_dnnl(tvm.IRModule.from_expr(dense), prune=False)
    assert testing.offload(mod).partitions == 1
    return testing.build(mod, executor=executor), X @ weight.T


def assert_computes(library, expected, executor="graph"):
    testing.assert_close(testing.Runner(library, executor)({"x": X}), [expected])


@json_only
@pytest.mark.parametrize("executor", ["graph", "vm"])
def test_a_new_file_in_the_place_of_one_that_is_loaded(executor, tmp_path):
    path, link = tmp_path / "model.so", tmp_path / "link.so"
    link.symlink_to(path)
    old, first = compiled(1.0, executor)
    new, second = compiled(2.0, executor)
    dnnl.export_library(old, path)
    loaded = tvm.runtime.load_module(str(path))
    dnnl.export_library(new, link)
    assert_computes(loaded, first, executor)
    # The same name is the same library to this process.
    got = testing.run_in_new_process(str(path), {"x": X}, executor=executor)
    testing.assert_close(got, [second])
    assert link.is_symlink() and len(list(tmp_path.iterdir())) == 2


def test_options_are_those_of_the_compiler(tmp_path):
    lib, expected = compiled(1.0)
    calls = []

    def compile_(path, *rest, **options):
        calls.append(options)
        tvm.contrib.cc.create_shared(path, *rest, **options)

    compile_.output_format = "so"
    own = dnnl.c_source_options() if testing.c_sources(lib) else []
    dnnl.export_library(lib, tmp_path / "a.so", fcompile=compile_, options=["-s", *own])
    assert calls[0]["options"][0] == "-s"
    assert_computes(tvm.runtime.load_module(str(tmp_path / "a.so")), expected)


# As on a full disk: no file grows as large as the library, which is larger than what goes into it,
# as random bytes cannot be packed. The compiler and tar are other processes.
FULL = """
import os, resource, sys, tvm
import numpy as np
from tvm import relay
from tvm.relay.op.contrib import dnnl
weight = np.random.default_rng(0).integers(0, 256, 20000, "uint8")
body = relay.add(relay.var("x", shape=weight.shape, dtype="uint8"), relay.const(weight))
lib = relay.build(tvm.IRModule.from_expr(body), target=dnnl.host_target())
dnnl.export_library(lib, sys.argv[2])
# The next one may be some bytes smaller: what is packed has the time in it.
most = os.path.getsize(sys.argv[2]) - 100
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
try:
    dnnl.export_library(lib, sys.argv[1])
except (OSError, RuntimeError) as error:
    sys.exit(3)
"""


@pytest.mark.parametrize(
    "name, old",
    [
        ("a.so", "old"),
        ("a.tar", None),
        pytest.param("a.so", None, marks=pytest.mark.nightly),
        pytest.param("a.tar", "old", marks=pytest.mark.nightly),
    ],
)
def test_a_full_disk_leaves_the_old_file_or_none(name, old, tmp_path):
    path = tmp_path / "folder" / name
    path.parent.mkdir()
    if old:
        path.write_text(old)
    command = [sys.executable, "-c", FULL, path, tmp_path / name]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 3, done.stderr
    assert {file.name: file.read_text() for file in path.parent.iterdir()} == (
        {name: old} if old else {}
    )


@json_only
@pytest.mark.parametrize("name", ["lib0.o", "devc.o"])
def test_an_object_file_on_a_full_disk_is_an_error(name, tmp_path):
    """LLVM would end the process."""
    workspace, path = tmp_path / "workspace", tmp_path / "a.so"
    workspace.mkdir()
    (workspace / name).symlink_to("/dev/full")
    path.write_text("old")
    write = tvm.runtime.Module.save
    lib, expected = compiled(1.0)
    with pytest.raises(OSError, match="No space left") as raised:
        dnnl.export_library(lib, path, workspace_dir=str(workspace))
    assert raised.value.errno == errno.ENOSPC and raised.value.filename == str(workspace / name)
    assert path.read_text() == "old" and len(list(tmp_path.iterdir())) == 2
    assert tvm.runtime.Module.save is write
    dnnl.export_library(lib, path)
    assert_computes(tvm.runtime.load_module(str(path)), expected)


def test_a_linker_on_a_full_disk_is_an_error(tmp_path):
    class Full:
        def export_library(self, path):
            raise RuntimeError(f"Compilation error:\nld: {path}: No space left on device")

    with pytest.raises(OSError, match="ld: .*a.so: No space left") as raised:
        export.export_library(Full(), tmp_path / "a.so")
    assert raised.value.errno == errno.ENOSPC and not list(tmp_path.iterdir())


SLOW = """
import sys
from tvm.contrib.onednn.export import export_library

class Compiled:
    def export_library(self, path):
        with open(path, "w") as file:
            file.write("half")
            file.flush()
            print("writing", flush=True)
            sys.stdin.readline()

export_library(Compiled(), sys.argv[1])
"""


class Text:
    def export_library(self, path):
        with open(path, "w", encoding="utf-8") as file:
            file.write("whole")


def test_a_process_that_is_killed_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.so"
    path.write_text("old")
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", SLOW, path], stdin=pipe, stdout=pipe)
    assert process.stdout.readline() == b"writing\n"
    assert path.read_text() == "old"
    process.kill()
    process.communicate()
    assert path.read_text() == "old"
    # What is left goes with a later call, not with one that could be beside it.
    export.export_library(Text(), path)
    assert path.read_text() == "whole" and len(list(tmp_path.iterdir())) == 2
    later = time.time() + 2 * export.ABANDONED
    monkeypatch.setattr(export.time, "time", lambda: later)
    export.export_library(Text(), path)
    assert [file.name for file in tmp_path.iterdir()] == ["a.so"]


def test_what_is_no_file_is_not_replaced(tmp_path):
    pipe = tmp_path / "a.so"
    os.mkfifo(pipe)
    with open(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), encoding="utf-8") as reader:
        export.export_library(Text(), pipe)
        assert reader.read() == "whole"
    assert pipe.is_fifo()


def test_a_process_that_fails_says_why(tmp_path):
    path = tmp_path / "broken.so"
    path.write_bytes(b"not a library")
    with pytest.raises(RuntimeError, match="broken.so"):
        testing.run_in_new_process(path, {})
