# SPDX-License-Identifier: Apache-2.0
"""A run of `apply` that is killed or fails leaves a tree that the next run puts right."""

import contextlib
import errno
import os
import shutil
import signal
from pathlib import Path

import pytest
from small_tree import make_checkout, make_tvm, scratch_folder, snapshot, write

from scripts import cli
from scripts.errors import SetupError
from scripts.patchset.patch_set import PatchSet
from scripts.patchset.tree import Tree

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a forked process")

MANIFEST = ".dnnl-overlay/manifest.json"
# Every way in which the code changes the tree. Each call is a step at which a run may end.
STEPS = ("replace", "unlink", "mkdir", "rmdir", "symlink", "chmod", "sync", "open")


def interfere(monkeypatch, at, act):
    """Do `act` instead of step number `at`; return the counter of the steps."""
    done = {"steps": 0}

    def wrap(real):
        def step(*args, **kwargs):
            done["steps"] += 1
            if done["steps"] == at:
                act()
            return real(*args, **kwargs)

        return step

    # pathlib and shutil look these functions up in `os`, so all of them pass here.
    for name in STEPS:
        monkeypatch.setattr(os, name, wrap(getattr(os, name)))
    return done


@pytest.fixture(autouse=True)
def no_sync(monkeypatch):
    """A process that is killed loses nothing that it wrote; only a power cut needs the syncs."""
    monkeypatch.setattr(os, "sync", lambda: None)


def run(tvm, checkout, *flags):
    """Run `apply`."""
    return cli.run(["apply", "--tvm", str(tvm), *flags], PatchSet(checkout))


def count_steps(tvm, checkout, *flags):
    with pytest.MonkeyPatch.context() as patch:
        done = interfere(patch, 0, None)
        run(tvm, checkout, *flags)
    return done["steps"]


def run_and_kill(at, tvm, checkout, *flags):
    """Run `apply` in a process that is killed at a step. True if it got that far."""
    child = os.fork()
    if child == 0:
        try:
            with pytest.MonkeyPatch.context() as patch:
                interfere(patch, at, lambda: os.kill(os.getpid(), signal.SIGKILL))
                run(tvm, checkout, *flags)
        finally:  # never back into pytest
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """The patch set of most tests."""
    return make_checkout(tmp_path_factory.mktemp("checkout"))


@pytest.fixture(scope="module")
def newer(tmp_path_factory):
    """A later version of that patch set, with a file more, one less and others changed."""
    root = make_checkout(tmp_path_factory.mktemp("newer"))
    (root / "src/runtime/contrib/dnnl/ops/conv.cc").unlink()
    write(
        root,
        {
            "src/runtime/contrib/dnnl/dnnl_utils.cc": "// newer\n",
            "src/runtime/contrib/dnnl/more/pool.cc": "// more\n",
            "patches/series": "cmake/add-option.patch\n",
        },
    )
    return root


@pytest.fixture
def states(checkout, newer, monkeypatch):
    """The tree without the patch set, with it, and with the newer one; and a copy to work on."""
    with scratch_folder() as folder:
        # What a killed process leaves in the folder for temporary files goes with this one.
        monkeypatch.setattr("tempfile.tempdir", folder)
        seen = {}
        folder = Path(folder)
        tree = make_tvm(folder / "tvm")
        for name, source in ("pristine", None), ("applied", checkout), ("updated", newer):
            if source:
                run(tree, source)
            shutil.copytree(tree, folder / name, symlinks=True)
            seen[name] = snapshot(tree)

        def fresh(name):
            shutil.rmtree(tree)
            shutil.copytree(folder / name, tree, symlinks=True)
            return tree

        yield seen, fresh


# What is run and killed, on which tree; then what is run, the tree that this has to give, and how
# many steps lie between two kills: every step once for applying, taking out and updating.
KILLED = {
    "apply then apply": ("pristine", "checkout", [], [], "applied", 5),
    "apply then reverse": ("pristine", "checkout", [], ["--reverse"], "pristine", 1),
    "reverse then reverse": ("applied", "checkout", ["--reverse"], ["--reverse"], "pristine", 1),
    "reverse then apply": ("applied", "checkout", ["--reverse"], [], "applied", 5),
    "update then apply": ("applied", "newer", [], [], "updated", 1),
    "update then reverse": ("applied", "newer", [], ["--reverse"], "pristine", 5),
}


@pytest.mark.parametrize("case", KILLED)
def test_killed_at_every_step(case, states, request):
    start, source, flags, then, end, stride = KILLED[case]
    source = request.getfixturevalue(source)
    known, fresh = states
    steps = count_steps(fresh(start), source, *flags)
    assert steps > 20
    for at in range(1, steps + 1, stride):
        tree = fresh(start)
        assert run_and_kill(at, tree, source, *flags), f"there was no step {at}"
        run(tree, source, *then)
        assert snapshot(tree) == known[end], f"killed at step {at} of {steps}"


@pytest.mark.parametrize("flags", [[], ["--link"]], ids=["copy", "link"])
def test_the_next_run_goes_on_after_an_error(flags, states, checkout):
    known, fresh = states
    steps = count_steps(fresh("pristine"), checkout, *flags)
    for at in range(1, steps + 1, 3):
        tree = fresh("pristine")

        def fail():
            raise OSError(errno.EIO, "the disk is broken")

        with pytest.MonkeyPatch.context() as patch:
            interfere(patch, at, fail)
            # Temporary files that cannot be removed are no error.
            with contextlib.suppress(SetupError):
                run(tree, checkout, *flags)
        run(tree, checkout, "--reverse")
        assert snapshot(tree) == known["pristine"], f"error at step {at} of {steps}"


def test_full_disk(states, checkout, monkeypatch):
    """It is an error before the tree is changed."""
    known, fresh = states
    store = Tree._store
    for allowed in range(100):
        tree = fresh("pristine")
        left = [allowed]

        def limited(self, path, state, left=left):
            left[0] -= 1
            if left[0] < 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            store(self, path, state)

        monkeypatch.setattr(Tree, "_store", limited)
        try:
            run(tree, checkout)
            break
        except OSError as error:
            assert error.errno == errno.ENOSPC
        # The last write is that of the final manifest.
        is_last = '"was"' in ((tree / MANIFEST).read_text() if (tree / MANIFEST).exists() else "")
        assert is_last or snapshot(tree) == known["pristine"], f"{allowed} writes"
    assert 8 < allowed < 99 and snapshot(tree) == known["applied"]


def test_file_changed_after_a_kill_is_not_overwritten(states, checkout):
    path = "cmake/modules/contrib/DNNL.cmake"
    known, fresh = states
    steps = count_steps(fresh("pristine"), checkout)
    tree = fresh("pristine")
    assert any(
        run_and_kill(step, fresh("pristine"), checkout)
        and (tree / path).read_text() == "# ours\n"
        and '"was"' in (tree / MANIFEST).read_text()
        for step in range(1, steps)
    )
    write(tree, {path: "# edited meanwhile\n"})
    for flags in [], ["--reverse"]:
        with pytest.raises(SetupError, match="were changed|was changed after") as failure:
            run(tree, checkout, *flags)
        assert path in str(failure.value)
        assert (tree / path).read_text() == "# edited meanwhile\n"
    (tree / path).write_text("# ours\n")
    run(tree, checkout, "--reverse")
    assert snapshot(tree) == known["pristine"]


def test_second_run_at_once_is_refused(states, checkout):
    fcntl = pytest.importorskip("fcntl")
    _, fresh = states
    tree = fresh("pristine")
    handle = os.open(tree, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        with pytest.raises(SetupError, match="another run is changing"):
            run(tree, checkout)
    finally:
        os.close(handle)
