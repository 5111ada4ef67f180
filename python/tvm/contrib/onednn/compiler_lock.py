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
"""The lock of calls of TVM's importers and compiler, which are not safe on several threads."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Iterator

from .interrupts import raised
from .progress import told


class _Lock:
    """The lock. A forked process has a new one: the thread that held it may not be there."""

    lock = threading.RLock()


def _renew() -> None:
    _Lock.lock = threading.RLock()


os.register_at_fork(after_in_child=_renew)


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Hold the lock in a block. Reentrant; other threads wait until the block ends.

    `relax.BlockBuilder`, for example, has one stack of builders for all threads.
    """
    with _Lock.lock:
        yield


def entry(label: str):
    """Decorate a function of the API that imports or compiles.

    It is a step, see `progress.told`; one thread at a time runs it, and no interrupt is lost in it.
    """

    def decorate(function):
        @functools.wraps(function)
        def exclusive(*args, **kwargs):
            with held(), raised():
                return function(*args, **kwargs)

        return told(label)(exclusive)

    return decorate
