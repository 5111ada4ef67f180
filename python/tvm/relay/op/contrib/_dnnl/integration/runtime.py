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
"""What this TVM's DNNL code generator and runtime are, and how many threads they use."""

import tvm


def is_dnnl_available() -> bool:
    """Return whether this TVM has the DNNL code generator."""
    return tvm.get_global_func("relay.ext.dnnl", allow_missing=True) is not None


def dnnl_version() -> str:
    """Return the version of the oneDNN library that the runtime uses, such as "3.2.0".

    Raises
    ------
    RuntimeError
        This TVM has no DNNL runtime.
    """
    return str(_runtime_function("version")())


def num_threads() -> int:
    """Return the number of threads for models that have not run yet.

    It is the number that was passed to `set_num_threads`, else the environment variable
    `TVM_DNNL_NUM_THREADS`, else the number that the model was compiled for, which is not known
    here, else OpenMP's default for a new thread: `OMP_NUM_THREADS`, or the number of CPUs. TVM's
    threads may have another default.

    Raises
    ------
    RuntimeError
        This TVM has no DNNL runtime.
    """
    return int(_runtime_function("get_num_threads")())


def set_num_threads(number: int) -> None:
    """Set the number of threads for models that have not run yet.

    oneDNN divides the work at a model's first run, and the model keeps that number of threads. If
    several threads run models, one oneDNN thread for each is usually best. In C++, call
    ``runtime.contrib.dnnl.set_num_threads``.

    Parameters
    ----------
    number : int
        The number of threads, or 0 to undo earlier calls.

    Raises
    ------
    RuntimeError
        This TVM has no DNNL runtime.
    TVMError
        The number is negative, or this oneDNN does not run on OpenMP.
    """
    _runtime_function("set_num_threads")(number)


def _runtime_function(name):
    function = tvm.get_global_func(f"runtime.contrib.dnnl.{name}", allow_missing=True)
    if function is None:
        raise RuntimeError(
            "this TVM has no DNNL runtime; build it with USE_DNNL_CODEGEN set to ON in config.cmake"
        )
    return function


def dnnl_codegen() -> str:
    """Return what this TVM's DNNL code generator emits: "JSON" or "C_SRC".

    The build option `USE_DNNL_CODEGEN` selects it. For one compilation, the `PassContext` option
    `relay.ext.dnnl.codegen` overrides it.

    Raises
    ------
    RuntimeError
        This TVM has no DNNL code generator.
    """
    codegen = tvm.get_global_func("relay.ext.dnnl.codegen", allow_missing=True)
    if codegen is None:
        raise RuntimeError(
            "this TVM has no DNNL code generator; build it with USE_DNNL_CODEGEN set to ON or "
            "C_SRC in config.cmake"
        )
    return str(codegen())


def codegen_in_context() -> str:
    """Return what partitions become in the current PassContext: "JSON" or "C_SRC"."""
    config = tvm.transform.PassContext.current().config
    return str(config.get("relay.ext.dnnl.codegen", dnnl_codegen()))
