# SPDX-License-Identifier: Apache-2.0
"""Progress on the terminal. All of it goes to stderr, so stdout stays the command's own."""

import os
import shutil
import sys
import threading
import time

_BAR = 20  # characters
_CLEAR = "\r\x1b[K"  # the line


class Console:
    """Prints one line for each step of set-up, with the seconds it took.

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
        print(f"{_CLEAR}{text}" if self.live else text, file=self.stream, flush=True)

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
    def __init__(self, console, label, after):
        self.console = console
        self.label = label
        self.after = after
        self.start = 0.0
        self.shown = False
        self.done = threading.Event()
        self.ticker = threading.Thread(target=self._draw, daemon=True)

    def _show(self):
        self.shown = True
        if self.console.live:
            print(f"\r{self.label}", end="", file=self.console.stream, flush=True)
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
            print(f"{_CLEAR}{line}", end="", file=self.console.stream, flush=True)

    def __enter__(self):
        self.start = time.monotonic()
        self.console._note = ""
        if not self.after:
            self._show()
        self.ticker.start()
        return self

    def __exit__(self, kind, value, trace):
        self.done.set()
        self.ticker.join()
        if not self.shown and kind is None:
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
