# SPDX-License-Identifier: Apache-2.0
"""Running modules without compiling them for TVM, which takes several times as long.

A partition is a runtime module of `relay.ext.dnnl`, called directly; the ops around the partitions,
and those of a module that has none, are evaluated by numpy. A module with an op that numpy does not
define here is compiled after all. The numbers of a partition are those of a compiled module; what
TVM adds, from the constants' loader to the executors, is for `test_dnnl.py`, `integration`,
`runtime` and `models`.
"""

import functools
import os
import tempfile
import warnings

import ml_dtypes
import numpy as np
import tvm
from tvm import relay
from tvm.contrib import cc
from tvm.contrib.onednn.ir.numpy_types import numpy_type
from tvm.contrib.onednn.ops.evaluate import evaluate_op, has_definition
from tvm.relay.op.contrib import dnnl
from tvm.relay.op.contrib._dnnl.ir.constants import to_numpy
from tvm.relay.op.contrib._dnnl.ir.relay_view import dims, plain_attrs, view_of
from tvm.testing import dnnl as testing

from dnnl_tests.numpy_qnn import QNN_OPS

# What TVM compiles all the same: LLVM's optimizations take most of the time.
TARGET = tvm.target.Target(f"{testing.host_target()} -opt-level=0")


class NotDefined(Exception):
    """A module has something that numpy cannot evaluate here."""


def _to_ndarray(value):
    return tvm.nd.array(np.asarray(value, order="C"))


def _typed(value, dtype):
    """Return a value given by a test as an array of a type."""
    value = to_numpy(value) if isinstance(value, tvm.nd.NDArray) else np.asarray(value)
    # The bits of a bfloat16, as some releases of TVM have them.
    is_bits = dtype == "bfloat16" and value.dtype == "uint16"
    return value.view(ml_dtypes.bfloat16) if is_bits else value.astype(numpy_type(dtype))


def _shape(type_):
    shape = dims(type_)
    if None in shape:
        raise NotDefined(f"open dimensions {type_.shape}")
    return shape


def _fields(type_):
    return list(type_.fields) if isinstance(type_, relay.TupleType) else [type_]


def linked(modules):
    """Compile the C source of partitions as one library; return it and the path that it had."""
    with tempfile.TemporaryDirectory(prefix="dnnl_c_source_") as folder:
        sources = [os.path.join(folder, f"{i}.c") for i in range(len(modules))]
        for source, module in zip(sources, modules):
            module.save(source, "c")
        path = os.path.join(folder, "lib.so")
        cc.create_shared(path, sources, ["-O0", *dnnl.c_source_options()])
        library = tvm.runtime.load_module(path)
    for module in modules:
        for constants in module.imported_modules:
            library.import_module(constants)
    return library, path


class Partition:
    """A function with Compiler="dnnl" as a runtime module that holds its constants.

    Parameters
    ----------
    function : relay.Function
        The function, with types.
    codegen : str, optional
        "JSON" or "C_SRC"; the library's default if absent. What is "C_SRC" runs once it is linked.
    static : relay.Function, optional
        The function with the sizes that it is called with, if it has open dimensions.
    """

    def __init__(self, function, codegen=None, static=None):
        self.symbol = str(function.attrs["global_symbol"])
        static = function if static is None else static
        self.params = [param.checked_type for param in static.params]
        results = _fields(static.checked_type.ret_type)
        self.results = [(_shape(type_), type_.dtype) for type_ in results]
        for type_ in self.params:
            _shape(type_)
        # Without the options of the caller's context, as `testing.build` compiles.
        config = {"relay.ext.dnnl.codegen": codegen} if codegen else {}
        with tvm.transform.PassContext(opt_level=3, config=config):
            self.module = tvm.get_global_func("relay.ext.dnnl")(function)
            updater = tvm.get_global_func("relay.ext.dnnl.constant_updater")
            constants = updater(function, self.symbol)
        if self.module.type_key == "c":
            return  # It imports its constants.
        names = self.module.get_function("get_const_vars")()
        self.module.get_function("__init_" + self.symbol)([constants[name] for name in names])

    def __call__(self, *args):
        """Return the list of the outputs."""
        outputs = [tvm.nd.empty(*each) for each in self.results]
        self.module.get_function(self.symbol)(*map(_to_ndarray, args), *outputs)
        return [to_numpy(output) for output in outputs]


class Evaluation:
    """One evaluation of a function: the values of its expressions, each computed once.

    The values have the types of the expressions; tuples are lists.
    """

    def __init__(self, mod, partitions, values):
        self.mod, self.partitions = mod, partitions
        self.values = values

    def value(self, expr):
        """Return the value of an expression."""
        if expr not in self.values:
            self.values[expr] = self._compute(expr)
        return self.values[expr]

    def _compute(self, expr):
        if isinstance(expr, relay.Constant):
            return to_numpy(expr.data)
        if isinstance(expr, relay.Tuple):
            return [self.value(field) for field in expr.fields]
        if isinstance(expr, relay.TupleGetItem):
            return self.value(expr.tuple_value)[expr.index]
        if not isinstance(expr, relay.Call):
            raise NotDefined(type(expr).__name__)
        args = [self.value(arg) for arg in expr.args]
        if isinstance(expr.op, tvm.ir.Op):
            return apply(expr, args)
        if isinstance(expr.op, relay.GlobalVar) and expr.op.name_hint in self.partitions:
            outputs = self.partitions[expr.op.name_hint](*args)
            return outputs if isinstance(expr.checked_type, relay.TupleType) else outputs[0]
        function = self.mod[expr.op] if isinstance(expr.op, relay.GlobalVar) else expr.op
        if not isinstance(function, relay.Function):
            raise NotDefined(type(function).__name__)
        inner = Evaluation(self.mod, self.partitions, dict(zip(function.params, args)))
        return inner.value(function.body)


def result_type(call):
    """Return the type of a call as the definitions of ops have it."""
    view = view_of(call)
    return view.results if view.returns_tuple else view.result


# Tests evaluate a call several times in a row.
@functools.lru_cache(maxsize=32)
def _described(call):
    """Return the name, the attributes, the type and the definition of a call of an op."""
    name, definition = call.op.name, QNN_OPS.get(call.op.name)
    if definition is None and not has_definition(name):
        raise NotDefined(name)
    for type_ in _fields(call.checked_type):
        _shape(type_)
    return name, plain_attrs(call), result_type(call), definition


def apply(call, args):
    """Return the result of a call of an op: computed in float64, then rounded to its type."""
    name, attrs, type_, definition = _described(call)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return evaluate_op(name, attrs, type_, args, definition)
    except Exception as error:  # pylint: disable=broad-except
        raise NotDefined(f"{name}: {error!r}") from error


class Runner:
    """Runs a module, as `testing.Runner` runs a compiled one.

    Parameters
    ----------
    mod : tvm.IRModule
        The module, partitioned for DNNL or not.
    params : dict of str to array, optional
        Values of parameters of ``main``.
    opt_level : int
        Relay's optimisation level, where the module is compiled.
    """

    def __init__(self, mod, params=None, opt_level=1):
        self.mod = relay.transform.InferType()(mod)
        self.params, self.opt_level = params, opt_level
        self.lib, self.path = None, None
        self._compiled = None
        try:
            self._partitions = self._make_partitions()
        except NotDefined:
            self._compile()

    def _make_partitions(self):
        partitions = {}
        for var, function in self.mod.functions.items():
            attrs = getattr(function, "attrs", None) or {}
            if "Compiler" not in attrs:
                continue
            if str(attrs["Compiler"]) != "dnnl":
                raise NotDefined(f"compiler {attrs['Compiler']}")
            partitions[var.name_hint] = Partition(function)
        modules = [partition.module for partition in partitions.values()]
        if modules and dnnl.dnnl_codegen() != "JSON":
            self.lib, self.path = linked(modules)
            for partition in partitions.values():
                partition.module = self.lib
            return partitions
        for module in modules[1:]:
            modules[0].import_module(module)
        self.lib = modules[0] if modules else None
        return partitions

    def _compile(self):
        self._compiled = testing.Runner(
            testing.build(self.mod, self.params, opt_level=self.opt_level, target=TARGET)
        )
        self.lib, self.path = self._compiled.lib, self._compiled.path

    def __call__(self, inputs):
        """Run once on inputs, and return the outputs as a flat list of numpy arrays."""
        if self._compiled is None:
            try:
                return self._evaluate({**(self.params or {}), **inputs})
            except NotDefined:
                self._compile()
        return self._compiled(inputs)

    def _evaluate(self, inputs):
        main = self.mod["main"]
        values = {}
        for param in main.params:
            _shape(param.checked_type)
            value = _typed(inputs[param.name_hint], param.checked_type.dtype)
            if value.shape != _shape(param.checked_type):
                raise NotDefined(f"{param.name_hint} has the shape {value.shape}")
            values[param] = value
        return _outputs(Evaluation(self.mod, self._partitions, values).value(main.body))


def _outputs(value):
    """Flatten a result, with the types that an executor's outputs have in numpy."""
    if isinstance(value, list):
        return [array for field in value for array in _outputs(field)]
    return [_to_ndarray(value).numpy()]


def run(mod, inputs, params=None, *, executor="graph", opt_level=1):
    """Run a module once, and return its outputs as `testing.run` does.

    Another executor than the graph's has shape functions, or is what a test is about.
    """
    if executor != "graph":
        options = dict(executor=executor, opt_level=opt_level, target=TARGET)
        return testing.run(mod, inputs, params, **options)
    return Runner(mod, params, opt_level)(inputs)


check = functools.partial(testing.check, run=run)
