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
"""Interrupts that arrive while TVM's C++ may be calling Python."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType


class _Held:
    """The handler of SIGINT that is kept waiting, and the call that it has missed."""

    handler: Callable | None = None
    call: tuple[int, FrameType | None] | None = None


def _note(number: int, frame: FrameType | None) -> None:
    _Held.call = _Held.call or (number, frame)


def _replaceable_handler() -> Callable | None:
    """Return the handler of SIGINT if a block may replace it for a while.

    Other threads than the main one do not get interrupts. A handler that is not Python's stays, and
    so does that of an enclosing `deferred`.
    """
    handler = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    return handler if is_main and callable(handler) and handler is not _note else None


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Hold SIGINT back in a block until `deliver` is called, or the block ends.

    What its handler raises, such as KeyboardInterrupt, is lost in a function that C++ calls:
    Relay's FFI ignores it and hands a null pointer to C++ as the result, and tvm-ffi makes a
    RuntimeError without a message of it. Python runs no handler while C++ runs, so that waiting
    for its end costs no more than what the functions do that it calls.
    """
    handler = _replaceable_handler()
    if handler is None:
        yield
        return
    _Held.handler, _Held.call = handler, None
    signal.signal(signal.SIGINT, _note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        deliver()


def deliver() -> None:
    """Call the handler of an interrupt that was held back. No C++ may have called the caller."""
    if _Held.call and _Held.handler and threading.current_thread() is threading.main_thread():
        call, _Held.call = _Held.call, None
        _Held.handler(*call)


@contextlib.contextmanager
def raised() -> Iterator[None]:
    """Raise what the handler of SIGINT raises in a block, such as KeyboardInterrupt, at its end.

    An exception that a handler raises in a function that C++ calls, or in a finalizer, is replaced
    by another one or ignored; see `deferred`. Unlike in `deferred`, a handler is called at once, so
    that a long compilation ends early.
    """
    handler = _replaceable_handler()
    if handler is None:
        yield
        return
    error = None

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal error
        try:
            handler(number, frame)
        except BaseException as raised_here:
            error = raised_here
            raise

    signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if error is not None:
            raise error
