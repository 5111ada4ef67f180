# SPDX-License-Identifier: Apache-2.0
"""Checks of text: licence headers, the length of files, strings that must not appear, imports.

Our own, as no tool that others keep has the first two for all kinds of files. pre-commit's hook for
blanks at the end of lines repairs files, where `./dev.py lint` must only tell; and as there is a
table of forbidden strings, such blanks and the marks of a merge are two rows of it.
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

from scripts.errors import SetupError

MAX_LINES = 400
HEADER = "Licensed to the Apache Software Foundation (ASF) under one"
# The header of what stays in this project, and of tests, whose copies in a TVM tree have the ASF's.
SHORT = "SPDX-License-Identifier: Apache-2.0"
OWN = ("dev.py", "scripts/", "tests/")
# Kinds of files that carry the header, by suffix or name.
WITH_HEADER = {".py", ".cc", ".h", ".c", ".cmake", ".txt", ".toml", ".sh", ".map", ".yml"}
WITH_HEADER |= {"CMakeLists.txt", "run", ".clang-format"}
# Kinds of files whose length counts: what people read as code.
WITH_LIMIT = {".py", ".cc", ".h", ".c", ".cmake", ".sh", "CMakeLists.txt"}
BINARY = {".png", ".jpg", ".onnx", ".npz", ".npy", ".ttf"}

PACKAGE = "python/tvm/contrib/onednn"
# What it may import beside the standard library. One writes the page of a report; onnx and protobuf
# are imported with the first ONNX model only, and onnxruntime with the first that is verified.
_PACKAGES = {"ml_dtypes", "numpy", "dnnl_report_page", "google", "onnx", "onnxruntime"}
# Its folders: each may import those before it, and the files beside them that import no folder.
_LAYERS = ("ir", "ops", "frontend", "rewrites", "partition", "report", "verify")

# The importers of each TVM, and the files in which they and the backend may import each other.
_IMPORTERS = ("python/tvm/relax/frontend/_dnnl", "python/tvm/relay/frontend/onnx_repairs")
_MEETING_POINTS = {f"{folder}/backend.py" for folder in _IMPORTERS}
_MEETING_POINTS.add("python/tvm/relax/backend/contrib/_dnnl/importers.py")
_OF_IMPORTERS = (
    r"(tvm_dnnl\.frontend\._dnnl|tvm\.relax\.frontend\._dnnl|tvm\.relay\.frontend\.onnx_repairs)\b"
)
_OF_BACKEND = (
    r"(tvm_dnnl(?!\.frontend)|tvm\.relax\.backend|tvm\.relay\.op\.contrib"
    rf"|tvm\.contrib\.onednn\.({'|'.join(set(_LAYERS) - {'frontend'})}))\b"
)


def list_files(root):
    """Return the files of the checkout, relative to it: tracked, or new and not ignored."""
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others"]
    try:
        output = subprocess.run(
            [*command, "--exclude-standard"], capture_output=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise SetupError(
            "lint asks git for the files of the checkout, and git failed",
            "install git, and run in a git checkout.",
        ) from error
    names = {Path(name.decode()) for name in output.split(b"\0") if name}
    return sorted(name for name in names if (root / name).is_file())


def _kinds(path):
    return {path.suffix, path.name}


def _rows(table):
    """Read the rows of a table file, whose columns are separated by two or more blanks."""
    for line in table.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            yield re.split(r"\s{2,}", line.strip(), maxsplit=2)


def check_headers(root, files):
    """Yield a message for each source file without the licence header."""
    for path in files:
        if _kinds(path) & WITH_HEADER:
            text = (root / path).read_text()[:400]
            is_short = path.as_posix().startswith(OWN) and SHORT in text
            if HEADER not in text and not is_short:
                yield f"{path}: no ASF licence header"


def check_sizes(root, files, table):
    """Yield a message for each file that is too long, or allowed to be without need."""
    allowed = {Path(name): (int(most), why) for name, most, why in _rows(table)}
    for path in files:
        if not _kinds(path) & WITH_LIMIT:
            continue
        lines = (root / path).read_bytes().count(b"\n")
        most = allowed.get(path, (MAX_LINES, ""))[0]
        if lines > most:
            yield f"{path}: {lines} lines, at most {most} are allowed; split it"
        elif path in allowed and lines <= MAX_LINES:
            yield f"{path}: {lines} lines; take its row out of {table.name}"


def _is_of(path, kinds):
    """Whether a file has one of some suffixes, or lies in one of some folders, as in "src/"."""
    return path.suffix in kinds or any(
        path.as_posix().startswith(kind) for kind in kinds if kind.endswith("/")
    )


def check_forbidden(root, files, table):
    """Yield a message for each line that holds a forbidden string."""
    rules = []
    for pattern, kinds, why in _rows(table):
        rules.append((re.compile(pattern), None if kinds == "*" else set(kinds.split(",")), why))
    for path in files:
        if path.suffix in BINARY or path.name == table.name or path.suffix == ".patch":
            continue
        text = (root / path).read_text(errors="replace")
        here = [(rule, why) for rule, kinds, why in rules if kinds is None or _is_of(path, kinds)]
        for number, line in enumerate(text.splitlines(), 1):
            for pattern, why in here:
                if pattern.search(line):
                    yield f"{path}:{number}: {why}: {line.strip()[:80]}"


def check_package(root):
    """Yield a message for each forbidden import in the package that Relay and Relax share.

    It may import itself, the standard library, and the packages in `_PACKAGES`.
    """
    folder = root / PACKAGE
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for name in _foreign(path, node, folder):
                yield f"{path.relative_to(root)}:{node.lineno}: the shared package imports {name}"


def _foreign(path, node, folder):
    """Return what an import names outside of the package and what that may use."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.level:
        base = path.parents[node.level - 1]
        is_inside = base == folder or folder in base.parents
        return [] if is_inside else ["." * node.level + (node.module or "")]
    elif isinstance(node, ast.ImportFrom):
        names = [node.module]
    else:
        return []
    known = sys.stdlib_module_names | _PACKAGES
    return [name for name in names if name.split(".")[0] not in known]


def check_layers(root):
    """Yield a message for each import that goes up the layers of the shared package."""
    folder, imports = root / PACKAGE, []
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level:
                base = path.parents[node.level - 1].relative_to(folder).parts
                base += tuple(filter(None, (node.module or "").split(".")))
                for name in [base[0]] if base else [alias.name for alias in node.names]:
                    imports.append((path.relative_to(folder), node.lineno, name))
    users = {path.stem for path, _, name in imports if len(path.parts) == 1 and name in _LAYERS}
    for path, number, name in imports:
        if len(path.parts) == 1:
            continue
        later = _LAYERS[_LAYERS.index(path.parts[0]) + 1 :]
        if name in later or name in users:
            yield f"{PACKAGE}/{path}:{number}: {path.parts[0]} imports {name}, a later layer"


def check_importers(root):
    """Yield a message for each import between importers and backend outside of the meeting points.

    Importers may import the shared package's `frontend`, and the files that lie beside its folders.
    """
    for path in sorted((root / "python" / "tvm").rglob("*.py")):
        name = path.relative_to(root).as_posix()
        is_importer = name.startswith(_IMPORTERS)
        other = _OF_BACKEND if is_importer else _OF_IMPORTERS
        below = path.relative_to(root / "python")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for module in _modules(below, node):
                if re.match(other, module) and name not in _MEETING_POINTS:
                    side = "the importers import" if is_importer else "the backend imports"
                    yield f"{name}:{node.lineno}: {side} {module}"
                    break


def _modules(path, node):
    """Return the absolute names of what an import in a file below python/ names."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    base = path.parents[node.level - 1].parts if node.level else ()
    module = ".".join([*base, *filter(None, [node.module])])
    return [f"{module}.{alias.name}" for alias in node.names]
