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
"""Python's garbage collector in functions that create many objects."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def older_objects_kept() -> Iterator[None]:
    """Let the garbage collector look only at objects that are created in a block.

    The modules of TVM have hundreds of thousands of objects, which each full collection visits.
    """
    # In this order: to count them takes milliseconds.
    if _Kept.is_kept or not gc.isenabled() or gc.get_freeze_count():
        yield
        return
    _Kept.is_kept = True
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        _Kept.is_kept = False


class _Kept:
    """Whether a block keeps objects."""

    is_kept = False
