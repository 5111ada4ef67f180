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
"""`./dev.py apply`: bring the patch set into a TVM source tree, and take it out again."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from scripts.errors import SetupError
from scripts.patchset.apply_patchset import PatchSet
from scripts.patchset.apply_plan import Plan, Site
from scripts.patchset.apply_tree import STATE_DIR, Tree

_DESCRIPTION = f"""\
Bring the patch set into a TVM source tree: copy the overlay, remove what patches/remove.list names
and apply patches/series with zero fuzz. All of it happens or nothing; a run that was killed is
undone by the next one. The tree keeps the originals in {STATE_DIR}/, so --reverse gives back the
same bytes. Files that are neither TVM's nor ours, or that you changed, are never overwritten."""


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    parse = argparse.ArgumentParser(
        prog="./dev.py apply",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parse.add_argument("--tvm", metavar="DIR", required=True, help="the TVM source tree")
    parse.add_argument(
        "--check",
        "--dry-run",
        action="store_true",
        help="tell what would change, and change nothing; fails where the run itself would",
    )
    parse.add_argument("--reverse", action="store_true", help="take the patch set out again")
    parse.add_argument(
        "--link",
        action="store_true",
        help="link to this checkout's files instead of copying them, to develop in the tree",
    )
    return parse


def main(argv, patch_set=None) -> int:
    """Run the command; `patch_set` is this checkout's unless a test gives its own."""
    args = parser().parse_args(argv)
    if args.reverse and args.link:
        raise SetupError("--link has no meaning with --reverse", "leave it out.")
    root = Path(args.tvm).expanduser().resolve()
    if not root.is_dir():
        raise SetupError(f"there is no folder {root}", "give --tvm the top of a TVM source tree.")
    tree = Tree(root)
    try:
        with tree.locked():
            return _run(args, tree, patch_set or PatchSet())
    except OSError as error:
        if error.errno == 28:  # dev.py has the words for a full disk
            raise
        raise SetupError(
            f"{error.strerror or error}: {error.filename or root}",
            "the tree is as it was before; see to the file or folder, and run this again.",
        ) from error


def _run(args, tree, patch_set):
    undone = bool(tree.interrupted())
    if not args.check:
        tree.recover()
    if undone:
        print(f"an earlier run was interrupted; {'would undo' if args.check else 'undid'} it first")
    site = Site(tree)
    if args.reverse:
        return _reverse(args, site)
    plan = site.plan_apply(patch_set, args.link)
    pending = site.pending(plan)
    if args.check:
        _list(plan, pending)
        if not pending:
            print(f"the patch set is in {tree.root} (TVM {plan.tag}) already; nothing would change")
        return 0
    tree.commit(plan.changes, plan.drop_dirs)
    if not pending:
        print(f"the patch set is in {tree.root} (TVM {plan.tag}) already; nothing to do")
        return 0
    print(f"TVM {plan.tag} in {tree.root}: {_counts(plan, pending)}")
    print(
        "next: in that tree's build folder, add to config.cmake\n"
        "    set(USE_DNNL_CODEGEN ON)\n"
        "    set(USE_DNNL /path/to/oneDNN)    # 3.2 or newer\n"
        "and build TVM as its guide says.\n"
        f"undo: ./dev.py apply --tvm {tree.root} --reverse"
    )
    return 0


def _reverse(args, site):
    root = site.tree.root
    if site.record is None:
        print(f"the patch set is not in {root}; nothing to do")
        return 0
    plan = site.plan_reverse()
    pending = site.pending(plan)
    if args.check:
        _list(plan, pending, reverse=True)
        return 0
    site.tree.commit(plan.changes, plan.drop_dirs)
    print(f"took the patch set out of {root}: {len(pending)} files are TVM's again or gone")
    return 0


def _list(plan: Plan, pending, reverse=False):
    for path in sorted(pending):
        action = plan.actions.get(path)
        if reverse or action is None:
            # Not part of the patch set (any more): back to what it was.
            action = "delete" if plan.changes[path].kind == "absent" else "restore"
        print(f"would {action} {path}")


def _counts(plan: Plan, pending):
    counts = Counter(plan.actions.get(path, "take back") for path in pending)
    words = {
        "add": "added",
        "replace": "replaced",
        "remove": "removed",
        "patch": "patched",
        "take back": "taken back",
    }
    return ", ".join(f"{counts[action]} {word}" for action, word in words.items() if counts[action])
