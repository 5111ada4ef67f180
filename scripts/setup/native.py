# SPDX-License-Identifier: Apache-2.0
"""Compiles our C++ against the prebuilt tree."""

import contextlib
import os
import re
import shlex
import shutil

from scripts.errors import SetupError
from scripts.files import Stamp, digest
from scripts.runner import tail
from scripts.setup import machine
from scripts.setup.lock import exclusive


def explain_build_failure(output, command, log):
    """Show the compiler's first errors rather than the last lines of the build."""
    if "No space left on device" in output:
        return SetupError("the disk is full", "free some space and run the same command again.")
    lines = output.splitlines()
    first = next(
        (i for i, line in enumerate(lines) if re.search(r"\berror:|^FAILED:|CMake Error", line)),
        None,
    )
    shown = "\n".join(lines[first : first + 40]) if first is not None else tail(output)
    return SetupError(f"`{shlex.join(command)}` failed", f"the whole log is {log}", shown)


def is_newer(product, root):
    """Tell if a product is newer than the sources of a checkout that are compiled."""
    if not product.is_file():
        return False
    built_at = product.stat().st_mtime_ns
    # Folders too: theirs is the time when a file came or went.
    folders = [root / "cmake", root / "src"]
    sources = [root / "CMakeLists.txt", *folders]
    sources += [path for folder in folders for path in folder.rglob("*")]
    return all(path.stat().st_mtime_ns < built_at for path in sources if path.exists())


class NativeBuild:
    """A CMake build directory. Ninja knows what is due in it; here is only what it was made for.

    `folder` is the build directory, the layout's by default. `flags` are the compiler's in the
    place of those of a release. `definitions` are CMake's variables that differ from the layout's.
    """

    def __init__(self, runner, layout, folder=None, flags=None, definitions=None):
        self.runner = runner
        self.layout = layout
        self.folder = folder or layout.cmake
        self.definitions = {
            "CMAKE_BUILD_TYPE": "Debug" if flags else "Release",
            **({"CMAKE_CXX_FLAGS_DEBUG": flags} if flags else {}),
            "USE_DNNL": layout.onednn,
            **layout.definitions,
            **(definitions or {}),
        }

    def configure_command(self):
        """Return CMake's command line."""
        programs = {
            "CMAKE_MAKE_PROGRAM": self.layout.bin / "ninja",
            "CMAKE_CXX_COMPILER": machine.find_compiler(),
        }
        values = {**programs, **self.definitions}
        command = [self.layout.bin / "cmake", "-G", "Ninja", "-S", self.layout.root]
        command += ["-B", self.folder]
        return command + [f"-D{name}={value}" for name, value in values.items()]

    def _configured(self):
        """Return the stamp of the configuration, and the key that it has if it is this one."""
        flags = [os.environ.get(name, "") for name in ("CXXFLAGS", "LDFLAGS")]
        files = [self.layout.requirements / name for name in self.layout.pins]
        key = digest(*map(str, self.configure_command()), *flags, *files)
        return Stamp(self.folder / ".configured"), key

    def is_newer(self, product):
        """Tell if a product is newer than all that it is built from, configuration included."""
        stamp, key = self._configured()
        return stamp.matches(key) and is_newer(product, self.layout.root)

    def configure(self):
        """Configure the directory anew if it was made for something else, or not to its end."""
        stamp, key = self._configured()
        if stamp.matches(key):
            return
        if not self.runner.dry_run:
            shutil.rmtree(self.folder, ignore_errors=True)
        command, launcher = self.configure_command(), machine.compiler_launcher(self.layout.root)
        if launcher:
            # Not in the key: a directory that was made without it stays as it is.
            command.append(f"-DCMAKE_CXX_COMPILER_LAUNCHER={';'.join(launcher)}")
        self.runner.run(command, "cmake", explain=explain_build_failure)
        if not self.runner.dry_run:
            stamp.write(key)

    def alone(self):
        """Return a context in which no other process builds in the directory.

        It has a lock of its own. Who waits for that of set-up could have what a set-up waits for.
        """
        if self.runner.dry_run:
            return contextlib.nullcontext()
        lock = self.folder.with_name(f".lock-{self.folder.name}")
        return exclusive(lock, self.runner.console, f"another compilation in {self.folder}")

    def build(self, *targets, options=()):
        """Bring targets up to date."""
        command = [self.layout.bin / "ninja", "-C", self.folder, *options, *targets]
        with self.alone():
            self.configure()
            self.runner.run(command, f"build-{self.folder.name}", explain=explain_build_failure)
