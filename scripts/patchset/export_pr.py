# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""`./dev.py export-pr`: the change that `apply` makes, as files for `git am`."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from scripts.errors import SetupError
from scripts.patchset.apply_patchset import PatchSet
from scripts.patchset.apply_plan import Plan, Site
from scripts.patchset.apply_tree import ABSENT, STATE_DIR, Tree


@dataclass(frozen=True)
class Commit:
    """One commit of the series: which paths it takes, and its message."""

    prefixes: tuple
    subject: str
    body: str


# With USE_DNNL=OFF TVM builds after each of them; the CMake module that compiles the new sources
# comes after the sources. A path belongs to the first commit that matches.
COMMITS = (
    Commit(
        (
            "src/runtime/contrib/json/",
            "src/relay/backend/contrib/codegen_json/",
            "src/relay/backend/contrib/codegen_c/",
        ),
        "[BYOC] Rewrite the base classes of JSON and C source codegens",
        "Attributes are read with their type, and an error names the node and the attribute. A"
        " graph from a file is checked when it is loaded. The names of classes and members, and the"
        " JSON format, stay as they are, so other backends need no change.",
    ),
    Commit(
        ("src/relay/",),
        "[BYOC][DNNL] Rewrite the codegen for oneDNN 3",
        "A composite carries the attributes of its root op and an ordered list of post-ops; nothing"
        " parses composite names any more. Removes the helpers of the old codegen.",
    ),
    Commit(
        ("src/runtime/",),
        "[Runtime][DNNL] Rewrite the runtime for oneDNN 3",
        "One plan for a whole subgraph, built in Init: layouts passed from op to op, constants"
        " reordered once, intermediates in one arena. Running it needs no lock.",
    ),
    Commit(
        ("CMakeLists.txt", "cmake/", "src/support/"),
        "[CMake] Find oneDNN 3.2 or newer, add USE_DNNL_CODEGEN",
        "",  # told by the patches themselves
    ),
    Commit(
        ("python/",),
        "[Relay][DNNL] Offload by tables, add partition_for_dnnl",
        "What oneDNN cannot do is refused at annotation with a reason, and stays on TVM.",
    ),
    Commit(
        ("tests/", "apps/", "docs/", "docker/"),
        "[Tests][DNNL] Test the oneDNN 3 backend",
        "Each test asserts that the offload happened, and compares the numbers.",
    ),
)


def commit_of(path: str) -> Commit | None:
    """Find the commit that a path belongs to."""
    return next((commit for commit in COMMITS if path.startswith(commit.prefixes)), None)


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    parse = argparse.ArgumentParser(
        prog="./dev.py export-pr",
        description="Write the change that `./dev.py apply` makes to a TVM tree as a series of"
        " `git format-patch` files. The tree is only read; it may have the patch set or not.",
    )
    parse.add_argument("--tvm", metavar="DIR", required=True, help="the TVM source tree")
    parse.add_argument(
        "--out", metavar="DIR", required=True, help="where the files go; must be new"
    )
    parse.add_argument(
        "--check", "--dry-run", action="store_true", help="list the commits, write nothing"
    )
    return parse


def main(argv, patch_set=None) -> int:
    """Run the command; `patch_set` is this checkout's unless a test gives its own."""
    args = parser().parse_args(argv)
    root = Path(args.tvm).expanduser().resolve()
    out = Path(args.out).expanduser().resolve()
    if not root.is_dir():
        raise SetupError(f"there is no folder {root}", "give --tvm the top of a TVM source tree.")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise SetupError(f"{out} is there already", "give --out a new or an empty folder.")
    tree = Tree(root)
    patch_set = patch_set or PatchSet()
    with tree.locked():
        if tree.interrupted():
            raise SetupError(
                f"a run of apply was interrupted in {root}",
                f"run `./dev.py apply --tvm {root}` first; it puts the tree right.",
            )
        plan = Site(tree).plan_apply(patch_set)
    groups = _group(plan)
    if args.check:
        for commit, paths in groups:
            print(f"{commit.subject}: {len(paths)} files")
        return 0
    files = _export(plan, groups, patch_set.patches(plan.tag), out)
    for file in files:
        print(out / file)
    # Without the option git would take "[Relay]" and the like off the subjects.
    print(f"next: in a checkout of TVM {plan.tag}: git am --keep-non-patch {out}/*.patch")
    return 0


def _group(plan: Plan):
    """The commits that have something to do, with their paths."""
    paths = {path for path in plan.changes if not path.startswith(STATE_DIR)}
    paths = {path for path in paths if plan.originals.get(path, ABSENT) != plan.changes[path]}
    homeless = sorted(path for path in paths if commit_of(path) is None)
    if homeless:
        raise SetupError(
            "no commit of the pull request takes these files",
            "add their folder to COMMITS in scripts/patchset/export_pr.py.",
            "\n".join(homeless),
        )
    groups = [(c, sorted(path for path in paths if commit_of(path) is c)) for c in COMMITS]
    return [(commit, paths) for commit, paths in groups if paths]


def _export(plan, groups, patches, out):
    """Make the commits in a repository of its own and format them; the user's tree stays as is."""
    with tempfile.TemporaryDirectory(prefix="export-pr-") as folder:
        git = Git(Path(folder, "repo"), plan)
        touched = {path for _, paths in groups for path in paths}
        git.put({path: plan.originals[path] for path in touched})
        git.commit(f"TVM {plan.tag}, the files that are touched")
        for commit, paths in groups:
            git.put({path: plan.changes[path] for path in paths})
            git.commit(_message(commit, paths, patches))
        made = Path(folder, "patches")
        git.run("format-patch", "--quiet", "-o", str(made), f"HEAD~{len(groups)}")
        out.mkdir(parents=True, exist_ok=True)
        names = sorted(file.name for file in made.iterdir())
        for name in names:
            shutil.copy(made / name, out / name)
    return names


def _message(commit, paths, patches):
    parts = [commit.subject]
    if commit.body:
        parts.append(_wrap(commit.body))
    for patch in patches:
        if any(part.path in paths for part in patch.files):
            why = " ".join(patch.header["Why"].split())
            parts.append(_wrap(f"{patch.header['Subject']}. {why}"))
    return "\n\n".join(parts) + "\n"


def _wrap(text, width=72):
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + word
    return "\n".join(lines)


class Git:
    """A throw-away repository."""

    def __init__(self, root, plan):
        if not shutil.which("git"):
            raise SetupError("export-pr needs git", "install git and run this again.")
        self.root = root
        self.tree = Tree(root)
        # Nothing of a repository around us, such as its hooks or its index, may leak in.
        who = ("GIT_AUTHOR_", "GIT_COMMITTER_", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM")
        self.env = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("GIT_") or name.startswith(who)
        }
        root.mkdir(parents=True)
        self.run("-c", "init.defaultBranch=main", "init", "--quiet", ".")
        for key, value in {
            "core.hooksPath": os.devnull,
            "core.autocrlf": "false",
            "core.fileMode": "true",
            "core.excludesFile": os.devnull,
            "core.attributesFile": os.devnull,
            "commit.gpgSign": "false",
            "format.signature": "",
            "user.useConfigOnly": "true",  # an address that git guesses is no use in public
        }.items():
            self.run("config", key, value)

    def put(self, states):
        """Make the work tree hold these states."""
        for path, state in states.items():
            full = self.tree.full(path)
            if state.kind == "absent":
                full.unlink(missing_ok=True)
                continue
            full.parent.mkdir(parents=True, exist_ok=True)
            full.write_bytes(state.data)
            full.chmod(0o755 if state.mode & 0o100 else 0o644)

    def commit(self, message):
        """Commit everything."""
        self.run("add", "--all", "--force", ".")
        self.run("commit", "--quiet", "--no-verify", "-F", "-", text=message)

    def run(self, *args, text=None):
        """Run git; an error is told with the remedy for the one that people meet."""
        done = subprocess.run(
            ["git", *args], cwd=self.root, env=self.env, input=text, capture_output=True, text=True
        )
        if done.returncode:
            raise SetupError(
                f"git {args[0]} failed",
                "if git does not know who you are, tell it: git config --global user.name NAME;"
                " git config --global user.email ADDRESS.",
                done.stderr.strip(),
            )
        return done.stdout
