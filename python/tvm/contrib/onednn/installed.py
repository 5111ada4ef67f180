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
"""Versions of installed packages, and libraries as they lie on the disk."""

from __future__ import annotations

import importlib.metadata
import math
import struct
from pathlib import Path


def version(package: str) -> str:
    """Return the version of a package, or an empty string if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def is_cut_off(path: Path) -> bool:
    """Whether a library ends before its table of sections: opening it would end the process."""
    with path.open("rb") as file:
        header = file.read(64)
    if len(header) < 64:
        return True
    (begin,) = struct.unpack_from("<Q", header, 40)
    return path.stat().st_size < begin + math.prod(struct.unpack_from("<2H", header, 58))
