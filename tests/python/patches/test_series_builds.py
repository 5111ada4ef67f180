# SPDX-License-Identifier: Apache-2.0
"""Each commit of the series for Relax builds with those before it, and passes its tests."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from small_tree import scratch_folder

from scripts.layout import ROOT, Layout, PluginLayout
from scripts.patchset.export_pr import commits_of, plan_without_tree, read_series
from scripts.patchset.patch_set import RELAX, PatchSet
from scripts.patchset.tree import ABSENT
from scripts.setup import machine

ONEDNN = Layout().onednn
FFI = PluginLayout().packages / "tvm_ffi"
OURS = ("src/runtime/extra/contrib/dnnl/", "tests/cpp-runtime/")
# The rest is an object of the runtime module, which needs tvm-ffi's library.
LINKED = ("src/runtime/extra/contrib/dnnl/core/", "tests/cpp-runtime/")

needs_headers = pytest.mark.skipif(
    not (ONEDNN / "include").is_dir() or not FFI.is_dir(),
    reason="needs the oneDNN and the tvm-ffi that set-up fetches",
)


@pytest.fixture
def folder():
    """An empty folder that is not in the checkout."""
    with scratch_folder() as path:
        yield Path(path)


def commits():
    """The commits of the series, without the patches of TVM's own files."""
    patch_set = PatchSet(kind=RELAX)
    return commits_of(plan_without_tree(patch_set), read_series(patch_set.folder))


def write(folder, commit):
    """Bring the files of a commit into a folder; return their paths."""
    states = {path: state for path, state in commit.states.items() if state != ABSENT}
    for path, state in states.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(state.data)
    return list(states)


def run(command, what, **options):
    """Run a command; its output is in the error if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{what}: {command[0]}\n{(done.stdout + done.stderr)[-3000:]}"


@needs_headers
@pytest.mark.nightly
@pytest.mark.timeout(3600)  # without ccache, and beside other work
def test_each_commit_compiles_and_links(folder):
    compiler = [*machine.compiler_launcher(ROOT), os.environ.get("CXX", "c++")]
    headers = [ONEDNN / "include", FFI / "include", FFI / "3rdparty/dlpack/include"]
    flags = ["-std=c++17", "-O1", "-fPIC", "-Wall", "-Werror", "-Wno-psabi", "-I."]
    flags += [word for path in headers for word in ("-isystem", str(path))]
    libraries = [f"-L{ONEDNN}/lib", f"-Wl,-rpath,{ONEDNN}/lib", "-ldnnl", "-ldl", "-pthread"]
    objects = {}
    for number, commit in enumerate(commits(), 1):
        what = f"{number}: {commit.subject}"
        paths = write(folder, commit)
        sources = [path for path in paths if path.endswith(".cc") and path.startswith(OURS)]

        def compile_one(path, what=what):
            output = path.replace("/", "-") + ".o"
            run([*compiler, *flags, "-c", path, "-o", output], f"{what}: {path}", cwd=folder)
            return path, output

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects.update(pool.map(compile_one, sources))
        linked = [output for path, output in objects.items() if path.startswith(LINKED)]
        if sources and "tests/cpp-runtime/harness/main.cc" in objects:
            run([compiler[-1], *linked, *libraries, "-o", "cpptest"], what, cwd=folder)
        # What other commits bring is not called by the tests that are there.
        if any(path.startswith("tests/cpp") or path.endswith("op_table.cc") for path in sources):
            run(["./cpptest"], what, cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert len(objects) > 100


@pytest.mark.slow
def test_graph_tests_pass_at_their_commit(folder):
    """They need no TVM, so it is an empty package here."""
    tested = 0
    for commit in commits():
        paths = [path for path in write(folder, commit) if path.startswith("tests/python/graph/")]
        tests = [path for path in paths if "/test_" in path]
        if tests:
            for package in ("tvm", "tvm/contrib"):
                (folder / "python" / package / "__init__.py").touch()
            command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
            env = {**os.environ, "PYTHONPATH": str(folder / "python")}
            (folder / "pytest.ini").write_text("[pytest]\n")
            run([*command, "-c", "pytest.ini", *tests], commit.subject, cwd=folder, env=env)
            tested += len(tests)
    assert tested >= 10
