# SPDX-License-Identifier: Apache-2.0
"""Makes a wheel for people without this checkout.

It holds the prebuilt tree with the oneDNN backend laid over it, libtvm_dnnl.so, and oneDNN's
library. In a new environment `pip install FILE` is all it takes. With --relax it is the plug-in for
Relax, as `pip wheel .` builds it, with pinned packages.
"""

import functools
import json
import re
import shutil
import subprocess
from pathlib import Path

from scripts import options
from scripts.errors import SetupError
from scripts.layout import ROOT, Layout, PluginLayout
from scripts.runner import clean_environment, prepend, tail
from scripts.setup.environment import prepare
from scripts.setup.lock import held
from scripts.setup.plugin import build_settings, pip_builds
from scripts.setup.steps import Step
from scripts.setup.variables import tvm_home

# The one place that has it: what a program can ask for.
_VERSIONED = ROOT / "scripts" / "plugin" / "tvm_dnnl" / "__init__.py"
VERSION = re.search('^__version__ = "(.+)"$', _VERSIONED.read_text(), re.MULTILINE).group(1)
_PROJECT = """\
[build-system]
requires = ["scikit-build-core", "auditwheel"]
build-backend = "tagged_wheel"
backend-path = ["."]

[project]
name = {name}
version = {version}
description = {description}
readme = "README.md"
license = "Apache-2.0"
license-files = ["LICENSE", "licenses/*"]
requires-python = ">=3.10,<3.13"
dependencies = {dependencies}

[project.optional-dependencies]
report = {report}

[project.scripts]
tvmc = "tvm.driver.tvmc.main:main"

[tool.scikit-build]
wheel.cmake = false
wheel.packages = []
wheel.platlib = true
wheel.py-api = "py3"

[tool.scikit-build.wheel.force-include]
{files}
"""


def requirements(path, asks="~=", refused=None):
    """Read what a file of requirements pins; a wheel asks for that or what is newer.

    `asks` is "~=" for later patches only, ">=" for whatever is newer. By package, `refused` has the
    first version that does not do.
    """
    text = path.read_text().replace("\\\n", " ")
    lines = (re.split("#|--hash", line)[0].strip() for line in text.splitlines())
    required = []
    for name, version in (line.split("==", 1) for line in lines if line):
        version, mark, rest = version.partition(";")
        limit = f",<{refused[name]}" if name in (refused or {}) else ""
        required.append(f"{name}{asks}{version}{limit}{mark}{rest}")
    return required


# Of the prebuilt tree. TVM's package is a part of the wheel and not a requirement of it: its own
# wheel is tagged for Python 3.10 only, and two wheels must not own the same files.
NAME = "tvm-dnnl"
DESCRIPTION = "TVM 0.16 with Relay's oneDNN 3 backend, ready to run on x86_64 Linux"
# numpy 2 has no `np.float_`, which TVM's Python names when it is imported.
REFUSED = {"numpy": "2"}


def existing(layout, folder):
    """Return the wheels of a layout in a folder, of this version and for any platform."""
    name = "tvm_dnnl" if layout.has_tree else "tvm_dnnl_relax"
    return sorted(folder.glob(f"{name}-{VERSION}-*.whl"))


def write_project(layout, folder):
    """Write what the build backend reads of the prebuilt tree."""
    (folder / "licenses").mkdir(parents=True)
    # It finds oneDNN's library beside itself only.
    library = folder / layout.library.name
    shutil.copy2(layout.library, library)
    _run(layout, ["patchelf", "--set-rpath", "$ORIGIN", library])
    header = "src/runtime/contrib/dnnl/dnnl_kernel.h"
    contents = {
        str(layout.tvm): "tvm",
        # The headers that generated C source includes.
        str(layout.root / header): "tvm/include/dnnl/dnnl_kernel.h",
        str(layout.report_page / "dnnl_report_page"): "dnnl_report_page",
        # The name by which our library asks for it.
        str(layout.onednn / "lib" / "libdnnl.so.3"): "tvm/libdnnl.so.3",
        str(library): f"tvm/{library.name}",
    }
    files = "\n".join(f"{json.dumps(k)} = {json.dumps(v)}" for k, v in contents.items())
    (folder / "LICENSE").write_bytes((layout.root / "LICENSE").read_bytes())
    for name in ("LICENSE", "THIRD-PARTY-PROGRAMS"):
        text = layout.onednn / "share" / "doc" / "onednn" / name
        (folder / "licenses" / f"oneDNN-{name}.txt").write_bytes(text.read_bytes())
    copies = {
        "licenses/CARRIED.md": "licenses.md",
        "README.md": "readme.md",
        "tagged_wheel.py": "tagged_wheel.py",
    }
    for place, name in copies.items():
        (folder / place).write_bytes(Path(__file__).with_name(name).read_bytes())
    text = _PROJECT.format(
        name=json.dumps(NAME),
        version=json.dumps(VERSION),
        description=json.dumps(DESCRIPTION),
        dependencies=json.dumps(requirements(layout.requirements / "prebuilt.txt", ">=", REFUSED)),
        report=json.dumps(requirements(layout.requirements / "report.txt")),
        files=files,
    )
    (folder / "pyproject.toml").write_text(text)


def _run(layout, command):
    """Run a program of the environment."""
    environ = clean_environment()
    prepend(environ, "PATH", layout.bin)
    command = list(map(str, command))
    done = subprocess.run(command, env=environ, pass_fds=held(), capture_output=True, text=True)
    if done.returncode:
        raise SetupError("the wheel could not be built", "", tail(done.stdout + done.stderr))


def build(layout, out):
    """Build the wheel of a layout in the folder `out`; return its path. It is prepared."""
    folder = layout.native / "wheel"
    shutil.rmtree(folder, ignore_errors=True)
    if layout.has_tree:
        write_project(layout, folder)
    else:
        folder.mkdir(parents=True)
    source, settings = (folder, {}) if layout.has_tree else (layout.root, build_settings(layout))
    _run(layout, pip_builds(layout, ["wheel", "-w", folder, source], settings))
    (wheel,) = existing(layout, folder)
    check_audited(wheel)
    for old in existing(layout, out):
        old.unlink()
    out.mkdir(parents=True, exist_ok=True)
    return Path(shutil.move(wheel, out / wheel.name))


def check_audited(wheel):
    """Raise SetupError if no manylinux tag fits a wheel."""
    if "manylinux" not in wheel.name:
        raise SetupError(
            f"no manylinux tag fits {wheel.name}: `auditwheel show` says what its libraries need",
            "build it with an older compiler and C library.",
        )


class BuildWheel(Step):
    """Build a wheel. As a step of set-up it is alone: no other one changes what goes into it."""

    title = "build the wheel"

    def __init__(self, runner, layout, out):
        super().__init__(runner, layout)
        self.out = out

    def current(self):
        return False

    def run(self):
        if not self.runner.plan(f"build the wheel in {self.out}"):
            build(self.layout, self.out)


def add_arguments(parser):
    """Add the command's options."""
    parser.add_argument("--out", metavar="DIR", help="where it goes (default: build/dist)")
    options.add_relax(parser, "make the wheel of the plug-in for Relax")


def main(args):
    """Build the wheel and print its path."""
    if tvm_home() and not args.relax:
        raise SetupError(
            "a wheel is built from the prebuilt tree, but TVM_HOME is set",
            "unset it; a tree of your own has TVM's `python/setup.py`.",
        )
    layout = PluginLayout() if args.relax else Layout()
    out = Path(args.out).absolute() if args.out else layout.build / "dist"
    prepare(args, layout, extra_steps=[functools.partial(BuildWheel, out=out)])
    if not args.dry_run:
        (wheel,) = existing(layout, out)
        print(f"{wheel} ({wheel.stat().st_size / 1e6:.0f} MB)")
    return 0
