# SPDX-License-Identifier: Apache-2.0
"""The build backend of both wheels: scikit-build-core, with the tag that auditwheel finds.

pip and `python -m build` call it, see `build-system` in pyproject.toml.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from scikit_build_core import build
from scikit_build_core.build import *  # noqa: F403

# Not in a wheel, and not in every Linux distribution that its tag stands for: a package that it
# requires has the first; the readme names the others. With one GNU OpenMP for all, a process does
# not have two sets of threads.
NOT_INCLUDED = ("libtvm_ffi.so", "libgomp.so.1", "libtinfo.so.6")
# It would parse the symbols of a library in Python once for each manylinux tag.
_AUDITWHEEL = """\
import functools, sys
from auditwheel import elfutils, main
elfutils.get_undefined_symbols = functools.cache(elfutils.get_undefined_symbols)
sys.exit(main.main())
"""


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Build a wheel; return its name."""
    with tempfile.TemporaryDirectory() as folder:
        name = build.build_wheel(folder, config_settings, metadata_directory)
        wheel = tagged(Path(folder, name))
        shutil.move(wheel, Path(wheel_directory, wheel.name))
    return wheel.name


def tagged(wheel):
    """Return a copy of a wheel with the manylinux tag that its libraries fit; itself if none fits.

    The tag "linux_x86_64" is then for this machine. No library is added: the wheel is complete.
    """
    folder = wheel.parent / "tagged"
    command = [sys.executable, "-c", _AUDITWHEEL, "repair", "--plat", "auto", "--patcher", "none"]
    command += [f"--exclude={name}" for name in NOT_INCLUDED]
    done = subprocess.run(
        [*command, "--wheel-dir", folder, wheel], stderr=subprocess.PIPE, text=True
    )
    if not done.returncode:
        return next(folder.glob("*.whl"))
    print(done.stderr, f"{wheel.name}: no manylinux tag fits, the wheel is for this machine only")
    return wheel
