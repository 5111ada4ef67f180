# SPDX-License-Identifier: Apache-2.0
"""Tests the plug-in as users install it: by pip, with another Python than the environment's.

The newest Python at hand has newer packages than the environment of `dev.py`; the oldest has the
oldest that pyproject.toml allows.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

from scripts.runner import clean_environment, explain_pip_failure
from scripts.setup.plugin import build_settings

NEWEST, OLDEST = "newest-python", "oldest-packages"
# Each op without TVM; then what imports, compiles, runs and exports.
TESTS = ("tests/python/graph", "tests/python/relax/dnnl_relax/integration")
_PROBE = "import ensurepip, sys, venv; print(sys.version_info[1])"


def find(folders, accepts, newest=False):
    """Return the path of the oldest or newest Python 3 in folders that runs, or None.

    Only minor versions that `accepts` returns true for are considered.
    """
    paths = [path for folder in folders for path in Path(folder).glob("python3.*")]
    named = [(path, re.fullmatch(r"python3\.(\d+)", path.name)) for path in paths]
    accepted = [(int(match[1]), path) for path, match in named if match and accepts(int(match[1]))]
    for minor, path in sorted(accepted, reverse=newest):
        # The shim of a version manager may be there without its Python.
        answer = subprocess.run([path, "-c", _PROBE], capture_output=True, text=True)
        if answer.returncode == 0 and int(answer.stdout) == minor:
            return path
    return None


def lower_bounds(project):
    """Return constraints that require the oldest packages that a pyproject.toml allows."""
    return [f"{name}=={version}" for name, version in re.findall(r'"([\w-]+)>=([\w.]+)"', project)]


def choose(runner, layout, which):
    """Return the Python of `which` and the file of its constraints; no Python if none is newer."""
    folders = [*os.get_exec_path(), *Path.home().glob(".pyenv/versions/*/bin")]
    if which == NEWEST:
        python = find(folders, lambda minor: minor > sys.version_info[1], newest=True)
        return python, layout.requirements / f"{NEWEST}.constraints"
    project = (layout.root / "pyproject.toml").read_text()
    oldest = int(re.search(r'^requires-python = ">=3\.(\d+)"', project, re.MULTILINE)[1])
    pins = layout.build / f"{OLDEST}.constraints"
    if not runner.plan(f"write {pins}"):
        pins.write_text("\n".join(lower_bounds(project)) + "\n")
    return find(folders, lambda minor: minor >= oldest) or Path(sys.executable), pins


def install(runner, layout, which):
    """Install the plug-in in an environment of its own; return its Python, or None.

    Parameters
    ----------
    runner : Runner
        Runs the commands.
    layout : PluginLayout
        The checkout.
    which : str
        `NEWEST` or `OLDEST`.
    """
    interpreter, pins = choose(runner, layout, which)
    if interpreter is None:
        this = ".".join(map(str, sys.version_info[:2]))
        runner.console.say(f"there is no Python newer than {this}: nothing is tested with one")
        return None
    venv = layout.build / which
    runner.run([interpreter, "-m", "venv", "--clear", venv], f"{which}-venv")
    settings = {**build_settings(layout), "build-dir": venv / "cmake"}
    del settings["cmake.define.TVM_FFI"]  # pip installs its headers for the build.
    python = venv / "bin" / "python"
    # Also for what pip installs to build; older versions of pip read the first for that, too.
    command = ["env", f"PIP_CONSTRAINT={pins}", f"PIP_BUILD_CONSTRAINT={pins}"]
    command += [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    command += [f"--config-settings={name}={value}" for name, value in settings.items()]
    with runner.console.step(f"install the plug-in with {interpreter.name}"):
        runner.run([*command, "-e", f"{layout.root}[test]"], f"{which}-pip", explain_pip_failure)
    return python


def environ():
    """Return the variables of the tests: none that lead to the environment of dev.py."""
    names = ("TVM_LIBRARY_PATH", "TVM_HOME", "VIRTUAL_ENV")
    return {name: value for name, value in clean_environment().items() if name not in names}
