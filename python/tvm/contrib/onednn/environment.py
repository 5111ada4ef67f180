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
"""Switches in the environment, and paths in any locale."""

from __future__ import annotations

import os


def is_on(variable: str, default: bool) -> bool:
    """Return whether a variable is 1; `default` if it is empty or not set.

    Raises
    ------
    ValueError
        It is neither 0 nor 1.
    """
    said = os.environ.get(variable) or str(int(default))
    if said not in ("0", "1"):
        raise ValueError(f"{variable} must be 0 or 1, not {said!r}")
    return said == "1"


def utf8_path(path: str) -> str:
    """Return a path as the C++ of TVM and ONNX encodes it, which does not ask the locale."""
    return os.fsencode(path).decode("utf-8", "surrogateescape")
