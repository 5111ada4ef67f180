# SPDX-License-Identifier: Apache-2.0
"""Calling functions in processes of their own, so that a crash ends that process only.

Not with tvm.contrib.popen_pool: each of its processes imports TVM again, five seconds of a CPU
where a fork of a process that has done so takes milliseconds, and it does not tell how one ended.
"""

import functools
import multiprocessing
import os
import traceback


class Crashed(RuntimeError):
    """The process of a call ended, or had to be ended, without a result."""


class Raised(RuntimeError):
    """A call raised an exception; the text is its traceback."""


@functools.cache
def _context():
    """Return the server that forks a process for each call.

    It has TVM loaded, and never runs anything itself: a fork of a process whose thread pools have
    started would hang.
    """
    context = multiprocessing.get_context("forkserver")
    relax = ["tvm.relax.frontend.onnx", "tvm_dnnl.dnnl"]
    context.set_forkserver_preload(["tvm.relay.frontend", "dnnl_tests.graphs", *relax])
    return context


def _child(pipe, function, calls):
    # What a crash or a compiler writes would drown the progress of hundreds of calls.
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    for args in calls:
        try:
            answer = (True, function(*args))
        except BaseException:  # pylint: disable=broad-except
            answer = (False, traceback.format_exc())
        pipe.send(answer)
    pipe.close()


def _receive(pipe, process, timeout):
    """Return the result of the next call, or the exception in its place."""
    if not pipe.poll(timeout):
        return Crashed(f"no result after {timeout:g} s")
    try:
        done, value = pipe.recv()
    except EOFError:
        process.join(10)
        return Crashed(f"the process ended with code {process.exitcode}")
    return value if done else Raised(value)


def isolated_each(function, calls, timeout=120.0, batch=20):
    """Call a function several times, outside of this process, and yield the results in order.

    Parameters
    ----------
    function : callable
        One that a module defines; arguments and result go through a pipe.
    calls : sequence of tuple
        The arguments of each call.
    timeout : float
        Seconds after which a call is ended.
    batch : int
        So many calls share a process. After a crash the rest of them gets a new one.

    Yields
    ------
    object
        The result, or an instance of `Crashed` or `Raised`.
    """
    context, calls = _context(), list(calls)
    while calls:
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_child, args=(theirs, function, calls[:batch]))
        process.daemon = True
        process.start()
        theirs.close()
        try:
            for _ in calls[:batch]:
                answer = _receive(ours, process, timeout)
                calls = calls[1:]
                yield answer
                if isinstance(answer, Crashed):
                    break
        finally:
            ours.close()
            process.kill()
            process.join()


def isolated(function, *args, timeout=120.0):
    """Call a function in a process of its own and return its result.

    Parameters
    ----------
    function, timeout
        See `isolated_each`.

    Raises
    ------
    Crashed
        The process died or took too long.
    Raised
        The function raised an exception.
    """
    (answer,) = isolated_each(function, [args], timeout)
    if isinstance(answer, (Crashed, Raised)):
        raise answer
    return answer
