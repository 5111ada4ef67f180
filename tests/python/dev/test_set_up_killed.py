# SPDX-License-Identifier: Apache-2.0
"""A set-up that is killed at any step leaves what runs as it is, and the next one goes on."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import tvm
from dnnl_tests.marks import nightly_except
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from scripts.console import Console
from scripts.layout import Layout
from scripts.runner import Runner, clean_environment
from scripts.setup import environment, steps
from scripts.setup.native import NativeBuild

if "TVM_HOME" in os.environ:
    pytest.skip("set-up makes the prebuilt tree", allow_module_level=True)

pytestmark = pytest.mark.slow

MINE = Layout()
PARTS = ("cmake", "patches", "python", "requirements", "scripts", "src")
BUILT = ("prebuilt", "onednn", "wheels")

# Set-up as `prepare` does it. Commands that download or compile are not run. In the place of the
# first one, or of what else takes time in a step, it stops there, if it is told to.
SET_UP = """
import argparse, subprocess, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from scripts.layout import Layout
from scripts.runner import Runner
from scripts.setup import environment, machine, steps, tree, wheels

layout, site, stops = Layout(Path(sys.argv[1])), sys.argv[2], sys.argv[3] == "stops"

def stop(*args, **kwargs):
    print("stopped", flush=True)
    sys.stdin.read()

class Commands(Runner):
    def run(self, command, log, explain=None):
        if stops:
            stop()
        if command[1:3] == ["-m", "venv"]:
            subprocess.run([*command, "--without-pip"], check=True)
            (place,) = layout.venv.glob("lib/python*/site-packages")
            (place / "packages.pth").write_text(site)
        if log.startswith("build-"):
            layout.library.touch()
        return ""

environment.Runner = Commands
if stops:
    machine.check_compiler = tree.Overlay._put = wheels.fetch = steps.subprocess.run = stop
environment.prepare(argparse.Namespace(dry_run=False, no_build=False), layout)
"""

# It uses the environment anew after the kill, for what was not in memory before.
MODEL = """
import subprocess, sys
import numpy as np
import tvm
from tvm.contrib import graph_executor

def run():
    library = tvm.runtime.load_module(sys.argv[1])
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.run(x=np.ones((2, 8), "float32"))
    print(module.get_output(0).numpy().sum(), flush=True)

run()
if sys.stdin.readline():
    subprocess.run([sys.executable, "-c", "import tvm.relay.op.contrib.dnnl"], check=True)
    run()
"""


def environ():
    """Return the variables of a process that no set-up has prepared."""
    left_out = ("TVM_LIBRARY_PATH", "TVM_DNNL_LIBRARY", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
    return {name: text for name, text in clean_environment().items() if name not in left_out}


def plan(layout):
    return environment.plan(Runner(Console(open(os.devnull, "w")), layout.logs), layout)


@pytest.fixture(scope="module")
def layout():
    """Return a checkout that is set up: the files are this one's, the environment is new."""
    with tempfile.TemporaryDirectory(dir=MINE.build, prefix="checkout-") as folder:
        layout = Layout(Path(folder))
        places = [(MINE.root / name, layout.root / name) for name in PARTS]
        places += [(MINE.build / name, layout.build / name) for name in BUILT]
        for source, target in places:
            shutil.copytree(source, target, symlinks=True, copy_function=os.link)
        for name in ("dev.py", "CMakeLists.txt"):
            shutil.copy(MINE.root / name, layout.root / name)
        chain = plan(layout)
        stamp, key = NativeBuild(chain[0].runner, layout)._configured()
        stamp.write(key)
        # Newer than the folders of the sources.
        layout.library.parent.mkdir()
        shutil.copyfile(MINE.library, layout.library)
        set_up(layout, "finishes").communicate()
        assert all(step.current() for step in chain)
        yield layout


def set_up(layout, how):
    (site,) = MINE.venv.glob("lib/python*/site-packages")
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", SET_UP, layout.root, site, how]
    return subprocess.Popen(command, env=environ(), stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def make_due(layout, step):
    """Change what a step depends on."""
    package = "tvm/relay/op/contrib/_dnnl"
    new = {
        steps.CopyOverlay: layout.overlay / package / "new.py",
        steps.CompileLibrary: layout.root / "src" / "new.cc",
    }
    if type(step) in new:
        new[type(step)].write_text("")
    elif isinstance(step, steps.Packages):
        # A group with other pins; a new one comes on top and waits for nobody.
        (layout.venv / ".packages-demo").write_text("other pins")
    else:
        step.stamp().path.unlink()
    assert not step.current()


WAITS = (steps.VirtualEnvironment, steps.Packages, steps.PrebuiltTree, steps.OneDNN)


STEPS = [type(step).__name__ for step in plan(MINE)]
# One that comes on top of what is there, one that replaces it, and one that need not wait.
KINDS = list(map(STEPS.index, ("Packages", "PrebuiltTree", "CopyOverlay")))


@pytest.mark.parametrize("number", nightly_except(KINDS, range(len(STEPS))), ids=STEPS)
def test_kill_while_a_model_runs(layout, tmp_path, number):
    weight = relay.const(np.ones((4, 8), "float32"))
    dense = relay.nn.dense(relay.var("x", shape=(2, 8)), weight)
    mod = dnnl.partition_for_dnnl(tvm.IRModule.from_expr(dense), prune=False)
    assert testing.offload(mod).partitions == 1
    testing.build(mod).export_library(str(tmp_path / "model.so"))
    pipe = subprocess.PIPE
    command = [sys.executable, layout.root / "dev.py", "exec", "--", "python", "-c", MODEL]
    user = subprocess.Popen(
        [*command, tmp_path / "model.so"], env=environ(), stdin=pipe, stdout=pipe, text=True
    )
    assert user.stdout.readline() == "64.0\n"

    step = plan(layout)[number]
    make_due(layout, step)
    killed = set_up(layout, "stops")
    if isinstance(step, WAITS):
        waits = f"waiting for what runs in this environment (process {user.pid} [python -c"
        assert killed.stderr.readline().startswith(waits)
    else:
        assert killed.stdout.readline() == "stopped\n"
    killed.kill()
    killed.communicate()
    # The model goes on, in what the set-up has left.
    assert user.communicate("go on\n", timeout=100)[0] == "64.0\n" and user.returncode == 0

    again = set_up(layout, "finishes")
    _, said = again.communicate(timeout=100)
    assert again.returncode == 0, said
    # Those that take no time are silent.
    assert step.after or f"[1] {step.title} ..." in said
    assert all(step.current() for step in plan(layout))
