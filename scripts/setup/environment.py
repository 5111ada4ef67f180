# SPDX-License-Identifier: Apache-2.0
"""Prepares the environment."""

import time

from scripts.console import Console
from scripts.errors import SetupError
from scripts.layout import Layout
from scripts.runner import Runner
from scripts.setup import steps
from scripts.setup.lock import exclusive, release, share
from scripts.setup.plugin import InstallPlugin
from scripts.setup.variables import tvm_home


def plan(runner, layout, extra_groups=(), compile_library=True):
    """Return the steps of set-up in their order."""
    all_steps = [
        steps.CheckMachine(runner, layout),
        steps.VirtualEnvironment(runner, layout),
        steps.Packages(runner, layout, layout.groups + tuple(extra_groups)),
    ]
    others: list[type[steps.Step]] = [steps.OneDNN]
    compiled: list[type[steps.Step]] = [InstallPlugin, steps.SmokeTest]
    if layout.has_tree:
        if tvm_home():
            return all_steps
        others = [steps.PrebuiltTree, steps.OneDNN, steps.CopyOverlay]
        compiled[0] = steps.CompileLibrary
    if compile_library:
        others += compiled
    return all_steps + [step(runner, layout) for step in others]


def prepare(options, layout=None, extra_groups=(), extra_steps=(), also=()):
    """Bring the environment up to date.

    Parameters
    ----------
    options : argparse.Namespace
        `dry_run` prints the commands of the steps that are due; `no_build` leaves out the
        compilation; `onednn_newer` adds the newer library.
    layout : Layout, optional
        The checkout.
    extra_groups : sequence of str
        Groups of packages beside the usual ones.
    extra_steps : sequence of Step classes
        Steps after the usual ones.
    also : sequence of Layout
        Environments to prepare beside it.

    Returns
    -------
    Runner
        To run further commands with.
    """
    layout = layout or Layout()
    console = Console()
    runner = Runner(console, layout.logs, options.dry_run)
    if getattr(options, "onednn_newer", False):
        extra_steps = (*extra_steps, steps.NewerOneDNN)
    all_steps = plan(runner, layout, extra_groups, not options.no_build)
    all_steps += [step(runner, layout) for step in extra_steps]
    all_steps += [step for one in also for step in plan(runner, one, (), not options.no_build)]
    if options.dry_run:
        run_steps(all_steps, runner)
        return runner
    try:
        # From here on nobody takes the environment away, until the last process in it has ended.
        share(layout.in_use, console)
        if all(step.current() for step in all_steps):
            return runner
        release(layout.in_use)
        with exclusive(layout.lock, console):
            run_steps(all_steps, runner)
            share(layout.in_use, console)
    except PermissionError as error:
        raise SetupError(
            f"cannot write to {error.filename}",
            "run as the owner of the checkout, or clone it to a place of your own.",
        ) from error
    return runner


def run_steps(all_steps, runner):
    """Run the steps that are due."""
    start = time.monotonic()
    shown = 0
    for step in all_steps:
        if step.current():
            if runner.dry_run:
                runner.plan(f"{step.title}: up to date")
            continue
        if runner.dry_run:
            runner.plan(f"{step.title}:")
            step.run()
            continue
        # Which steps are due is known only when those before them have run: no total.
        progress = runner.console.step(f"[{shown + 1}] {step.title}", step.after)
        with step.alone(), progress:
            step.run()
        shown += progress.shown
    if shown:
        runner.console.say(f"the environment is ready ({time.monotonic() - start:.0f} s)")
