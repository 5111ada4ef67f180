# SPDX-License-Identifier: Apache-2.0
"""`./dev.py apply` on a small tree: what it does, undoes, and refuses to do."""

import os
import shutil

import pytest
from small_tree import FILES, OPTION_PATCH, make_tvm, snapshot, write

from scripts import cli
from scripts.errors import SetupError
from scripts.patchset.patch_set import PatchSet

UTILS = "src/runtime/contrib/dnnl/dnnl_utils.cc"
REMOVED = "src/runtime/contrib/dnnl/old.h"
ADDED = "src/runtime/contrib/dnnl/ops/conv.cc"


@pytest.fixture
def run(tvm, checkout, capsys):
    """Run `apply` on the tree; gives what it printed."""

    def call(*flags):
        assert cli.run(["apply", "--tvm", str(tvm), *flags], PatchSet(checkout)) == 0
        return capsys.readouterr().out

    return call


@pytest.fixture
def refuse(run, tvm):
    """Run `apply`, which has to fail and leave the tree alone; gives the message."""

    def call(*flags):
        before = snapshot(tvm)
        with pytest.raises(SetupError) as failure:
            run(*flags)
        assert snapshot(tvm) == before
        return str(failure.value)

    return call


def check_applied(tvm):
    assert (tvm / "cmake/modules/contrib/DNNL.cmake").read_text() == "# ours\n"
    assert (tvm / UTILS).read_text() == "// our utils\n"
    assert (tvm / ADDED).read_text() == "// our convolution\n"
    assert not (tvm / REMOVED).exists()
    assert "option(A)\noption(DNNL)\noption(B)\n" in (tvm / "CMakeLists.txt").read_text()
    assert 'DNNL="${DNNL}"' in (tvm / "cmake/modules/LibInfo.cmake").read_text()
    assert not (tvm / "README.md").exists()


def test_apply(run, tvm):
    before = snapshot(tvm)
    assert "3 added, 2 replaced, 1 removed, 2 patched" in run()
    check_applied(tvm)
    untouched = {"src/runtime/module.cc", "tests/run.sh", "docs", "version.py"}
    assert {name: before[name] for name in untouched} == {n: snapshot(tvm)[n] for n in untouched}


def test_apply_again_does_nothing(run, tvm):
    run()
    once = snapshot(tvm)
    times = {p: p.lstat().st_mtime_ns for p in tvm.rglob("*")}
    assert "already; nothing to do" in run()
    assert snapshot(tvm) == once
    assert {p: p.lstat().st_mtime_ns for p in times} == times, "a rebuild would start anew"


@pytest.mark.parametrize("flags", [[], ["--link"]], ids=["copy", "link"])
def test_reverse_gives_the_same_tree(run, tvm, flags):
    before = snapshot(tvm)
    run(*flags)
    run(*flags)
    assert snapshot(tvm) != before
    assert "took the patch set out" in run("--reverse")
    assert snapshot(tvm) == before
    assert "nothing to do" in run("--reverse")
    assert snapshot(tvm) == before


def test_empty_folders_of_others_stay(run, tvm):
    (tvm / "src/empty").mkdir()
    (tvm / "python/tvm/testing").mkdir()
    before = snapshot(tvm)
    run()
    run("--reverse")
    assert snapshot(tvm) == before


def test_folder_with_a_users_file_stays(run, tvm):
    run()
    write(tvm, {"src/runtime/contrib/dnnl/ops/mine.cc": "// mine\n"})
    run("--reverse")
    assert (tvm / "src/runtime/contrib/dnnl/ops/mine.cc").read_text() == "// mine\n"
    assert not (tvm / ADDED).exists()


def test_link(run, tvm, checkout):
    run("--link")
    check_applied(tvm)
    assert os.readlink(tvm / ADDED) == str(checkout / ADDED)
    write(checkout, {ADDED: "// edited in the checkout\n"})
    assert (tvm / ADDED).read_text() == "// edited in the checkout\n"
    assert "already" in run("--link")
    assert not (tvm / "CMakeLists.txt").is_symlink()


def test_link_and_copy_replace_each_other(run, tvm):
    before = snapshot(tvm)
    run()
    copied = snapshot(tvm)
    run("--link")
    assert (tvm / ADDED).is_symlink()
    run()
    assert snapshot(tvm) == copied
    run("--reverse")
    assert snapshot(tvm) == before


@pytest.mark.parametrize("flag", ["--check", "--dry-run"])
def test_check_changes_nothing(run, tvm, flag):
    before = snapshot(tvm)
    said = run(flag)
    assert snapshot(tvm) == before
    assert f"would add {ADDED}" in said
    assert f"would replace {UTILS}" in said
    assert f"would remove {REMOVED}" in said
    assert "would patch CMakeLists.txt" in said
    run()
    applied = snapshot(tvm)
    assert "nothing would change" in run(flag)
    said = run("--reverse", flag)
    assert f"would delete {ADDED}" in said and f"would restore {REMOVED}" in said
    assert snapshot(tvm) == applied


def test_unknown_file_is_refused(refuse, tvm):
    write(tvm, {ADDED: "// somebody's\n"})
    said = refuse()
    assert f"{ADDED}: is neither TVM's nor ours" in said
    assert "git checkout" in said
    assert refuse("--check") == said


@pytest.mark.parametrize("path", [UTILS, REMOVED])
def test_changed_upstream_file_is_refused(refuse, tvm, path):
    write(tvm, {path: "// TVM's, edited\n"})
    assert f"{path}: was changed, it is not the file of TVM v0.19.0" in refuse()


def test_all_problems_are_named_at_once(refuse, tvm):
    write(tvm, {ADDED: "x", UTILS: "y", "CMakeLists.txt": "option(B)\n"})
    said = refuse()
    assert ADDED in said and UTILS in said and "add-option.patch: does not fit" in said


def test_emptied_file_is_accepted_and_restored(run, tvm):
    write(tvm, {UTILS: "", REMOVED: ""})
    before = snapshot(tvm)
    run()
    check_applied(tvm)
    run("--reverse")
    assert snapshot(tvm) == before


def test_file_to_remove_may_be_gone_already(run, tvm):
    (tvm / REMOVED).unlink()
    before = snapshot(tvm)
    run()
    check_applied(tvm)
    run("--reverse")
    assert snapshot(tvm) == before


def test_overlay_file_edited_in_the_tree(run, refuse, tvm):
    run()
    write(tvm, {UTILS: "// edited by the user\n"})
    for flags in [], ["--link"], ["--reverse"], ["--reverse", "--check"]:
        assert UTILS in refuse(*flags)
    (tvm / UTILS).unlink()
    run()
    check_applied(tvm)


def test_patched_file_keeps_the_users_edit(run, tvm):
    before = snapshot(tvm)
    run()
    cmake = tvm / "CMakeLists.txt"
    cmake.write_text(cmake.read_text() + "option(MINE)\n")
    assert "already" in run()
    assert "option(MINE)" in cmake.read_text()
    run("--reverse")
    assert cmake.read_text() == FILES["CMakeLists.txt"] + "option(MINE)\n"
    after = snapshot(tvm)
    del before["CMakeLists.txt"], after["CMakeLists.txt"]
    assert after == before


def test_edit_inside_a_hook_is_refused(run, refuse, tvm):
    run()
    cmake = tvm / "CMakeLists.txt"
    cmake.write_text(cmake.read_text().replace("option(DNNL)", "option(DNNL ON)"))
    assert "CMakeLists.txt" in refuse()
    assert "CMakeLists.txt" in refuse("--reverse")


def test_tree_checked_out_anew_is_brought_up_to_date(run, tvm):
    """`git checkout .` in the TVM tree restores tracked files and leaves the added ones."""
    before = snapshot(tvm)
    run()
    write(tvm, FILES)
    (tvm / REMOVED).chmod(0o755)
    run()
    check_applied(tvm)
    write(tvm, FILES)
    (tvm / REMOVED).chmod(0o755)
    run("--reverse")
    assert snapshot(tvm) == before


def test_lost_record_is_explained(run, refuse, tvm):
    run()
    shutil.rmtree(tvm / ".dnnl-overlay")
    said = refuse()
    assert "is ours already, but .dnnl-overlay/, which kept the original, is gone" in said


def test_newer_patch_set_replaces_the_older(run, tvm, checkout):
    before = snapshot(tvm)
    run()
    (checkout / ADDED).unlink()
    write(
        checkout,
        {
            UTILS: "// newer utils\n",
            "src/runtime/contrib/dnnl/old.h": "// ours after all\n",
            "src/new/file.cc": "// new\n",
            "patches/remove.list": "",
            "patches/cmake/add-option.patch": OPTION_PATCH.replace("(DNNL)", "(ONEDNN)"),
            "patches/series": "cmake/add-option.patch\n",
        },
    )
    said = run("--check")
    assert f"would delete {ADDED}" in said and "would restore cmake/modules/LibInfo" in said
    run()
    assert (tvm / UTILS).read_text() == "// newer utils\n"
    assert (tvm / REMOVED).read_text() == "// ours after all\n"
    assert not (tvm / "src/runtime/contrib/dnnl/ops").exists()
    assert "option(A)\noption(ONEDNN)\noption(B)\n" in (tvm / "CMakeLists.txt").read_text()
    assert "DNNL" not in (tvm / "cmake/modules/LibInfo.cmake").read_text()
    run("--reverse")
    assert snapshot(tvm) == before


def test_newer_patch_set_that_fails_leaves_the_older(run, refuse, tvm, checkout):
    run()
    write(tvm, {"src/new/file.cc": "// the user's\n"})
    write(checkout, {"src/new/file.cc": "// new\n"})
    assert "src/new/file.cc" in refuse()
    check_applied(tvm)


def test_version_folder_wins(checkout, tmp_path):
    other = OPTION_PATCH.replace("option(DNNL)", "option(DNNL_OF_0_18)")
    write(checkout, {"patches/v0.18.0/cmake/add-option.patch": other})
    for version, option in ("0.18.0", "option(DNNL_OF_0_18)"), ("0.19.0", "option(DNNL)"):
        tree = make_tvm(tmp_path / version, version)
        cli.run(["apply", "--tvm", str(tree)], PatchSet(checkout))
        assert option in (tree / "CMakeLists.txt").read_text()


@pytest.mark.parametrize(
    "files, message",
    [
        ({name: FILES[name].replace("0.19.0", "0.20.0") for name in FILES}, "is TVM 0.20.0"),
        ({"version.py": '__version__ = "0.18.0"\n'}, "disagree about the TVM version"),
        ({"version.py": "", "python/tvm/_ffi/libinfo.py": ""}, "cannot tell the TVM version"),
    ],
)
def test_wrong_version_is_refused(refuse, tvm, files, message):
    write(tvm, {name: text for name, text in files.items() if "ersion" in text or not text})
    said = refuse()
    assert message in said and "v0.18.0, v0.19.0" in said


def test_development_build_of_a_release_is_taken(run, tvm):
    write(tvm, {"python/tvm/_ffi/libinfo.py": '__version__ = "0.19.0+gc4dc0c2"\n'})
    run()
    check_applied(tvm)


def test_not_a_tvm_tree(tmp_path, patch_set):
    with pytest.raises(SetupError, match="is not a TVM source tree"):
        cli.run(["apply", "--tvm", str(tmp_path)], patch_set)
    with pytest.raises(SetupError, match="there is no folder"):
        cli.run(["apply", "--tvm", str(tmp_path / "missing")], patch_set)


def test_things_in_the_way(refuse, tvm):
    write(tvm, {"src/runtime/contrib/dnnl/ops": "a file\n"})
    assert "src/runtime/contrib/dnnl/ops: is a file, a folder is needed there" in refuse()
    (tvm / "src/runtime/contrib/dnnl/ops").unlink()
    (tvm / "src/runtime/contrib/dnnl/ops").symlink_to("/")
    assert "src/runtime/contrib/dnnl/ops: is a link" in refuse()
    (tvm / "src/runtime/contrib/dnnl/ops").unlink()
    (tvm / ADDED).mkdir(parents=True)
    assert f"{ADDED}: is not a plain file" in refuse()


def test_path_that_is_replaced_and_removed_is_refused(checkout):
    write(checkout, {"patches/remove.list": UTILS + "\n"})
    with pytest.raises(SetupError, match="names files that are in the overlay"):
        PatchSet(checkout)


def test_path_that_is_patched_and_replaced_is_refused(refuse, checkout):
    write(checkout, {"src/CMakeLists.txt": "x"})
    text = OPTION_PATCH.replace("CMakeLists.txt", "src/CMakeLists.txt")
    write(checkout, {"patches/cmake/add-option.patch": text})
    assert "add-option.patch patches src/CMakeLists.txt" in refuse()


def test_left_out_of_the_overlay(checkout):
    write(checkout, {"src/notes/a.txt": "", "src/__pycache__/b.pyc": "", "src/.c.swp": ""})
    write(checkout, {"src/notes_too/d.txt": ""})
    listed = (checkout / "patches/overlay.list").read_text()
    write(checkout, {"patches/overlay.list": listed + "!src/notes\n"})
    overlay = PatchSet(checkout).overlay
    assert not {"src/notes/a.txt", "src/__pycache__/b.pyc", "src/.c.swp"} & set(overlay)
    assert "src/notes_too/d.txt" in overlay


def test_link_with_reverse_is_refused(refuse):
    assert "--link has no meaning with --reverse" in refuse("--reverse", "--link")
