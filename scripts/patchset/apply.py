# SPDX-License-Identifier: Apache-2.0
"""Brings the patch set into a TVM source tree, and takes it out again.

It copies the overlay, removes what patches/remove.list names and applies patches/series with zero
fuzz. Nothing is changed if a file or patch does not fit. The tree keeps the originals, so --reverse
gives back the same bytes, also after a run that was killed, which the next one finishes. Files that
are neither TVM's nor ours, or that you changed, are never overwritten.
"""

from __future__ import annotations

import errno
import json
import textwrap
from collections import Counter
from dataclasses import dataclass, field

from scripts import options
from scripts.errors import SetupError
from scripts.patchset.patch_set import Patch, PatchError, PatchSet
from scripts.patchset.tree import ABSENT, STATE_DIR, State, Tree, file_state, parents

_NEXT_STEPS = """\
next: in that tree's build folder, add to config.cmake
%s
and build TVM as its guide says.
undo: ./dev.py apply --tvm %s --reverse"""

_MANIFEST = STATE_DIR + "/manifest.json"
_GITIGNORE = STATE_DIR + "/.gitignore"
_FORMAT = 2


@dataclass
class Plan:
    """The changes of a run: worked out in full before anything is touched."""

    tree: Tree
    originals: dict  # State without the patch set, by path, of all that it deals with or once did
    made_dirs: list  # folders that an earlier run made
    wanted: dict = field(default_factory=dict)  # State with the patch set; empty to take it out
    patches: list = field(default_factory=list)
    tag: str = ""  # the release of TVM

    def after(self, path: str) -> State:
        return self.wanted.get(path, self.originals[path])

    def pending(self) -> dict:
        """By path, what happens to those files that change: a verb."""
        patched = {patch.path for patch in self.patches}
        actions = {}
        for path, original in sorted(self.originals.items()):
            after = self.after(path)
            if path not in self.wanted:
                action = "delete" if original == ABSENT else "restore"
            elif original == ABSENT:
                action = "add"
            else:
                action = "patch" if path in patched else "remove" if after == ABSENT else "replace"
            if self.tree.read(path).key != after.key:
                actions[path] = action
        return actions

    def commit(self) -> None:
        """Change the tree. First a manifest tells the next run what each file was, and will be."""
        changes = {path: self.after(path) for path in self.originals}
        changes[_GITIGNORE] = file_state(b"*\n") if self.wanted else ABSENT
        changes = {path: new for path, new in changes.items() if self.tree.read(path) != new}
        self.made_dirs += self.tree.missing_dirs(p for p in changes if changes[p] != ABSENT)
        if changes:
            # What is removed makes room for folders of the same name.
            ordered = sorted(changes, key=lambda path: changes[path] != ABSENT)
            was = {path: self.tree.read(path).key for path in self.originals}
            first = {_MANIFEST: self._manifest(self.originals, was)}
            self.tree.write(first | {path: changes[path] for path in ordered})
        self.tree.remove_empty(self.made_dirs)
        self.tree.write({_MANIFEST: self._manifest(self.wanted)})

    def _manifest(self, paths, was=None):
        """Return the file that has the originals; `was` are the keys that files had before."""
        files = {
            path: {
                "before": _encode(self.originals[path]),
                "after": self.after(path).key,
                "patches": [patch.text for patch in self.patches if patch.path == path],
                **({"was": was[path]} if was else {}),
            }
            for path in paths
        }
        folders = sorted({*self.made_dirs} - {STATE_DIR})
        record = {"format": _FORMAT, "made_dirs": folders, "files": files}
        return file_state(json.dumps(record, indent=1).encode()) if files else ABSENT


def _encode(state):
    return [state.mode, state.data.decode("utf-8", "surrogateescape")]


def _decode(mode, text):
    return State(mode, text.encode("utf-8", "surrogateescape"))


def make_plan(tree: Tree, patch_set: PatchSet, link=False, reverse=False) -> Plan:
    """Plan to bring the patch set in or up to date, or to take it out.

    An error names all files that are not TVM's or were changed, and the patches that do not fit.
    """
    record = _read_manifest(tree)
    plan = Plan(tree, {}, record["made_dirs"])
    changed = _read_originals(plan, record["files"])
    problems = [] if reverse else _read_patch_set(plan, patch_set, link)
    for path in changed:
        if tree.read(path).key != plan.after(path).key:
            problems.append(f"{path}: was changed after the patch set was applied")
    if problems:
        problem = f"the patch set does not go onto {tree.root}; nothing was changed"
        remedy = "move the named files away, or get TVM's own back (`git checkout -- PATH` in the"
        remedy += " TVM tree), and run this again."
        if reverse:
            problem = f"files of the patch set were changed in {tree.root}; nothing was undone"
            remedy = "save your changes elsewhere, delete these files, and run this again."
        raise SetupError(problem, remedy, "\n".join(problems))
    return plan


def _read_manifest(tree):
    manifest = tree.read(_MANIFEST)
    if manifest == ABSENT:
        return {"files": {}, "made_dirs": []}
    record = json.loads(manifest.data)
    if record["format"] != _FORMAT:
        raise SetupError(
            f"{tree.root / STATE_DIR} has the unknown format {record['format']}",
            "another version of this project wrote it: run the command with that version.",
        )
    return record


def _read_originals(plan, files):
    """Fill in the originals of an earlier run; return the paths that were edited since.

    A file that was patched and then edited elsewhere keeps the edit.
    """
    changed = []
    for path, entry in files.items():
        original, now = _decode(*entry["before"]), plan.tree.read(path)
        if now.key not in (ABSENT.key, entry["after"], entry.get("was"), original.key):
            data = now.data
            try:
                for text in reversed(entry["patches"]):
                    data = Patch(path, text).apply(data, "-R")
            except PatchError:
                data = now.data
            if data == now.data:
                changed.append(path)
            else:
                original = State(now.mode, data)
        plan.originals[path] = original
    return changed


def _read_patch_set(plan, patch_set, link):
    """Fill in what the patch set wants; return what is in its way."""
    plan.tag = patch_set.tag_of(plan.tree)
    problems = []
    for path in [*patch_set.overlay, *patch_set.removed]:
        before = plan.originals.setdefault(path, plan.tree.read(path))
        plan.wanted[path] = patch_set.state(path, link)
        reason = patch_set.objection(path, before, plan.wanted[path], plan.tag)
        problems += [f"{path}: {reason}"] if reason else []
    for patch in patch_set.patches(plan.tag):
        before = plan.originals.setdefault(patch.path, plan.tree.read(patch.path))
        before = plan.wanted.get(patch.path, before)
        try:
            plan.wanted[patch.path] = before._replace(data=patch.apply(before.data))
            plan.patches.append(patch)
        except PatchError as error:
            problems.append(str(error))
    for folder in parents(path for path, state in plan.wanted.items() if state != ABSENT):
        kind = plan.tree.read(folder).kind
        if kind in ("file", "link"):
            problems.append(f"{folder}: is a {kind}, a folder is needed there")
    return problems


def add_arguments(parser):
    """Add the command's options."""
    options.add_tree(parser, "tell what would change; fails where the run itself would")
    parser.add_argument("--reverse", action="store_true", help="take the patch set out again")
    parser.add_argument(
        "--link",
        action="store_true",
        help="link to this checkout's files instead of copying them, to develop in the tree; one "
        "that reads another way there is copied, and follows with the next run",
    )


def main(args, patch_set=None) -> int:
    """Run the command; `patch_set` is this checkout's unless a test gives its own."""
    if args.reverse and args.link:
        raise SetupError("--link has no meaning with --reverse", "leave it out.")
    tree = Tree.at(args.tvm)
    try:
        with tree.locked():
            return _run(args, tree, patch_set or PatchSet.of(tree))
    except OSError as error:
        if error.errno == errno.ENOSPC:  # dev.py has the words for a full disk
            raise
        raise SetupError(
            f"{error.strerror or error}: {error.filename or tree.root}",
            "see to the file or folder, and run this again; it goes on from here.",
        ) from error


def _run(args, tree, patch_set):
    plan = make_plan(tree, patch_set, args.link, args.reverse)
    pending = plan.pending()
    if args.dry_run:
        for path, action in pending.items():
            print(f"would {action} {path}")
    else:
        plan.commit()
    if not pending:
        state = "not in" if args.reverse else "in"
        nothing = "nothing would change" if args.dry_run else "nothing to do"
        print(f"the patch set is {state} {tree.root} already; {nothing}")
    elif args.reverse and not args.dry_run:
        print(f"took the patch set out of {tree.root}: {_counts(pending)}")
    elif not args.dry_run:
        print(f"TVM {plan.tag} in {tree.root}: {_counts(pending)}")
        print(_NEXT_STEPS % (textwrap.indent(patch_set.kind.config, "    "), tree.root))
    return 0


def _counts(pending):
    counts = Counter(pending.values())
    order = ("add", "replace", "remove", "patch", "delete", "restore")
    return ", ".join(f"{counts[do]} {do.rstrip('e')}ed" for do in order if counts[do])
