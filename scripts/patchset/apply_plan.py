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
"""What a run of `apply` would change in a tree: worked out in full before anything is touched."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from scripts.errors import SetupError
from scripts.patchset import apply_diff
from scripts.patchset.apply_patchset import PatchSet, tree_tag
from scripts.patchset.apply_tree import ABSENT, STATE_DIR, State, Tree, file_state

_MANIFEST = STATE_DIR + "/manifest.json"
_ORIGINALS = STATE_DIR + "/originals/"
_PATCHES = STATE_DIR + "/patches/"


@dataclass
class Plan:
    """Changes to a tree.

    Parameters
    ----------
    tag : str
        The release of TVM in the tree.
    changes : dict
        The state that each path is to hold, the record of ours included.
    actions : dict
        "add", "replace", "remove" or "patch" by path, for every path that the patch set deals with.
    originals : dict
        The state of each of these paths without the patch set.
    drop_dirs : list
        Folders that go at the end if they are empty then.
    """

    tag: str
    changes: dict
    actions: dict = field(default_factory=dict)
    originals: dict = field(default_factory=dict)
    drop_dirs: list = field(default_factory=list)


class Site:
    """A TVM tree and our record in it.

    The record (`.dnnl-overlay/`) holds the manifest, the originals of all files that were replaced,
    removed or patched, and the patches as they were applied.

    Parameters
    ----------
    tree : Tree
        The TVM tree. After an interrupted run it is seen as it will be once that run is undone.
    """

    def __init__(self, tree: Tree):
        self.tree = tree
        self._undone = tree.interrupted()
        manifest = self.read(_MANIFEST)
        self.record = None
        if manifest.kind == "file":
            self.record = json.loads(manifest.data)
            if self.record["format"] != 1:
                raise SetupError(
                    f"{tree.full(_MANIFEST)} has the unknown format {self.record['format']}",
                    "a newer version of this project wrote it: run the command with that version.",
                )

    def read(self, path: str) -> State:
        return self._undone[path] if path in self._undone else self.tree.get(path)

    def recorded_originals(self) -> tuple:
        """Work out what the files of the record were without the patch set.

        Returns
        -------
        originals : dict
            State by path. A file that was patched and then edited keeps the edit.
        changed : list
            Paths with an edit that taking the patch set back would lose.
        """
        originals, changed = {}, []
        if self.record is None:
            return originals, changed
        patches = [
            apply_diff.parse(n, self.read(_PATCHES + n).data) for n in self.record["patches"]
        ]
        for path, entry in self.record["files"].items():
            originals[path] = self.read(_ORIGINALS + path)
            now = self.read(path)
            if now.kind == "absent" or now.matches(entry["after"]) or now.same(originals[path]):
                continue
            if entry["action"] == "patch" and now.kind == "file":
                try:
                    originals[path] = State("file", _take_back(patches, path, now.data), now.mode)
                    continue
                except apply_diff.PatchError:
                    pass
            changed.append(path)
        return originals, changed

    def plan_apply(self, patch_set: PatchSet, link: bool = False) -> Plan:
        """Plan to bring the patch set in, or up to date."""
        tag = tree_tag(self.read, self.tree.root, patch_set.versions)
        patches = patch_set.patches(tag)
        old, changed = self.recorded_originals()

        def original(path):
            return old[path] if path in old else self.read(path)

        wanted, actions, problems = {}, {}, []
        for path in sorted(patch_set.overlay):
            wanted[path] = patch_set.overlay_state(path, link)
            before = original(path)
            actions[path] = "add" if before.kind == "absent" else "replace"
            if not patch_set.knows(path, before):
                problems.append(_unknown(path, before, wanted[path], tag, patch_set))
        for path in patch_set.removed:
            before = original(path)
            if before.kind == "absent":
                continue
            wanted[path], actions[path] = ABSENT, "remove"
            if not patch_set.knows(path, before):
                problems.append(_unknown(path, before, ABSENT, tag, patch_set))
        for patch in patches:
            for part in patch.files:
                before = wanted.get(part.path) or original(part.path)
                try:
                    if before.kind != "file":
                        raise apply_diff.PatchError(f"{patch.name}: {part.path} is not a file")
                    text = apply_diff.apply_file(patch.name, part, before.data)
                    wanted[part.path] = State("file", text, before.mode)
                    actions[part.path] = "patch"
                except apply_diff.PatchError as error:
                    problems.append(str(error))
        for path in changed:
            if path not in wanted or not self.read(path).same(wanted[path]):
                problems.append(f"{path}: was changed after the patch set was applied")
        problems += self._blocked(wanted)
        if problems:
            raise SetupError(
                f"the patch set does not go onto {self.tree.root}; nothing was changed",
                "move the named files away, or get TVM's own back (`git checkout -- PATH` in the"
                " TVM tree), and run this again.",
                "\n".join(problems),
            )
        plan = Plan(tag, dict(wanted), actions, {path: original(path) for path in wanted})
        for path in set(old) - set(wanted):
            plan.changes[path] = old[path]
        self._add_record(plan, wanted, patches, patch_set, "link" if link else "copy")
        return plan

    def plan_reverse(self) -> Plan:
        """Plan to take the patch set out again."""
        originals, changed = self.recorded_originals()
        if changed:
            raise SetupError(
                f"files of the patch set were changed in {self.tree.root}; nothing was undone",
                "save your changes elsewhere, delete these files, and run this again.",
                "\n".join(changed),
            )
        actions = {path: entry["action"] for path, entry in self.record["files"].items()}
        plan = Plan(self.record["tag"], dict(originals), actions, originals)
        plan.changes.update({path: ABSENT for path in self._record_files()})
        plan.drop_dirs = self.record["made_dirs"] + _folders(self._record_files())
        return plan

    def pending(self, plan: Plan) -> list:
        """Paths of the tree, less the record, that the plan would change."""
        return [
            path
            for path, new in plan.changes.items()
            if not path.startswith(STATE_DIR) and not self.read(path).same(new)
        ]

    def _record_files(self):
        """Paths of the record that the last run left."""
        if self.record is None:
            return []
        files = [_MANIFEST] + [_PATCHES + name for name in self.record["patches"]]
        kept = [path for path, e in self.record["files"].items() if e["before"]["kind"] != "absent"]
        return files + [_ORIGINALS + path for path in kept]

    def _add_record(self, plan, wanted, patches, patch_set, mode):
        files, stored = {}, {}
        for path, new in wanted.items():
            before = plan.originals[path]
            files[path] = {
                "action": plan.actions[path],
                "before": before.to_json(),
                "after": new.to_json(),
            }
            if before.kind != "absent":
                stored[_ORIGINALS + path] = before
        for patch in patches:
            stored[_PATCHES + patch.name] = file_state(patch.source)
        made = self.tree.missing_dirs(path for path, new in wanted.items() if new.kind != "absent")
        made += self.record["made_dirs"] if self.record else []
        manifest = {
            "format": 1,
            "tag": plan.tag,
            "mode": mode,
            "made_dirs": sorted(set(made)),
            "patches": [patch.name for patch in patches],
            "files": files,
        }
        stored[_MANIFEST] = file_state(json.dumps(manifest, indent=1).encode() + b"\n")
        stale = set(self._record_files()) - set(stored)
        plan.changes.update({path: ABSENT for path in stale})
        plan.changes.update(stored)
        plan.drop_dirs = (self.record["made_dirs"] if self.record else []) + _folders(stale)

    def _blocked(self, wanted):
        """Places where a folder should be but a file or a link is."""
        found = set()
        for path in wanted:
            parts = path.split("/")[:-1]
            for size in range(1, len(parts) + 1):
                folder = "/".join(parts[:size])
                kind = self.read(folder).kind
                if kind in ("file", "link"):
                    found.add(f"{folder}: is a {kind}, a folder is needed there")
        return sorted(found)


def _folders(paths):
    """The folders of some paths and the folders around them."""
    found = set()
    for path in paths:
        parts = path.split("/")[:-1]
        found.update("/".join(parts[:size]) for size in range(1, len(parts) + 1))
    return sorted(found - {STATE_DIR})


def _take_back(patches, path, text):
    """Undo our hunks in a file that was edited since."""
    for patch in reversed(patches):
        for part in patch.files:
            if part.path == path:
                text = apply_diff.apply_file(patch.name, part.reversed(), text)
    return text


def _unknown(path, before, wanted, tag, patch_set):
    if before.kind != "file":
        return f"{path}: is not a plain file"
    if before.same(wanted):
        return f"{path}: is ours already, but {STATE_DIR}/, which kept the original, is gone"
    if path in patch_set.upstream:
        return f"{path}: was changed, it is not the file of TVM {tag}"
    return f"{path}: is neither TVM's nor ours"
