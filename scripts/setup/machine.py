# SPDX-License-Identifier: Apache-2.0
"""Checks of the machine before set-up begins, each with a remedy."""

import ctypes
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from scripts.errors import SetupError

NEEDED_BYTES = 3 * 1000**3

# Libraries that libtvm.so and oneDNN open, and the Debian packages that hold them.
SHARED_LIBRARIES = {
    "libstdc++.so.6": "libstdc++6",
    "libgomp.so.1": "libgomp1",
    "libtinfo.so.6": "libtinfo6",
    "libz.so.1": "zlib1g",
}

COMPILER_REMEDY = (
    "install one: `apt-get install g++` (Debian, Ubuntu) or `dnf install gcc-c++` (Fedora, "
    "RHEL), or name yours with CXX=/path/to/compiler."
)

_PROBE = """
#include <optional>
#include <string_view>
int Probe(std::optional<int> x, std::string_view s) {
  if constexpr (sizeof(int) > 1) return x.value_or(static_cast<int>(s.size()));
}
"""


def check_platform(min_glibc):
    """Require Linux on x86_64 with a glibc: the prebuilt binaries are made for it."""
    system, machine = platform.system(), platform.machine()
    if system != "Linux" or machine not in ("x86_64", "AMD64") or sys.maxsize < 2**32:
        raise SetupError(
            f"this is {system} on {machine}; the prebuilt TVM and oneDNN are for 64-bit Linux "
            "on x86_64",
            "use such a machine or container. On others, build TVM from source with this patch "
            "set applied and set TVM_HOME to it.",
        )
    try:
        name, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").split()
        libc = tuple(int(part) for part in version.split(".")[:2])
    except (ValueError, AttributeError, OSError):
        name, version, libc = "another C library", "", (0, 0)
    if libc < min_glibc:
        needed = ".".join(map(str, min_glibc))
        raise SetupError(
            f"the C library is {name} {version}, and the prebuilt packages need glibc {needed} or "
            "newer",
            "use a newer distribution with glibc, such as Debian 12 or Ubuntu 22.04 (not Alpine).",
        )


def check_shared_libraries(load=ctypes.CDLL):
    """Require the system libraries that the prebuilt binaries open."""
    missing = []
    for name in SHARED_LIBRARIES:
        try:
            load(name)
        except OSError:
            missing.append(name)
    if missing:
        packages = " ".join(SHARED_LIBRARIES[name] for name in missing)
        raise SetupError(
            f"the prebuilt TVM needs {', '.join(missing)}",
            f"`apt-get install {packages}`, or the packages of your distribution that hold them.",
        )


def check_disk(path, needed=NEEDED_BYTES):
    """Require free space for the downloads and what is built from them."""
    free = shutil.disk_usage(path).free
    if free < needed:
        raise SetupError(
            f"{path} has {free / 1e9:.1f} GB free, set-up needs {needed / 1e9:.0f} GB",
            "free some space, or put the checkout on a larger disk.",
        )


def check_writable(path):
    """Require that files can be made under `path`, which is created."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise SetupError(
            f"cannot write to {path}: {error.strerror}",
            "run as the owner of the checkout, or clone it to a place of your own.",
        ) from error


def find_compiler(environ=None):
    """Return the path of the C++ compiler: CXX, or the first of g++, c++, clang++ on PATH."""
    environ = os.environ if environ is None else environ
    search = environ.get("PATH")
    named = environ.get("CXX", "").strip()
    if named:
        compiler = shutil.which(named, path=search)
        if not compiler:
            raise SetupError(f"CXX names {named}, which is not there", COMPILER_REMEDY)
        return Path(compiler)
    for name in ("g++", "c++", "clang++"):
        compiler = shutil.which(name, path=search)
        if compiler:
            return Path(compiler)
    raise SetupError("there is no C++ compiler", COMPILER_REMEDY)


def compiler_launcher(root):
    """Return the words before the compiler's that let ccache keep its objects; none without it.

    Paths below `root` are relative for ccache, so that a new clone finds what another one compiled.
    """
    ccache = shutil.which("ccache")
    # CMake reads this variable of the caller's itself.
    if ccache is None or os.environ.get("CMAKE_CXX_COMPILER_LAUNCHER"):
        return []
    return ["/usr/bin/env", f"CCACHE_BASEDIR={root}", "CCACHE_NOHASHDIR=1", ccache]


def check_compiler(compiler):
    """Require that the compiler builds a C++17 shared library."""
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory) / "probe.cc"
        source.write_text(_PROBE)
        command = [str(compiler), "-std=c++17", "-shared", "-fPIC", str(source)]
        command += ["-o", str(source.with_suffix(".so"))]
        try:
            result = subprocess.run(
                command, capture_output=True, text=True, errors="replace", timeout=120
            )
            code, output = result.returncode, result.stdout + result.stderr
        except (OSError, subprocess.TimeoutExpired) as error:
            code, output = 1, str(error)
    if code != 0:
        raise SetupError(
            f"the C++ compiler {compiler} cannot build a C++17 library",
            f"take a newer one; GCC 11, GCC 12 and Clang 14 are known to work. {COMPILER_REMEDY}",
            output.strip()[-2000:],
        )
