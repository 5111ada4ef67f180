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
"""Plots of measurements. matplotlib is imported when one is drawn."""

import statistics
import textwrap
from pathlib import Path

from scripts.errors import SetupError

# So that bars of one backend, or of one kind of primitive, look alike in all plots.
COLOURS = ("#0b6e99", "#d9730d", "#448361", "#9065b0", "#787774", "#c4554d", "#cb912f")
SUFFIXES = (".png", ".svg", ".pdf")


def check_path(option, path):
    """Find out before the measurements that a plot cannot be written."""
    if Path(path).suffix not in SUFFIXES:
        raise SetupError(
            f"{option}: {path} must end in {', '.join(SUFFIXES)}", "name another file."
        )
    if not Path(path).absolute().parent.is_dir():
        raise SetupError(f"{option}: there is no folder {Path(path).parent}", "make it first.")


def _figure(width, height):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot.subplots(figsize=(width, height), layout="constrained")


def _save(figure, axes, path):
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(path, dpi=150)


def backends(models, titles, path, subtitle):
    """Draw the time of each backend on each model, relative to the first backend.

    Parameters
    ----------
    models : list of (str, dict of str to list of float)
        The title of each model, and by backend its samples in seconds.
    titles : dict of str to str
        The titles of the backends in their order; the first one is what the others are compared to.
    path : str
        The file; its suffix says the format.
    subtitle : str
        How it was measured.
    """
    figure, axes = _figure(max(6, 1.6 * len(models) + 2), 4.5)
    first = next(iter(titles))
    share = 0.8 / len(titles)
    for number, (name, title) in enumerate(titles.items()):
        positions, heights, texts = [], [], []
        for position, (_, samples) in enumerate(models):
            if name not in samples or first not in samples:
                continue
            median = statistics.median(samples[name])
            positions.append(position + (number - (len(titles) - 1) / 2) * share)
            heights.append(median / statistics.median(samples[first]))
            texts.append(f"{median * 1e3:.3g}")
        bars = axes.bar(
            positions, heights, share, label=title, color=COLOURS[number % len(COLOURS)]
        )
        axes.bar_label(bars, texts, fontsize=7, rotation=90, padding=2)
    names = [textwrap.fill(title, 16) for title, _ in models]
    axes.set_xticks(range(len(models)), names, fontsize=8)
    axes.set_ylabel(f"time, {titles[first]} = 1; the numbers are ms")
    axes.margins(y=0.15)
    axes.set_title(subtitle, fontsize=9)
    axes.legend(fontsize=8, ncols=len(titles), frameon=False)
    _save(figure, axes, path)


def primitives(rows, path, title):
    """Draw where the time of a run goes, primitive by primitive in their order.

    Parameters
    ----------
    rows : list of dict
        What `profile_primitives` returns.
    path : str
        The file; its suffix says the format.
    title : str
        The title.
    """
    figure, axes = _figure(10, 4.5)
    kinds = sorted({row["kind"] for row in rows})
    for number, kind in enumerate(kinds):
        mine = [(position, row) for position, row in enumerate(rows) if row["kind"] == kind]
        total = sum(row["microseconds"] for _, row in mine)
        axes.bar(
            [position for position, _ in mine],
            [row["microseconds"] for _, row in mine],
            0.9,
            label=f"{kind}, {len(mine)}: {total / 1e3:.2f} ms",
            color=COLOURS[number % len(COLOURS)],
        )
    axes.set_xlabel("primitives in the order of the run")
    axes.set_ylabel("µs")
    axes.set_title(title, fontsize=10)
    axes.legend(fontsize=8, frameon=False)
    _save(figure, axes, path)
