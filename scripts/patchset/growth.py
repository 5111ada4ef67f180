# SPDX-License-Identifier: Apache-2.0
"""Tables of a series that grow with it: a row comes with the file that defines what it names.

The table of ops names a function of each file in ops/, and most of these files look ops up in the
table: as a whole they are one commit of ten thousand lines. So each commit has the table without
the rows whose functions come later. Functions are those that the header of the same name declares.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath

_DECLARED = re.compile(r"^[\w:]+ (\w+)\([^;]*\);", re.MULTILINE)
_DEFINED = re.compile(r"^(?:[\w:]+ )+(\w+)\([^;]*?\) \{", re.MULTILINE)
# What a part of the table itself defines, for other parts to name.
_CONSTANT = re.compile(r"^(?:constexpr Family|AlphaBeta) (\w+)\b", re.MULTILINE)
# Lines around the parts.
_FRAME = re.compile(r"#|namespace |const \w+ \w+\[\] = \{|\}")


def definers(table: str, texts: dict) -> dict:
    """Map each function that a table's header declares to the C++ file that defines it.

    `texts` has the series' C++ files by path.
    """
    declared = set(_DECLARED.findall(texts[str(PurePosixPath(table).with_suffix(".h"))]))
    definer_of = {}
    for path, text in texts.items():
        if path.endswith(".cc"):
            definer_of.update({name: path for name in declared & set(_DEFINED.findall(text))})
    return definer_of


def without(text: str, missing: set) -> str:
    """Return a table without the parts that name what is missing, or only what such parts name."""
    parts = _parts(text)
    while True:
        words = [set(re.findall(r"\w+", re.sub(r"//.*", "", part))) for part in parts]
        defined = [set(_CONSTANT.findall(part)) for part in parts]
        used = [set().union(*words[:i], *words[i + 1 :]) for i in range(len(parts))]
        kept = [
            part
            for part, names, own, others in zip(parts, words, defined, used)
            if not names & missing and (not own or own & others)
        ]
        if len(kept) == len(parts):
            break
        missing = missing.union(*(own for part, own in zip(parts, defined) if part not in kept))
        parts = kept
    text = re.sub(r"\n{3,}", "\n\n", "".join(parts))
    return re.sub(r"\n\n(};)", r"\n\1", re.sub(r"(= \{)\n\n", r"\1\n", text))


def _parts(text):
    """Cut C++ into rows, definitions and the lines around them, each after its comment."""
    parts, part, depth, is_comment = [], "", 0, False
    for line in text.splitlines(keepends=True):
        is_comment = is_comment or line.lstrip().startswith("/*")
        if is_comment or line.lstrip().startswith("//"):
            part += line
            is_comment = is_comment and "*/" not in line
            continue
        part += line
        if depth == 0 and (not line.strip() or _FRAME.match(line)):
            parts.append(part)
            part = ""
            continue
        depth += sum(line.count(c) for c in "({[") - sum(line.count(c) for c in ")}]")
        if depth == 0 and line.rstrip().endswith((",", ";", "}")):
            parts.append(part)
            part = ""
    return [*parts, part] if part else parts
