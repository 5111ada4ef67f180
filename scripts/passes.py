# SPDX-License-Identifier: Apache-2.0
"""Shows on the console which of TVM's passes runs, in steps that take minutes."""

import contextlib

import tvm


@tvm.instrument.pass_instrument
class _Passes:
    """Counts passes as they begin."""

    def __init__(self, console):
        self.console, self.count = console, 0

    def run_before_pass(self, mod, info):  # pylint: disable=unused-argument
        """Show the pass that begins."""
        self.count += 1
        self.console.note(f"{self.count} passes, now {info.name}")


@contextlib.contextmanager
def shown(console):
    """Note the passes that run in this context, which is else as the current PassContext."""
    now = tvm.transform.PassContext.current()
    with tvm.transform.PassContext(
        opt_level=now.opt_level,
        required_pass=list(now.required_pass),
        disabled_pass=list(now.disabled_pass),
        instruments=[*(now.instruments or []), _Passes(console)],
        config=dict(now.config),
    ):
        yield
