# SPDX-License-Identifier: Apache-2.0
"""The files of scripts/ do not import each other in circles, not even inside functions."""

import ast
import graphlib

from scripts.layout import ROOT


def module_of(path):
    """Return the name by which a file is imported."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(path):
    """Return what a file imports, wherever in it: modules, or names in modules."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_no_circles():
    files = {module_of(path): path for path in ROOT.glob("scripts/**/*.py")}
    imports = {name: set(imported(path)).intersection(files) for name, path in files.items()}
    assert "scripts.setup.steps" in imports["scripts.setup.environment"]
    # Raises CycleError, which names the modules of a circle.
    graphlib.TopologicalSorter(imports).prepare()
