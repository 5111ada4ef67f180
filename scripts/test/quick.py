# SPDX-License-Identifier: Apache-2.0
"""The tests of what changed: the folders of the tests have the names of the stages."""

import re
import subprocess
from pathlib import Path, PurePosixPath

from scripts.errors import SetupError
from scripts.patchset.patch_set import read_list

BACKEND = "tests/python/contrib/"
FIRST = BACKEND + "test_dnnl.py"
STAGES = BACKEND + "dnnl_tests/"
RELAX = "tests/python/relax"
FOLDERS = RELAX + "/dnnl_relax/"
# By pattern of a changed path: the tests of it, the first pattern that fits counts. A folder stands
# for its test of the same name as the changed file where there is one.
RULES = (
    (r"tests/python/.*/test_\w+\.py$", ("{path}",)),
    (rf"{FOLDERS}(\w+)/", (FOLDERS + "{0}",)),
    (r"python/tvm/relax/.*/(onnx|torch)/", (FOLDERS + "{0}",)),
    (r"tests/python/relax/|src/runtime/extra/|python/tvm/relax/|scripts/plugin/", (RELAX,)),
    (rf"{STAGES}(\w+)/(rows/)?\w+\.\w+$", (STAGES + "{0}",)),
    (rf"{STAGES}interrupted", (STAGES + "partition", RELAX)),
    (rf"{STAGES}\w+\.py$", (FIRST, STAGES + "fusion")),
    (r"tests/python/(dev|patches|apps|graph)/", ("tests/python/{0}",)),
    (r"src/runtime/contrib/dnnl/core/(?:ops|kernels)/", (STAGES + "ops", FIRST)),
    (r"src/runtime/contrib/dnnl/core/fusion/", (STAGES + "fusion", FIRST)),
    (r"src/runtime/contrib/dnnl/c_source/|.*/dnnl_kernel\.h$", (STAGES + "c_source",)),
    (r"src/runtime/contrib/dnnl/", (STAGES + "runtime", FIRST)),
    (r"src/runtime/contrib/json/|.*/codegen_json/", (BACKEND + "test_json_runtime.py", FIRST)),
    (r"src/.*/codegen_c/", (BACKEND + "test_ccompiler.py", STAGES + "c_source")),
    (r"src/relay/backend/contrib/dnnl/", (STAGES + "c_source", STAGES + "fusion", FIRST)),
    (
        r"python/tvm/contrib/onednn/ops/",
        (STAGES + "ops", STAGES + "graphs/test_infer.py", STAGES + "partition/test_rules.py"),
    ),
    (r"python/tvm/contrib/onednn/ir/", ("tests/python/graph", STAGES + "graphs")),
    (r"python/tvm/contrib/onednn/partition/fuse", (STAGES + "fusion", FIRST)),
    (r"python/.*/(?:_dnnl|onednn)/(rewrites|report|integration)/", (STAGES + "{0}",)),
    (r"python/tvm/contrib/onednn/(cache|export)", (STAGES + "integration",)),
    (r"python/tvm/relay/frontend/", (STAGES + "onnx",)),
    (r"python/tvm/", (STAGES + "partition", STAGES + "fusion", FIRST)),
    (r"scripts/patchset/|patches/|cmake/(relax|utils)/", ("tests/python/patches",)),
    (r"scripts/|requirements/|dev\.py$|cmake/|CMakeLists", ("tests/python/dev",)),
    (r"apps/", ("tests/python/apps",)),
)
CPP = re.compile(r"src/|tests/cpp-runtime/|cmake/|CMakeLists")


def _git(root, *words):
    done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True)
    if done.returncode:
        raise SetupError(
            f"test --quick: git cannot tell what changed: {done.stderr.strip()}",
            "name a commit, as in `./dev.py test --quick HEAD~1`.",
        )
    return done.stdout.split()


def changed(root, commit=""):
    """Return the paths that differ from a commit, with those that git does not know yet.

    Parameters
    ----------
    root : Path
        The checkout.
    commit : str
        Default: where the branch left main; on main, HEAD, or its parent if nothing differs.
    """
    new = _git(root, "ls-files", "--others", "--exclude-standard")
    if commit:
        return _git(root, "diff", "--name-only", commit, "--") + new
    head = _git(root, "rev-parse", "HEAD")
    base = _git(root, "merge-base", "main", "HEAD")
    names = _git(root, "diff", "--name-only", *base, "--") + new
    return names if names or base != head else _git(root, "diff", "--name-only", "HEAD~1", "--")


def _narrow(root, folder, path):
    """Return the test of a folder that has the name of a changed file, or the folder."""
    stem = PurePosixPath(path).stem
    return next((f for f in (f"{folder}/test_{stem}.py",) if (root / f).is_file()), folder)


def choose(root, paths):
    """Return the tests of the changed paths, and whether the C++ tests are among them.

    Parameters
    ----------
    root : Path
        The checkout.
    paths : list of str
        What changed, relative to it.
    """
    tests = set()
    # Files that a tree without Relay has as well, and that no rule names as those of Relax.
    listed = read_list(root / "patches/relax/overlay.list")
    shared = tuple(f"{path}/" for path in listed if path not in (RELAX, "python/tvm/relax"))
    for path in paths:
        if f"{path}/".startswith(shared):
            tests.add(RELAX)
        for pattern, targets in RULES:
            fits = re.match(pattern, path)
            if fits:
                expanded = (target.format(*fits.groups(), path=path) for target in targets)
                tests |= {_narrow(root, test, path) for test in expanded if (root / test).exists()}
                break
    inside = {test for test in tests if any(str(up) in tests for up in Path(test).parents)}
    return sorted(tests - inside), any(CPP.match(path) for path in paths)
