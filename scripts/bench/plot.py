# SPDX-License-Identifier: Apache-2.0
"""Plots of measurements. matplotlib is imported when one is drawn."""

import textwrap

from scripts.files import replaced_at_end

# So that bars of one backend, or of one kind of primitive, look alike in all plots.
COLOURS = ("#0b6e99", "#d9730d", "#448361", "#9065b0", "#787774", "#c4554d", "#cb912f")


def _figure(width, height, panels=1):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot.subplots(panels, figsize=(width, height), layout="constrained", sharex=True)


def _save(figure, path):
    for axes in figure.axes:
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    with replaced_at_end(path) as file:
        figure.savefig(file, dpi=150)


def backends(labels, rows, path, subtitle):
    """Draw the time of each runtime on each model, relative to the first runtime.

    There is a panel for each precision, in which that of the first runtime is 1. `labels` and
    `rows` are those of `scripts.bench.rows`; `subtitle` says how it was measured.
    """
    models, precisions, titles = (list(dict.fromkeys(names)) for names in zip(*labels))
    times = {label: row["median_ms"] for label, row in zip(labels, rows) if "median_ms" in row}
    width = max(6, (0.16 * len(titles) + 0.4) * len(models) + 1)
    figure, _ = _figure(width, 0.8 + 2.7 * len(precisions), len(precisions))
    from matplotlib.patches import Patch

    colours = [COLOURS[number % len(COLOURS)] for number in range(len(titles))]
    share = 0.8 / len(titles)
    for axes, precision in zip(figure.axes, precisions):
        for number, title in enumerate(titles):
            places = [
                (position, times[model, precision, title], times[model, precision, titles[0]])
                for position, model in enumerate(models)
                if {(model, precision, title), (model, precision, titles[0])} <= times.keys()
            ]
            offset = (number - (len(titles) - 1) / 2) * share
            positions = [position + offset for position, _, _ in places]
            heights = [time / first for _, time, first in places]
            bars = axes.bar(positions, heights, share, color=colours[number])
            texts = [f"{time:.3g}" for _, time, _ in places]
            axes.bar_label(bars, texts, fontsize=7, rotation=90, padding=2)
        axes.axhline(1, color="lightgrey", linewidth=0.8, zorder=0)
        axes.set_title(precision, fontsize=9, loc="left")
        axes.margins(x=0.01, y=0.2)
    names = [textwrap.fill(title, 16) for title in models]
    figure.axes[-1].set_xticks(range(len(models)), names, fontsize=8)
    figure.supylabel(f"time, {titles[0]} = 1; the numbers are ms", fontsize=9)
    figure.suptitle(subtitle, fontsize=9)
    # Not the bars' own labels: a panel may lack a runtime.
    handles = [Patch(color=colour, label=title) for colour, title in zip(colours, titles)]
    place = dict(loc="outside lower center", ncols=len(titles))
    figure.legend(handles=handles, fontsize=8, frameon=False, **place)
    _save(figure, path)


def primitives(rows, path, title):
    """Draw where the time of a run goes, primitive by primitive in their order.

    `rows` are what `profile_primitives` returns.
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
    _save(figure, path)
