#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The one entry point: prepares the environment and runs demo, tests, benchmarks and checks.

This file must parse on old Pythons, to tell their users which ones work.
"""

import os
import sys

VERSIONS = ((3, 11), (3, 10), (3, 12))
PROBE = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"


def find_python():
    """Return the path of a Python on PATH that works, or None."""
    import shutil
    import subprocess

    for major, minor in VERSIONS:
        path = shutil.which("python%d.%d" % (major, minor))
        if not path:
            continue
        # A version manager's shim may be there without the Python behind it: ask it.
        try:
            answer = subprocess.check_output([path, "-c", PROBE], stderr=subprocess.DEVNULL)
        except (OSError, subprocess.CalledProcessError):
            continue
        if answer.decode().strip() == "%d.%d" % (major, minor):
            return path
    return None


def main():
    """Start the command line on a Python that works."""
    if sys.version_info[:2] not in VERSIONS:
        python = find_python() if sys.version_info >= (3, 3) else None
        if python and "DEV_PY_RESTARTED" not in os.environ:
            os.environ["DEV_PY_RESTARTED"] = "1"
            os.execv(python, [python, os.path.abspath(__file__)] + sys.argv[1:])
        sys.stderr.write(
            "error: this is Python %d.%d; the prebuilt TVM works with 3.10, 3.11 and 3.12\n"
            "what to do: install one of them (for example `apt-get install python3.11 "
            "python3.11-venv`) and run `python3.11 dev.py`. One that is on PATH as python3.11, "
            "python3.10 or python3.12 is found by itself. The plug-in for Relax works with any "
            "later Python and needs no dev.py: `pip install '.[onnx]'`.\n" % sys.version_info[:2]
        )
        return 1
    os.environ.pop("DEV_PY_RESTARTED", None)
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    from scripts.cli import main as run

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
