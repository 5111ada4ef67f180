# SPDX-License-Identifier: Apache-2.0
"""Fetches wheels by pip and unpacks them into directories of ours."""

import hashlib
import os
import re
import shutil
import stat
import zipfile

from scripts.errors import SetupError
from scripts.runner import explain_pip_failure

# The wheels are made for one Python and C library; what we take from them runs on more.
PIP_DOWNLOAD = [
    "download",
    "--disable-pip-version-check",
    "--no-input",
    "--no-deps",
    "--only-binary=:all:",
    "--python-version=310",
    # Nothing of them is installed for that Python; some say that they need a newer one.
    "--ignore-requires-python",
    "--platform=manylinux1_x86_64",
    "--platform=manylinux_2_28_x86_64",
    "--require-hashes",
]


def pinned(requirements):
    """Read (name, version, sha256) of each wheel that a requirements file pins."""
    pins = []
    for line in requirements.read_text().splitlines():
        match = re.match(r"([\w.-]+)==(\S+) --hash=sha256:([0-9a-f]{64})$", line.strip())
        if match:
            pins.append(match.groups())
        elif line.strip() and not line.startswith("#"):
            raise SetupError(f"{requirements} has a line that is not a pinned wheel: {line}")
    return pins


def _find(directory, name, version, sha256):
    for path in directory.glob(f"{name.replace('-', '_')}-{version}-*.whl"):
        if hashlib.sha256(path.read_bytes()).hexdigest() == sha256:
            return path
    return None


def fetch(runner, layout, requirements):
    """Return the paths of the wheels that a requirements file pins; download what is missing."""
    pins = pinned(requirements)
    paths = [_find(layout.wheels, *pin) for pin in pins]
    if None in paths:
        command = [layout.python, "-m", "pip", *PIP_DOWNLOAD, "-r", requirements]
        command += ["-d", layout.wheels]
        runner.run(command, f"pip-{requirements.stem}", explain=explain_pip_failure)
        if runner.dry_run:
            return []
        paths = [_find(layout.wheels, *pin) for pin in pins]
    for pin, path in zip(pins, paths):
        if path is None:
            raise SetupError(f"pip did not fetch {pin[0]}=={pin[1]}", f"see {layout.logs}")
    return paths


def replace_directory(new, target):
    """Put a finished directory in the place of an old one."""
    old = target.with_name(target.name + ".old")
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.rename(old)
    new.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def unpack_tree(wheel, target, skip=(), suffix=""):
    """Unpack a wheel's files as they are: those that end in `suffix`, but for those in `skip`."""
    with zipfile.ZipFile(wheel) as archive:
        for info in archive.infolist():
            is_wanted = info.filename.endswith(suffix) and info.filename not in skip
            if is_wanted and not info.is_dir():
                archive.extract(info, target)


def unpack_data(wheel, target, parts=("include", "lib", "share")):
    """Unpack the `data` scheme of a wheel, as an installation into a prefix would.

    A library that is stored three times, once per name, becomes one file and two links.
    """
    with zipfile.ZipFile(wheel) as archive:
        by_content: dict[tuple, str] = {}
        infos = [info for info in archive.infolist() if not info.is_dir()]
        # The longest name, as in libdnnl.so.3.2, keeps the content.
        for info in sorted(infos, key=lambda info: -len(info.filename)):
            match = re.match(r"[^/]+\.data/data/(.+)$", info.filename)
            if not match or match.group(1).split("/")[0] not in parts:
                continue
            path = target / match.group(1)
            path.parent.mkdir(parents=True, exist_ok=True)
            content = (path.parent, info.CRC, info.file_size)
            if ".so" in path.name and content in by_content:
                path.symlink_to(by_content[content])
                continue
            by_content[content] = path.name
            with archive.open(info) as source, path.open("wb") as sink:
                shutil.copyfileobj(source, sink)
            if ".so" in path.name:
                os.chmod(path, path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


def read_member(wheel, name):
    """Return the bytes of one file of a wheel, or None."""
    with zipfile.ZipFile(wheel) as archive:
        try:
            return archive.read(name)
        except KeyError:
            return None
