# SPDX-License-Identifier: Apache-2.0
"""Finds what built pages would load from other hosts. Links for readers are not resources."""

import re

_HOST = r"[\"']?\s*((?:https?:)?//[^\s\"')>]+)"
# The attributes by which an element loads something; `href` of `a` is a link.
_ELEMENT = re.compile(
    rf"<(?:script|img|iframe|source|video|audio|embed|object|image|use|link)\b[^>]*?"
    rf"\s(?:src|srcset|href|xlink:href|data|poster)\s*=\s*{_HOST}",
    re.IGNORECASE,
)
_STYLE = re.compile(rf"(?:url\(|@import\s)\s*{_HOST}", re.IGNORECASE)
_PATTERNS = {".html": (_ELEMENT, _STYLE), ".svg": (_ELEMENT, _STYLE), ".css": (_STYLE,)}


def outside_resources(folder):
    """Return the addresses that the pages, pictures and style sheets below a folder would load.

    Parameters
    ----------
    folder : Path
        What Sphinx has written.

    Returns
    -------
    references : list[str]
        "FILE: ADDRESS", sorted.
    """
    references = set()
    for path in folder.rglob("*"):
        if patterns := _PATTERNS.get(path.suffix):
            text = path.read_text(encoding="utf-8")
            addresses = [each for pattern in patterns for each in pattern.findall(text)]
            references.update(f"{path.relative_to(folder)}: {each}" for each in addresses)
    return sorted(references)
