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
"""Models that are compiled in one call, and loaded again."""

from __future__ import annotations

import functools
import os
import re
import tempfile
from pathlib import Path

import numpy as np
import tvm
from tvm import relay
from tvm.contrib import graph_executor
from tvm.contrib.onednn import progress
from tvm.contrib.onednn.compiled_model import CompiledModel, load_library, tensor_view
from tvm.contrib.onednn.export import release_memory
from tvm.contrib.onednn.report.offload_report import OffloadReport
from tvm.relay.ty import is_dynamic
from tvm.runtime import vm as vm_runtime

from ..ir.dataflow_graph import is_partition
from .target import target_of

_TYPES_OF_NUMPY = {np.dtype(code).name for code in "?efd" + np.typecodes["AllInteger"]}

# The attribute that the codegen reads; see src/relay/backend/contrib/dnnl/codegen.cc.
PARTITION = "dnnl_partition"


def is_partitioned(mod: tvm.IRModule) -> bool:
    """Tell whether a module has functions for the DNNL code generator."""
    return any(map(is_partition, mod.functions.values()))


def _needs_vm(mod: tvm.IRModule) -> bool:
    """Tell whether a module has open dimensions or control flow, which only the VM runs."""
    reasons = []

    def visit(expr):
        is_typed = isinstance(expr, (relay.Call, relay.Var))
        is_branch = isinstance(expr, (relay.If, relay.Match))
        if is_branch or (is_typed and is_dynamic(expr.checked_type)):
            reasons.append(expr)

    relay.analysis.post_order_visit(mod["main"], visit)
    return bool(reasons)


def _with_short_partitions(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a module whose partitions have bodies of one op, and themselves as an attribute.

    After each of its passes, TVM infers the types in all functions, which takes most of the time
    of `relay.build` for a model with many convolutions. The codegen reads the attribute.
    """
    result = tvm.IRModule(mod.functions, mod.type_definitions, attrs=mod.attrs)
    for var, func in mod.functions.items():
        if is_partition(func):
            args = func.params, _zeros(func.body.checked_type), func.ret_type, func.type_params
            result[var] = relay.Function(*args, func.attrs).with_attr(PARTITION, func)
    return result


def _zeros(type_):
    """Return a cheap expression of a type of tensors with known shapes."""
    if isinstance(type_, relay.TupleType):
        return relay.Tuple(list(map(_zeros, type_.fields)))
    return relay.zeros(list(map(int, type_.shape)), type_.dtype)


def compile_partitioned(
    mod: tvm.IRModule,
    target: tvm.target.Target | str | None,
    report: OffloadReport,
    export_options: dict | None,
) -> CompiledModel:
    """Compile a partitioned module.

    Parameters
    ----------
    mod : tvm.IRModule
        The module.
    target : tvm.target.Target | str | None
        The target; by default this machine.
    report : OffloadReport
        Its report.
    export_options : dict | None
        Options of `export_library`, if the library must be exported before it can run, as one with
        C source.
    """
    target = target_of(target)
    inputs = {each.name_hint: _spec(each.checked_type) for each in mod["main"].params}
    with progress.passes_noted(tvm), _optimized():
        mod = relay.transform.InferType()(mod)
        is_vm = _needs_vm(mod)
        if not is_vm and export_options is None:
            mod = _with_short_partitions(mod)
        library = (relay.vm.compile if is_vm else relay.build)(mod, target=target)
    # Weights as the model has them, before oneDNN packs its own.
    del mod
    release_memory()
    if export_options is None:
        run = (_vm if is_vm else _graph_executor)(library, inputs)
        return CompiledModel(library, run, inputs, report)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model.so")
        getattr(library, "mod", library).export_library(path, **export_options)
        run = (_vm if is_vm else _graph_executor)(tvm.runtime.load_module(path), inputs)
    return CompiledModel(library, run, inputs, report, export_options)


def plans(model: CompiledModel) -> list[str]:
    """Return what `get_plan` tells of each partition of a model that was run."""
    library, texts = model.library, {}
    for attribute in ("module", "mod"):
        library = getattr(library, attribute, library)
    stack = [library]
    while stack:
        module = stack.pop()
        stack += module.imported_modules
        if module.type_key == "dnnl_json":
            texts[module] = str(module.get_function("get_plan")())
    return list(texts.values())


def _optimized() -> tvm.transform.PassContext:
    """Return a context like the current one, with at least the level of optimization of TVM."""
    context = tvm.transform.PassContext.current()
    return tvm.transform.PassContext(
        max(context.opt_level, 3),
        list(context.required_pass),
        list(context.disabled_pass),
        list(context.instruments or ()),
        dict(context.config),
    )


def _spec(type_) -> tuple | None:
    """Return the shape and dtype of an input, or None if it is a tuple."""
    if not isinstance(type_, relay.TensorType):
        return None
    shape = [int(each) if isinstance(each, tvm.tir.IntImm) else None for each in type_.shape]
    return shape, type_.dtype


def _vm(library, inputs):
    """Return a function that runs a library on the VM."""
    vm = vm_runtime.VirtualMachine(library, tvm.cpu())

    def run(arrays):
        try:
            return _arrays(vm.invoke("main", *map(tvm.nd.array, arrays)))
        except tvm.TVMError as error:
            raise _refused(str(error), dict(zip(inputs, arrays))) from error

    return run


# What a partition says of an argument of another type than its own.
_REFUSED = re.compile(r"must be (\w+) \[(.*?)\], but is (\w+) \[(.*?)\]")


def _refused(message: str, arrays: dict) -> Exception:
    """Return the error of a run on the VM, which does not know the types of its inputs."""
    given = {
        name: (str(array.dtype), ", ".join(map(str, array.shape))) for name, array in arrays.items()
    }
    refused = _REFUSED.search(message)
    names = [name for name, each in given.items() if refused and each == refused.groups()[2:]]
    if refused is None or len(names) != 1:
        reason = message.strip().splitlines()[-1]
        texts = ", ".join(f"{name} {dtype} ({shape})" for name, (dtype, shape) in given.items())
        return RuntimeError(f"the model does not run with the inputs {texts}: {reason}")
    dtype, shape, own_dtype, own_shape = refused.groups()
    if own_dtype != dtype:
        return TypeError(f"input {names[0]}: dtype {own_dtype}, but the model expects {dtype}")
    shape = shape.replace("?", "any")
    return ValueError(f"input {names[0]}: shape ({own_shape}), but the model expects ({shape})")


def _graph_executor(library, inputs):
    """Return a function that runs a library with the graph executor."""
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    indices = [executor.get_input_index(name) for name in inputs]
    # The executor keeps the memory. Index -1: no op reads this input.
    write = [_writer(executor.get_input(index)) if index >= 0 else None for index in indices]
    read = [_reader(executor.get_output(i)) for i in range(executor.get_num_outputs())]

    def run(arrays):
        for copy, array in zip(write, arrays):
            if copy is not None:
                copy(array)
        executor.run()
        results = tuple([copy() for copy in read])
        return results if len(results) != 1 else results[0]

    return run


def _writer(tensor: tvm.nd.NDArray):
    """Return a function that copies an array of the same type to a tensor of the executor."""
    view = _view(tensor)
    return tensor.copyfrom if view is None else functools.partial(np.copyto, view)


def _reader(tensor: tvm.nd.NDArray):
    """Return a function that copies a tensor of the executor."""
    view = _view(tensor)
    return tensor.numpy if view is None else view.copy


def _view(tensor: tvm.nd.NDArray) -> np.ndarray | None:
    """Return the memory of a tensor as an array, or None if NumPy has no such type."""
    if tensor.dtype not in _TYPES_OF_NUMPY:
        return None
    struct = tensor.handle.contents
    address = (struct.data or 0) + struct.byte_offset
    return tensor_view(address, struct.shape[: struct.ndim], tensor.dtype)


def _arrays(value):
    """Return a result of the VM as NumPy arrays."""
    if isinstance(value, tvm.nd.NDArray):
        return value.numpy()
    return tuple(map(_arrays, value))


def load_model(path: str | os.PathLike) -> CompiledModel:
    """Load a model from a file that `export_library` wrote.

    Parameters
    ----------
    path : str | os.PathLike
        The file. Libraries are code: load only those that you trust.

    Returns
    -------
    model : CompiledModel
        The model, without a report.

    Raises
    ------
    OSError
        There is no such file.
    RuntimeError
        TVM cannot load it.
    ValueError
        The file is a library for neither the graph executor nor the VM.
    """
    # Not `load_module`, which resolves the name.
    load = tvm.get_global_func("runtime.ModuleLoadFromFile")
    library = load_library(path, lambda name: load(name, "so"), tvm.runtime.load_module)
    if library.type_key == "VMExecutable":
        names = map(str, vm_runtime.Executable(library).get_function_params("main"))
        inputs = dict.fromkeys(names)
        return CompiledModel(library, _vm(library, inputs), inputs)
    try:
        executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
        shapes, dtypes = executor.get_input_info()
    except AttributeError as error:
        raise ValueError(
            f"{path} is a library for neither the graph executor nor the VM"
        ) from error
    names = sorted(map(str, shapes), key=executor.get_input_index)
    inputs = {name: (list(map(int, shapes[name])), str(dtypes[name])) for name in names}
    return CompiledModel(library, _graph_executor(library, inputs), inputs)
