# SPDX-License-Identifier: Apache-2.0
"""Which tests `dev.py test` runs: those of what changed, and in how many processes."""

import itertools
import subprocess

import pytest

from scripts.errors import SetupError
from scripts.layout import ROOT
from scripts.test import pairs, quick
from scripts.test.test import sharing

STAGES = quick.STAGES
FOLDERS = quick.FOLDERS
RUNTIME = "src/runtime/contrib/dnnl/"
RELAY = "python/tvm/relay/op/contrib/_dnnl/"
SHARED = "python/tvm/contrib/onednn/"


@pytest.mark.parametrize(
    "path, tests, has_cpp",
    [
        (
            RUNTIME + "core/ops/conv.cc",
            [STAGES + "ops/test_conv.py", quick.FIRST, quick.RELAX],
            True,
        ),
        (
            RUNTIME + "core/kernels/norm.cc",
            [STAGES + "ops/test_norm.py", quick.FIRST, quick.RELAX],
            True,
        ),
        (RUNTIME + "core/plan/plan.cc", [STAGES + "runtime", quick.FIRST, quick.RELAX], True),
        (
            SHARED + "ops/pool.py",
            [
                STAGES + "graphs/test_infer.py",
                STAGES + "ops/test_pool.py",
                STAGES + "partition/test_rules.py",
                quick.RELAX,
            ],
            False,
        ),
        (
            RELAY + "partition/dequantize_order.py",
            [STAGES + "fusion", STAGES + "partition/test_dequantize_order.py", quick.FIRST],
            False,
        ),
        ("python/tvm/relax/x/onnx/resize.py", [FOLDERS + "onnx/test_resize.py"], False),
        ("tests/python/graph/graph_reader.py", ["tests/python/graph", quick.RELAX], False),
        (SHARED + "rewrites/formulas.py", [STAGES + "rewrites", quick.RELAX], False),
        (RUNTIME + "dnnl_kernel.h", [STAGES + "c_source"], True),
        ("python/tvm/relay/frontend/onnx_repairs/pools.py", [STAGES + "onnx"], False),
        (
            RELAY + "rewrites/fold_pad.py",
            [STAGES + "rewrites/test_fold_pad.py"],
            False,
        ),
        (STAGES + "ops/test_pool.py", [STAGES + "ops/test_pool.py"], False),
        (STAGES + "ops/test_gone.py", [], False),
        ("patches/series", ["tests/python/patches"], False),
        ("scripts/lint/lint.py", ["tests/python/dev"], False),
        ("docs/api.md", [], False),
        ("tests/cpp-runtime/json/node_test.cc", [], True),
    ],
)
def test_a_change_has_the_tests_of_its_stage(path, tests, has_cpp):
    assert quick.choose(ROOT, [path]) == (tests, has_cpp)


def test_every_stage_is_in_a_rule():
    """A stage that no rule can choose would be tested by changes of itself only."""
    for place in (RELAY, SHARED):
        for folder in (ROOT / place).iterdir():
            if folder.is_dir() and folder.name != "__pycache__":
                assert quick.choose(ROOT, [f"{place}{folder.name}/x.py"])[0]
    for folder in (ROOT / "src").rglob("*"):
        if folder.is_dir():
            assert quick.choose(ROOT, [f"{folder.relative_to(ROOT)}/x.cc"])[1]


@pytest.fixture
def repository(tmp_path):
    def git(*words):
        name = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", "-C", tmp_path, *name, *words], check=True, capture_output=True)

    git("init", "-b", "main")
    for name in ("first", "second"):
        (tmp_path / name).write_text(name)
        git("add", ".")
        git("commit", "-m", name)
    return tmp_path, git


def test_what_changed(repository):
    root, git = repository
    assert quick.changed(root) == ["second"], "on main, what the last commit changed"
    (root / "new").write_text("")
    assert quick.changed(root) == ["new"]
    git("checkout", "-b", "branch")
    git("add", ".")
    git("commit", "-m", "new")
    (root / "first").write_text("other")
    assert quick.changed(root) == ["first", "new"], "since the branch left main"
    assert quick.changed(root, "HEAD") == ["first"]


def test_a_commit_that_is_not_there(repository):
    with pytest.raises(SetupError, match="git cannot tell what changed.*nowhere"):
        quick.changed(repository[0], "nowhere")


def test_a_single_file_is_run_in_one_process():
    assert sharing(["tests/python/dev/test_quick.py"]) == ([], {})
    assert sharing(["tests", "-n0"]) == ([], {})
    words, variables = sharing(["-x", "tests/a.py", "tests/b.py"])
    assert words[2:4] == ["--dist", "loadfile"] and variables["OMP_NUM_THREADS"] == "1"


def test_each_pair_of_three_parameters_stays():
    values = {"a": range(3), "b": range(4), "c": range(5)}
    cases = [tuple(zip(values, case)) for case in itertools.product(*values.values())]
    kept = pairs.covering({case: set(itertools.combinations(case, 2)) for case in cases})
    seen = {pair for case in kept for pair in itertools.combinations(case, 2)}
    assert len(seen) == 3 * 4 + 3 * 5 + 4 * 5 and len(kept) < len(cases) / 2
