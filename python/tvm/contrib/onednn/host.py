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
"""The LLVM target of this machine, for either TVM."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping

# CPU features whose instructions LLVM emits on its own. A virtual machine may hide some of what
# its CPU model has, and code built for the model's full set then dies of an illegal instruction.
_VECTOR_FEATURES = ("sse", "ssse3", "avx", "fma", "f16c", "bmi", "movbe", "lzcnt", "amx")
_CPUINFO_NAMES = {"sse3": "pni", "bmi": "bmi1", "lzcnt": "abm"}
_X86_LEVELS = ("x86-64-v4", "x86-64-v3", "x86-64-v2", "x86-64")


def _cpu_flags() -> set[str] | None:
    """Return the feature flags of the first core in /proc/cpuinfo, or None if there are none."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as cpuinfo:
            for line in cpuinfo:
                if line.startswith("flags"):
                    return {flag.replace("_", "") for flag in line.split(":", 1)[1].split()}
    except OSError:
        pass
    return None


def _host_has(features, flags: set[str]) -> bool:
    """Tell whether the host's flags cover all vector features that LLVM would use."""
    for feature in map(str, features):
        if feature.startswith(_VECTOR_FEATURES):
            name = _CPUINFO_NAMES.get(feature, feature)
            if name.replace(".", "").replace("-", "").replace("_", "") not in flags:
                return False
    return True


# The device type of DLPack.
_CPU_DEVICE = 1


def checked_target(target, kind, default: Callable):
    """Return a target as an object of TVM; None stands for the default.

    Parameters
    ----------
    target : tvm.target.Target | str | Mapping | None
        As passed by the caller.
    kind : type
        `tvm.target.Target`.
    default : Callable
        Returns the target of this machine.

    Raises
    ------
    TypeError, ValueError
        It is no target that TVM knows, or none of a CPU.
    """
    if target is None:
        return default()
    if not isinstance(target, (str, Mapping, kind)):
        raise TypeError(f"target must be a tvm.target.Target or a string, not {target!r}")
    try:
        checked = target if isinstance(target, kind) else kind(target)
    except (TypeError, ValueError) as error:
        reason = str(error).strip().splitlines()[-1]
        raise ValueError(f"target: TVM does not know {target!r}: {reason}") from error
    if checked.get_target_device_type() != _CPU_DEVICE:
        raise ValueError(f"target must be a CPU's, such as 'llvm', not {target!r}")
    return checked


def host_target(codegen, make_target: Callable):
    """Return the LLVM target of this machine.

    The triple is named in full because a TVM build may default to another machine's. The CPU is
    the one that LLVM detects, or the highest x86-64 level that LLVM knows and the host has.

    Parameters
    ----------
    codegen : module
        `tvm.target.codegen`.
    make_target : Callable
        Returns the target of a triple and, optionally, a CPU.

    Returns
    -------
    target : tvm.target.Target
        The target.
    """
    machine = platform.machine()
    triple = str(codegen.llvm_get_system_triple())
    if triple.split("-")[0] != machine:
        triple = f"{machine}-linux-gnu"
    known = set(map(str, codegen.llvm_get_cpu_archlist(make_target(triple))))
    flags = _cpu_flags() if machine == "x86_64" else None
    levels = _X86_LEVELS if machine == "x86_64" else ()
    for cpu in (str(codegen.llvm_get_system_cpu()), *levels):
        if cpu in known:
            target = make_target(triple, cpu)
            if flags is None or _host_has(codegen.llvm_get_cpu_features(target), flags):
                return target
    return make_target(triple)
