# SPDX-License-Identifier: Apache-2.0
"""Runs external commands: their output goes to a log, a failure shows the end of it."""

import contextlib
import os
import shlex
import signal
import subprocess

from scripts.errors import SetupError
from scripts.setup.lock import held

TAIL_LINES = 25

# Settings of the user's own Python and pip that would lead an installation elsewhere.
_STRAY = ("PYTHONHOME", "PYTHONPATH", "PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT")


def clean_environment():
    """Return the environment variables without those that would misdirect pip and Python."""
    return {name: value for name, value in os.environ.items() if name not in _STRAY}


def prepend(environ, name, first):
    """Put a folder before those that a variable names."""
    rest = environ.get(name, "")
    environ[name] = f"{first}{os.pathsep}{rest}" if rest else str(first)


def tail(text, lines=TAIL_LINES):
    """Return the last lines of a text."""
    return "\n".join(text.rstrip().splitlines()[-lines:])


def explain_pip_failure(output, command, log):
    """Return the SetupError for pip's output, which says what is wrong; `log` has all of it."""
    return SetupError(
        f"`{shlex.join(command[:5])} ...` failed",
        "after what pip says above, run the same command again: it goes on from here. After a "
        "proxy set HTTPS_PROXY. With a mirror of the Python package index set PIP_INDEX_URL=<its "
        "address>; with a folder of wheels set PIP_NO_INDEX=1 and PIP_FIND_LINKS=<the folder>. "
        f"Set-up needs about 3 GB. The whole log is {log}",
        tail(output),
    )


@contextlib.contextmanager
def _uninterrupted():
    """Let interruptions wait until the end of the body."""
    came, handlers = [], {}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        handler = signal.getsignal(number)
        # One that is ignored, as with nohup, stays so in the process that is started.
        if callable(handler):
            handlers[number] = signal.signal(number, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    for number in came:
        signal.raise_signal(number)


class Runner:
    """Runs commands with their output in the folder `logs`, or with `dry_run` only prints them."""

    def __init__(self, console, logs, dry_run=False):
        self.console = console
        self.logs = logs
        self.dry_run = dry_run

    def show(self, command):
        """Print a command as one could type it, on stdout."""
        print(shlex.join(str(part) for part in command), flush=True)

    def plan(self, text):
        """In a dry run, print what would be done by this script itself. Returns `dry_run`."""
        if self.dry_run:
            print(f"# {text}", flush=True)
        return self.dry_run

    def run(self, command, log, explain=None):
        """Run a command with its output in `<logs>/<log>.log`; return what it printed.

        `explain`, if given, returns the error for (output, command, path of the log).
        """
        command = [str(part) for part in command]
        if self.dry_run:
            self.show(command)
            return ""
        self.logs.mkdir(parents=True, exist_ok=True)
        path = self.logs / f"{log}.log"
        output = []
        with path.open("w") as file:
            file.write(f"$ {shlex.join(command)}\n")
            process = None
            try:
                # In the middle of its start it would be left behind.
                with _uninterrupted():
                    process = subprocess.Popen(
                        command,
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.PIPE,
                        stderr=subprocess.STDOUT,
                        env=clean_environment(),
                        pass_fds=held(),
                        text=True,
                        errors="replace",
                    )
                for line in process.stdout:
                    output.append(line)
                    file.write(line)
                    file.flush()
                    self.console.note(line.strip())
                code = process.wait()
            except BaseException:
                if process:
                    process.terminate()
                    process.wait()
                raise
        text = "".join(output)
        if code != 0:
            if explain:
                raise explain(text, command, path)
            raise SetupError(
                f"`{shlex.join(command)}` failed with exit code {code}",
                f"the whole log is {path}",
                tail(text),
            )
        return text
