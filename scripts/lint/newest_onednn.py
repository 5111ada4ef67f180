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
"""Compiles our C++ against the newest oneDNN headers, without making object files."""

import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor

from scripts.setup import machine
from scripts.setup.stamps import Stamp, digest

SOURCES = ("src/relay/backend/contrib/dnnl/**/*.cc", "src/runtime/contrib/dnnl/**/*.cc")


def newest_version(layout):
    """Return "major.minor" of the newest headers."""
    text = (layout.onednn_newest / "include/oneapi/dnnl/dnnl_version.h").read_text()
    parts = [
        re.search(rf"DNNL_VERSION_{part}\s+(\d+)", text).group(1) for part in ("MAJOR", "MINOR")
    ]
    return ".".join(parts)


def command_for(layout, source):
    """Return the compiler's command line for one source file."""
    tvm = layout.tvm
    includes = [tvm / "include", tvm / "dmlc-core/include", tvm / "dlpack/include"]
    includes.append(layout.onednn_newest / "include")
    command = [machine.find_compiler(), "-std=c++17", "-fsyntax-only", "-Wall", "-Wextra"]
    # The ABI only changes names of symbols, which a check of the syntax does not make.
    command += ["-Werror", "-DDMLC_USE_FOPEN64=0", "-DTVM_DNNL_CODEGEN_JSON=1"]
    command.append("-DDMLC_USE_LOGGING_LIBRARY=<tvm/runtime/logging.h>")
    for include in includes:
        command += ["-isystem", include]
    return [str(part) for part in [*command, source]]


def check_compiles(layout, console, jobs=None):
    """Yield a message for each source file that does not compile, or compiles with a warning."""
    sources = sorted(path for glob in SOURCES for path in layout.root.glob(glob))
    stamp = Stamp(layout.build / ".compiled-newest")
    key = digest(layout.root / "src", layout.requirements / "wheel-onednn-newest.txt")
    key = digest(key, layout.requirements / "wheel-tvm.txt", machine.find_compiler().resolve())
    if stamp.matches(key):
        return

    def compile_one(source):
        result = subprocess.run(
            command_for(layout, source), capture_output=True, text=True, errors="replace"
        )
        console.note(source.name)
        return source, result

    clean = True
    with ThreadPoolExecutor(jobs or os.cpu_count()) as pool:
        for source, result in pool.map(compile_one, sources):
            if result.returncode != 0:
                clean = False
                head = "\n".join(result.stderr.splitlines()[:12])
                yield f"{source.relative_to(layout.root)}:\n{head}"
    if clean:
        stamp.write(key)
