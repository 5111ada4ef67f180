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
"""Progress of what takes long, on stderr, so that stdout stays the program's own."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import os
import shutil
import sys
import threading
import time
from typing import Any

#: Seconds after which a call of the API tells what it does.
PATIENCE = 5.0

_BAR = 20  # characters
_CLEAR = "\r\x1b[K"  # the line

# The step that this thread is in.
_current: contextvars.ContextVar[_Step | None] = contextvars.ContextVar("step", default=None)


def step(label: str):
    """Return a context manager for a call of the API, which is silent if it ends soon.

    Within another step, the label is a note of that one. With ``TVM_DNNL_PROGRESS=0`` in the
    environment, calls of the API are always silent; another value than 0 and 1 is a ValueError.
    """
    if _current.get() is not None:
        note(label)
        return contextlib.nullcontext()
    from .environment import is_on  # `dev.py` loads this file alone

    if not is_on("TVM_DNNL_PROGRESS", True) or sys.stderr is None:
        return contextlib.nullcontext()
    return _Step(Console(), f"oneDNN: {label}", PATIENCE, is_silent_before=True)


def told(label: str):
    """Decorate a function of the API as a step; a file that is its first argument is named."""

    def decorate(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            is_file = args and isinstance(args[0], (str, os.PathLike))
            with step(f"{label} {os.path.basename(args[0])}" if is_file else label):
                return function(*args, **kwargs)

        return wrapper

    return decorate


def note(text: str, done: int = 0, total: int = 0) -> None:
    """Say what the running step does now, and how far it is, if there is one."""
    running = _current.get()
    if running is not None:
        running.console.note(text, done, total)


def note_nodes(importer: Any) -> None:
    """Let a class of TVM that imports ONNX graphs note each node that it converts."""
    begin, convert = importer.from_onnx, importer._convert_operator

    @functools.wraps(begin)
    def from_onnx(self, graph, *args, **kwargs):
        self._nodes_noted = [0, len(graph.node)]
        return begin(self, graph, *args, **kwargs)

    @functools.wraps(convert)
    def convert_operator(self, op_name, *args, **kwargs):
        # Importers of subgraphs have none.
        count = getattr(self, "_nodes_noted", [0, 0])
        count[0] = min(count[0] + 1, count[1])  # a node may be converted in two parts
        note(f"import {op_name}", *count)
        return convert(self, op_name, *args, **kwargs)

    importer.from_onnx, importer._convert_operator = from_onnx, convert_operator


def passes_noted(tvm):
    """Return a context like the current PassContext of TVM, in which a running step notes passes.

    Parameters
    ----------
    tvm : module
        The package of TVM.
    """
    now = tvm.transform.PassContext.current()
    # A new context would begin and end the work of its instruments.
    if _current.get() is None or now.instruments:
        return contextlib.nullcontext()
    count = 0

    @tvm.instrument.pass_instrument
    class _Passes:
        def run_before_pass(self, mod, info):  # pylint: disable=unused-argument
            nonlocal count
            count += 1
            note(f"{count} passes, now {info.name}")

    return tvm.transform.PassContext(
        opt_level=now.opt_level,
        required_pass=list(now.required_pass),
        disabled_pass=list(now.disabled_pass),
        instruments=[_Passes()],
        config=dict(now.config),
    )


class Console:
    """Prints one line for each step, with the seconds it took.

    On a terminal the line of the running step is redrawn once a second. Elsewhere a line is
    printed when a step starts, when it ends, and each minute between, so that logs show where the
    time goes.
    """

    # Seconds between the lines of a step that runs on, where there is no terminal.
    interval = 60.0

    def __init__(self, stream=None):
        self.stream = stream or sys.stderr
        self.live = self.stream.isatty() and os.environ.get("TERM") != "dumb"
        self.colour = self.live and "NO_COLOR" not in os.environ
        self._note = ""

    def paint(self, text, code):
        """Return `text` in an ANSI colour if the stream is a terminal."""
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour else text

    def say(self, text):
        """Print a line, in the place of the one that a running step shows on a terminal."""
        self.write(f"{_CLEAR}{text}\n" if self.live else f"{text}\n")

    def write(self, text):
        """Write to the stream; a closed one fails no step."""
        with contextlib.suppress(OSError, ValueError):
            self.stream.write(text)
            self.stream.flush()

    def note(self, text, done=0, total=0):
        """Say what the running step does now, and how far it is, for its next line."""
        if total:
            filled = _BAR * done // total
            bar = "#" * filled + "." * (_BAR - filled)
            text = (
                f"[{bar}] {done} of {total}, {text}" if self.live else f"{done} of {total}, {text}"
            )
        self._note = text

    def step(self, label, after=0.0):
        """Return a context manager for one step, silent if it ends within `after` seconds."""
        return _Step(self, label, after)


class _Step:
    def __init__(self, console, label, after, is_silent_before=False):
        self.console = console
        self.label = label
        self.after = after
        # Also if it fails: the caller may expect that.
        self.is_silent_before = is_silent_before
        self.start = 0.0
        self.shown = False
        self.token: contextvars.Token[_Step | None] | None = None
        self.done = threading.Event()
        self.ticker = threading.Thread(target=self._draw, daemon=True)

    def _show(self):
        self.shown = True
        if self.console.live:
            self.console.write(f"\r{self.label}")
        else:
            self.console.say(f"{self.label} ...")

    def _draw(self):
        if not self.shown and not self.done.wait(self.after):
            self._show()
        while not self.done.wait(1.0 if self.console.live else self.console.interval):
            seconds = time.monotonic() - self.start
            line = f"{self.label:<44}{seconds:7.1f} s  {self.console._note}"
            if not self.console.live:
                self.console.say(line.rstrip())
                continue
            # A line that wraps could not be redrawn.
            line = line[: shutil.get_terminal_size().columns - 1]
            self.console.write(f"{_CLEAR}{line}")

    def __enter__(self):
        self.start = time.monotonic()
        self.console._note = ""
        self.token = _current.set(self)
        if not self.after:
            self._show()
        self.ticker.start()
        return self

    def __exit__(self, kind, value, trace):
        assert self.token is not None, "the block was not entered"
        _current.reset(self.token)
        self.done.set()
        self.ticker.join()
        if not self.shown and (kind is None or self.is_silent_before):
            return False
        seconds = time.monotonic() - self.start
        if kind is None:
            verdict = self.console.paint("done", "32")
        elif kind is KeyboardInterrupt:
            verdict = self.console.paint("interrupted", "33")
        else:
            verdict = self.console.paint("failed", "31")
        self.console.say(f"{self.label:<44}{seconds:7.1f} s  {verdict}")
        return False
