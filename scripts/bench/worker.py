# SPDX-License-Identifier: Apache-2.0
"""A process that calls functions of a module for another one, which asks over a pipe.

The benchmark has models in such processes: those of Relax, as two TVMs cannot be in one process,
and those whose memory it measures. While nobody asks, the process waits, and its threads sleep.
"""

import importlib
import multiprocessing.connection
import signal
import subprocess
import sys
import traceback

from scripts.errors import SetupError


class Worker:
    """The process, seen from the one that asks. It ends with the context.

    It calls functions of `module` in the environment of `layout`.
    """

    def __init__(self, layout, module):
        # After the set-up: what it imports runs on any Python.
        from scripts.setup.variables import variables

        self._pipe, theirs = multiprocessing.Pipe()
        command = [str(layout.python), "-m", __name__, module, str(theirs.fileno())]
        # The progress that is seen is that of the process that asks.
        environ = {**variables(layout), "TVM_DNNL_PROGRESS": "0"}
        self._process = subprocess.Popen(
            command, env=environ, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
        )
        theirs.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._pipe.close()
        self._process.wait()

    def ask(self, what, *words):
        """Return what a function of the module returns; raise SetupError with what it raised."""
        try:
            self._pipe.send((what, words))
            failure, answer = self._pipe.recv()
        except (EOFError, OSError) as error:
            code = self._process.wait()
            raise SetupError(f"the worker process ended with code {code}") from error
        if isinstance(failure, SetupError):
            raise failure
        if failure:
            raise SetupError(f"the worker process failed: {what}", "", failure)
        return answer


def main(name, descriptor):
    """Call functions of a module until the other process closes the pipe."""
    # Ctrl-C is for the process that asks; this one then ends with it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    module, pipe = importlib.import_module(name), multiprocessing.connection.Connection(descriptor)
    while True:
        try:
            what, words = pipe.recv()
        except EOFError:
            return
        try:
            answer = None, getattr(module, what)(*words)
        except SetupError as error:
            answer = error, None
        except Exception as error:
            last = traceback.format_exception_only(error)
            answer = "".join(last).strip(), None
        pipe.send(answer)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
