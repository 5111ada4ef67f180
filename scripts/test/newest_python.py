# SPDX-License-Identifier: Apache-2.0
"""Tests the plug-in with the newest Python at hand, installed by pip as users install it.

The other tests run with the Python of the environment, and with packages that it still supports.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

from scripts.runner import clean_environment, explain_pip_failure
from scripts.setup.plugin import build_settings

# Each op without TVM; then what imports, compiles, runs and exports.
TESTS = ("tests/python/graph", "tests/python/relax/dnnl_relax/integration")
_PROBE = "import ensurepip, sys, venv; print(sys.version_info[1])"


def newest(folders):
    """Return the path of the newest Python 3 in folders, if it is newer than this one, or None."""
    paths = [path for folder in folders for path in Path(folder).glob("python3.*")]
    named = [(path, re.fullmatch(r"python3\.(\d+)", path.name)) for path in paths]
    newer = [(int(match[1]), path) for path, match in named if match]
    for minor, path in sorted(newer, reverse=True):
        if minor <= sys.version_info[1]:
            break
        # The shim of a version manager may be there without its Python.
        answer = subprocess.run([path, "-c", _PROBE], capture_output=True, text=True)
        if answer.returncode == 0 and int(answer.stdout) == minor:
            return path
    return None


def install(runner, layout):
    """Install the plug-in in an environment of the newest Python; return its Python, or None."""
    folders = [*os.get_exec_path(), *Path.home().glob(".pyenv/versions/*/bin")]
    interpreter = newest(folders)
    if interpreter is None:
        this = ".".join(map(str, sys.version_info[:2]))
        runner.console.say(f"there is no Python newer than {this}: nothing is tested with one")
        return None
    venv = layout.build / "newest_python"
    runner.run([interpreter, "-m", "venv", "--clear", venv], "newest-venv")
    settings = {**build_settings(layout), "build-dir": venv / "cmake"}
    del settings["cmake.define.TVM_FFI"]  # pip installs its headers for the build.
    python = venv / "bin" / "python"
    # Also for what pip installs to build; older versions of pip read the first for that, too.
    pins = layout.requirements / "newest-python.constraints"
    command = ["env", f"PIP_CONSTRAINT={pins}", f"PIP_BUILD_CONSTRAINT={pins}"]
    command += [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    command += [f"--config-settings={name}={value}" for name, value in settings.items()]
    with runner.console.step(f"install the plug-in with {interpreter.name}"):
        runner.run(
            [*command, "-e", f"{layout.root}[test]"], "newest-pip", explain=explain_pip_failure
        )
    return python


def environ():
    """Return the variables of the tests: none that lead to the environment of dev.py."""
    names = ("TVM_LIBRARY_PATH", "TVM_HOME", "VIRTUAL_ENV")
    return {name: value for name, value in clean_environment().items() if name not in names}
