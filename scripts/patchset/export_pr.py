# SPDX-License-Identifier: Apache-2.0
"""Writes an offer to TVM as a git branch, and the description of its pull request.

An offer is a folder of patches/upstream, whose patches are the commits in the order of their names.
The branch offers/NAME begins at --base. The checkout and the index of the repository are not
touched. --dry-run checks that the patches apply, and prints the description.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from scripts.errors import SetupError
from scripts.layout import ROOT
from scripts.patchset.patch_set import Patch

FOLDER = "patches/upstream"
# The longest commit that is offered, in added and removed lines, tests included.
MOST_LINES = 500


class Commit(NamedTuple):
    """A commit of an offer, and the lines that it adds and removes."""

    patch: Patch
    id: str
    code: int
    tests: int


def offers(root: Path = ROOT) -> dict[str, Path]:
    """Return the folder of each offer by its name."""
    return {path.name: path for path in sorted((root / FOLDER).iterdir()) if path.is_dir()}


def patches(folder: Path) -> list[Patch]:
    """Return the patches of an offer in order."""
    return [Patch(path.name, path.read_text()) for path in sorted(folder.glob("*.patch"))]


class Branch:
    """Commits on top of a revision, written without a work tree.

    Parameters
    ----------
    tree : Path
        A git repository of TVM.
    scratch : str
        A folder for the index.
    keep : bool
        Whether commits are written to the repository, or to `scratch`.
    """

    def __init__(self, tree: Path, base: str, scratch: str, keep: bool):
        self._tree = tree
        self._env = dict(os.environ, GIT_INDEX_FILE=f"{scratch}/index", LC_ALL="C")
        if not keep:
            (objects,) = self.git("rev-parse", "--path-format=absolute", "--git-path", "objects")
            Path(scratch, "objects").mkdir()
            self._env.update(
                GIT_OBJECT_DIRECTORY=f"{scratch}/objects",
                GIT_ALTERNATE_OBJECT_DIRECTORIES=objects,
            )
        (self.head,) = self.git("rev-parse", "--verify", f"{base}^{{commit}}")
        self.git("read-tree", self.head)

    def git(self, *args: str, text: str = "") -> list[str]:
        """Run git; return the lines that it prints."""
        command = ["git", "-C", str(self._tree), *args]
        done = subprocess.run(command, input=text, env=self._env, capture_output=True, text=True)
        if done.returncode:
            remedy = "see what git says; --tvm is a git repository of TVM, --base a revision in it."
            raise SetupError(f"git {args[0]} failed in {self._tree}", remedy, done.stderr.strip())
        return done.stdout.splitlines()

    def commit(self, patch: Patch) -> Commit:
        """Add a patch as a commit."""
        try:
            self.git("apply", "--cached", "--whitespace=nowarn", "-", text=patch.text)
        except SetupError as error:
            raise SetupError(
                f"{patch.name} does not apply to {self.head[:10]}",
                "rebase the patch on this revision, or name another one by --base.",
                error.details,
            ) from None
        (tree,) = self.git("write-tree")
        header = patch.header
        message = f"{header['Subject']}\n\n{unfolded(header['Why'])}\n"
        before = self.head
        (self.head,) = self.git("commit-tree", tree, "-p", before, text=message)
        code = tests = 0
        for line in self.git("diff", "--numstat", before, self.head):
            added, removed, path = line.split("\t")
            if path.startswith("tests/"):
                tests += int(added) + int(removed)
            else:
                code += int(added) + int(removed)
        if not tests or code + tests > MOST_LINES:
            problem = "has no test" if not tests else f"has {code + tests} lines"
            raise SetupError(
                f"{patch.name} {problem}",
                f"a commit has a test below tests/, and at most {MOST_LINES} lines: split it.",
            )
        return Commit(patch, self.head, code, tests)


def unfolded(value: str) -> str:
    """Return the lines of a header field without their indentation."""
    return "\n".join(line.strip() for line in value.splitlines())


def description(folder: Path, commits: list[Commit]) -> str:
    """Return the description of the pull request: its introduction, and what each commit does."""
    lines = [(folder / "pull_request.md").read_text().strip(), "", "| commit | lines | of tests |"]
    lines.append("|---|---|---|")
    lines += [
        f"| {each.patch.header['Subject']} | {each.code} | {each.tests} |" for each in commits
    ]
    lines.append(f"| all | {sum(c.code for c in commits)} | {sum(c.tests for c in commits)} |")
    for each in commits:
        header = each.patch.header
        lines += ["", f"**{header['Subject']}**", "", unfolded(header["Why"])]
    return "\n".join(lines) + "\n"


def add_arguments(parser):
    """Add the command's options."""
    parser.add_argument("name", choices=offers(), help="the offer, a folder of patches/upstream")
    parser.add_argument("--tvm", metavar="DIR", required=True, help="a git repository of TVM")
    parser.add_argument("--base", default="HEAD", help="the revision to begin at (default: HEAD)")


def main(args, root: Path = ROOT) -> int:
    """Run the command on the offers of a checkout."""
    folder, name = offers(root)[args.name], f"offers/{args.name}"
    tree = Path(args.tvm).expanduser()
    with tempfile.TemporaryDirectory(prefix="dnnl-offer-") as scratch:
        branch = Branch(tree, args.base, scratch, keep=not args.dry_run)
        if branch.git("branch", "--list", name):
            raise SetupError(
                f"{tree} has a branch {name} already",
                f"delete it (`git branch -D {name}`) or rename it, and run this again.",
            )
        commits = [branch.commit(patch) for patch in patches(folder)]
        if not args.dry_run:
            branch.git("branch", name, branch.head)
            print(f"wrote {len(commits)} commits to the branch {name} of {tree}\n")
    print(description(folder, commits), end="")
    return 0
