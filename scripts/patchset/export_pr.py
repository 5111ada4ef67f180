# SPDX-License-Identifier: Apache-2.0
"""Writes the change that `./dev.py apply` makes to a TVM tree as a series for `git am`.

They are files of `git format-patch`, with a cover letter; patches/pull_request.ini tells the
commits. The tree is only read; it may have the patch set or not. `--check` prints the sizes of the
commits; without a tree, of those for Relax.
"""

from __future__ import annotations

import configparser
import difflib
import re
import shutil
import subprocess
import tempfile
import textwrap
from dataclasses import dataclass
from fnmatch import translate
from pathlib import Path

from scripts import options
from scripts.console import Console
from scripts.errors import SetupError
from scripts.patchset import growth
from scripts.patchset.apply import Plan, make_plan
from scripts.patchset.patch_set import RELAX, PatchSet, no_settings
from scripts.patchset.tree import ABSENT, State, Tree, file_state

SERIES = "pull_request.ini"
# Ends the lines that name what the cover's `left_out` keeps out of the series.
MARK = "# not for TVM"


@dataclass
class Commit:
    """One commit of the series.

    Parameters
    ----------
    subject, body : str
        The message.
    states : dict
        The state of each path that it changes.
    part : str
        The title of the part of the series that begins with it, if one does.
    """

    subject: str
    body: str
    states: dict
    part: str = ""


class Series(configparser.ConfigParser):
    """The file of a patch set's folder that lists the commits."""

    def __init__(self):
        super().__init__(interpolation=None)
        self._patterns = {}

    def _compiled(self, field):
        """Return (pattern, commit) of a field, the longest patterns first."""
        if field not in self._patterns:
            named = [
                (pattern, name)
                for name in self.sections()
                for pattern in self[name].get(field, "").split()
            ]
            named.sort(key=lambda pair: (len(pair[0]), pair[1]), reverse=True)
            self._patterns[field] = [(re.compile(translate(text)), name) for text, name in named]
        return self._patterns[field]

    def owner(self, path: str, field: str = "paths") -> str | None:
        """Name the commit that a path belongs to: the one that has the longest pattern for it."""
        return next((name for pattern, name in self._compiled(field) if pattern.match(path)), None)


def read_series(folder: Path) -> Series:
    """Read the commits of a patch set's folder."""
    series = Series()
    series.read_string((folder / SERIES).read_text(encoding="utf-8"))
    return series


def exported(state: State) -> State:
    """Take out the lines with the mark."""
    return state._replace(data=re.sub(rf".*{MARK}\n".encode(), b"", state.data))


def plan_without_tree(patch_set: PatchSet) -> Plan:
    """Plan the patch set without what it patches; the files that it removes are empty."""
    wanted = {path: patch_set.state(path, link=False) for path in patch_set.overlay}
    wanted.update(dict.fromkeys(patch_set.removed, ABSENT))
    originals = dict.fromkeys(wanted, ABSENT)
    originals.update(dict.fromkeys(patch_set.removed, file_state(b"")))
    return Plan(None, originals, [], wanted)


def commits_of(plan: Plan, series) -> list:
    """Deal the changes of a plan out to the commits that have something to do."""
    commits = {}
    for name in series.sections()[1:]:
        body = (series[name][field].strip() for field in ("body", "large") if field in series[name])
        part = series[name].get("part", "")
        commits[name] = Commit(series[name]["subject"], "\n\n".join(body), {}, part)
    homeless = []
    for path, before in sorted(plan.originals.items()):
        if series.owner(path, "left_out"):
            continue
        after = exported(plan.after(path))
        leaves, comes = series.owner(path, "removes"), series.owner(path)
        if before != ABSENT and leaves:
            commits[leaves].states[path] = before = ABSENT
        if after == before:
            continue
        if not comes:
            homeless.append(path)
            continue
        commits[comes].states[path] = after
        for patch in plan.patches:
            if patch.path == path:
                why = f"{patch.header['Subject']}. {' '.join(patch.header['Why'].split())}"
                commits[comes].body += "\n\n" + textwrap.fill(why, 72)
    if homeless:
        raise SetupError(
            "no commit of the pull request takes these files",
            f"add their folder to a commit in {SERIES}.",
            "\n".join(homeless),
        )
    _grow(commits, plan, series)
    return [commit for commit in commits.values() if commit.states]


def _grow(commits, plan, series):
    """Give each commit the rows of a table whose functions it brings."""
    tables = series[series.sections()[0]].get("grows", "").split()
    order = {name: number for number, name in enumerate(commits)}
    for table in tables:
        states = {
            path: state
            for commit in commits.values()
            for path, state in commit.states.items()
            if path.endswith((".cc", ".h")) and state != ABSENT
        }
        definers = growth.definers(table, {p: s.data.decode() for p, s in states.items()})
        places = {name: order[series.owner(path)] for name, path in definers.items()}
        first = series.owner(table)
        complete, previous = commits[first].states.pop(table), None
        for name in list(commits)[order[first] :]:
            later = {function for function, place in places.items() if place > order[name]}
            state = complete._replace(data=growth.without(complete.data.decode(), later).encode())
            if state != previous:
                commits[name].states[table] = previous = state


def sizes_of(commits: list, originals: dict) -> list:
    """Count the lines that each commit adds and removes."""
    now = dict(originals)
    sizes = []
    for commit in commits:
        added = removed = 0
        for path, state in commit.states.items():
            before, after = (s.data.splitlines() for s in (now.get(path, ABSENT), state))
            blocks = difflib.SequenceMatcher(None, before, after, False).get_matching_blocks()
            same = sum(block.size for block in blocks) if before and after else 0
            added += len(after) - same
            removed += len(before) - same
            now[path] = state
        sizes.append((added, removed))
    return sizes


def describe(commits: list, originals: dict) -> str:
    """Write a table of the commits: files, test files among them, lines added and removed.

    A second table has the parts of the series.
    """
    rows = ["     files tests   added removed"]
    total, parts = [0, 0], []
    for number, (commit, size) in enumerate(zip(commits, sizes_of(commits, originals)), 1):
        tests = sum(path.startswith("tests/") for path in commit.states)
        counts = f"{len(commit.states):5} {tests:5} {size[0]:7} {size[1]:7}"
        rows.append(f"{number:4} {counts}  {commit.subject}")
        total = [total[0] + size[0], total[1] + size[1]]
        if commit.part:
            parts.append([0, 0, commit.part])
        if parts:
            parts[-1][0] += 1
            parts[-1][1] += size[0]
    rows.append(f"{'total':16} {total[0]:7} {total[1]:7}")
    if parts:
        rows += ["", "commits   added  part"]
        rows += [f"{count:7} {added:7}  {part}" for count, added, part in parts]
    return "\n".join(rows)


def add_arguments(parser):
    """Add the command's options."""
    check = "list the commits, write nothing; without --tvm, those for Relax"
    options.add_tree(parser, check, required=False)
    parser.add_argument("--out", metavar="DIR", help="where the files go; must be new")


def main(args, patch_set=None) -> int:
    """Run the command; `patch_set` is this checkout's unless a test gives its own."""
    if not args.dry_run and None in (args.tvm, args.out):
        raise SetupError(
            "export-pr writes commits for a TVM source tree into a new folder",
            "add --tvm DIR --out DIR, or --check to list the commits.",
        )
    out = Path(args.out).expanduser().resolve() if args.out else None
    if out and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise SetupError(f"{out} is there already", "give --out a new or an empty folder.")
    if args.tvm is None:
        patch_set = patch_set or PatchSet(kind=RELAX)
        plan = plan_without_tree(patch_set)
    else:
        patch_set, plan = _plan(Tree.at(args.tvm), patch_set)
    series = read_series(patch_set.folder)
    commits = commits_of(plan, series)
    print(describe(commits, plan.originals))
    if args.dry_run:
        return 0
    console = Console()
    with (
        tempfile.TemporaryDirectory(prefix="export-pr-") as folder,
        console.step("write the commits", after=1.0),
    ):
        _export(plan, commits, series[series.sections()[0]], Path(folder), out, console)
    for file in sorted(out.iterdir()):
        print(file)
    # Without the options git would take "[Relay]" and the like off the subjects, and stop at the
    # cover letter.
    command = "git am --keep-non-patch --empty=drop"
    print(f"next: in a checkout of TVM {plan.tag}: {command} {out}/*.patch")
    return 0


def _plan(tree, patch_set):
    """Return the patch set of a tree, unless one is given, and the plan to apply it."""
    with tree.locked():
        if tree.interrupted():
            raise SetupError(
                f"a run of apply was interrupted in {tree.root}",
                f"run `./dev.py apply --tvm {tree.root}` first; it puts the tree right.",
            )
        patch_set = patch_set or PatchSet.of(tree)
        return patch_set, make_plan(tree, patch_set)


def _export(plan, commits, cover, folder, out, console):
    """Make the commits in a repository of their own; the user's tree stays as it is."""
    env = {**no_settings(str(folder)), **_identity()}
    repo = folder / "repo"
    repo.mkdir()

    def git(*args, text=None):
        command = ["git", *args]
        done = subprocess.run(
            command, cwd=repo, env=env, input=text, capture_output=True, text=True
        )
        if done.returncode:
            raise SetupError(f"git {args[0]} failed", "see what it says.", done.stderr.strip())

    def commit(states, message):
        for path, state in states.items():
            full = repo / path
            if state == ABSENT:
                full.unlink(missing_ok=True)
                continue
            full.parent.mkdir(parents=True, exist_ok=True)
            full.write_bytes(state.data)
            full.chmod(state.mode & 0o777)
        git("add", "--all", "--force", ".")
        git("commit", "--quiet", "-F", "-", text=message)

    git("init", "--quiet", ".")
    git("checkout", "--quiet", "-b", "series")
    touched = {path for item in commits for path in item.states}
    commit({path: plan.originals[path] for path in touched}, f"TVM {plan.tag}, what is touched")
    for number, item in enumerate(commits, 1):
        console.note(item.subject, number, len(commits))
        commit(item.states, f"{item.subject}\n\n{item.body}\n")
    git("config", "branch.series.description", f"{cover['subject']}\n\n{cover['body'].strip()}")
    flags = ["--cover-letter", "--cover-from-description=subject", "--no-signature"]
    git("format-patch", "--quiet", *flags, "-o", folder / "out", f"HEAD~{len(commits)}")
    shutil.copytree(folder / "out", out, dirs_exist_ok=True)


def _identity() -> dict:
    """Who the user's git says that they are; an address that git guesses is no use in public."""
    command = ["git", "-c", "user.useConfigOnly=true", "var", "GIT_AUTHOR_IDENT"]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        raise SetupError("export-pr needs git", "install git and run this again.") from None
    match = re.match(r"(.*) <(.*)> ", done.stdout)
    if not match:
        raise SetupError(
            "git does not know who you are",
            "tell it: git config --global user.name NAME; git config --global user.email ADDRESS.",
            done.stderr.strip(),
        )
    roles = ("AUTHOR", "COMMITTER")
    return {
        f"GIT_{role}_{key}": value
        for role in roles
        for key, value in zip(("NAME", "EMAIL"), match.groups())
    }
