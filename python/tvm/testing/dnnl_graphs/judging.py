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
"""Running a graph on oneDNN and on TVM alone, and judging what they computed."""

import random
import warnings
from typing import NamedTuple

import ml_dtypes
import tvm
from tvm import relay
from tvm.testing import dnnl as testing

from .evaluate import evaluate
from .graph import inputs_of
from .rows import ROWS

# The error of one op in float32, as the tests of single ops allow it, and the largest relative
# error of rounding to shorter numbers, twice: a last bit of float32 may decide between neighbours.
RTOL = {"float32": 2e-5, "float16": 2.0**-10, "bfloat16": 2.0**-7}
# How many times TVM's own error oneDNN's may be where the graph magnifies errors.
FACTOR = 16
# The same for the error that rounding each step to a short type makes, which is of its size.
SHORT_FACTOR = 4

SAME, NOTHING, NO_REFERENCE, ILL, DIFFERENT, RAISED = (
    "same",
    "nothing offloaded",
    "TVM cannot run it",
    "ill-conditioned",
    "different",
    "raised",
)
FAILURES = (DIFFERENT, RAISED)


class Verdict(NamedTuple):
    """What became of a graph.

    Attributes
    ----------
    kind : str
        One of the constants of this module.
    text : str
        What is wrong.
    report : dict
        What was offloaded, see `OffloadReport.to_dict`.
    """

    kind: str
    text: str = ""
    report: dict = {}


def options(seed):
    """Return the arguments of `judge` that a seed stands for."""
    rng = random.Random(seed)
    return {
        "prune": rng.random() < 0.1,
        "against_tvm": seed % 8 == 0,
        "real": rng.choice(("float32",) * 8 + ("bfloat16", "float16")),
    }


def judge_module(mod, inputs, depth=1, prune=False, against_tvm=False):
    """Run a module with DNNL and without, and compare.

    Parameters
    ----------
    mod : tvm.IRModule
        Not partitioned.
    inputs : dict of str to array
        The inputs of main.
    depth : int
        The number of ops that one after the other may each add its error.
    prune : bool
        The option of `partition_for_dnnl`.
    against_tvm : bool
        Compare with TVM, which takes a compilation, in place of numpy in float64.

    Returns
    -------
    Verdict
        Errors of the partitioner, the code generator and the runtime included.
    """
    from tvm.relay.op.contrib import dnnl  # pylint: disable=import-outside-toplevel

    report = {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            partitioned = dnnl.partition_for_dnnl(mod, prune=prune)
            found = dnnl.offload_report(partitioned)
        report = found.to_dict()
        outputs = _run(partitioned, inputs) if found.partitions else None
    # Whatever it is, it is what the search is for, if TVM alone can run the graph.
    except Exception as error:  # pylint: disable=broad-except
        outputs, failure = None, f"{type(error).__name__}: {_end(error)}"
    else:
        failure = ""
        if outputs is None:
            return Verdict(NOTHING, "", report)
    # TVM rounds short numbers at each step, of a sum too, and some of its code for them is wrong.
    is_short = not _types(mod).isdisjoint(("bfloat16", "float16"))
    is_of_tvm = failure or (against_tvm and not is_short)
    reference = None if is_of_tvm else evaluate(mod, inputs)
    if reference is None and is_short and not failure:
        return Verdict(NO_REFERENCE, "numpy cannot tell", report)
    if reference is None:
        try:
            reference = _run(mod, inputs, opt_level=1)
        # TVM has no kernel for some attributes.
        except Exception as error:  # pylint: disable=broad-except
            reference = evaluate(mod, inputs)
            if reference is None or (failure and report.get("offloaded") != report.get("total")):
                return Verdict(NO_REFERENCE, _end(error), report)
    if failure:
        return Verdict(RAISED, failure, report)
    rtol = depth * max(RTOL[dtype] for dtype in _types(mod) | {"float32"} if dtype in RTOL)
    wrong = [
        (number, diff)
        for number, (got, want) in enumerate(zip(outputs, reference))
        if not (diff := testing.difference([got], [want])).relative <= _limit(got, rtol)
    ]
    if not wrong:
        return Verdict(SAME, "", report)
    text = "\n".join(
        f"output {number} differs by {diff.absolute:.3e}, {diff.relative:.3e} of the largest; "
        f"{rtol:.1e} is allowed"
        for number, diff in wrong
    )
    numbers = [number for number, _ in wrong]
    if is_short and _is_rounding_as_wrong(mod, inputs, outputs, numbers, rtol):
        return Verdict(ILL, text, report)
    if _is_tvm_as_wrong(mod, inputs, outputs, numbers, rtol):
        return Verdict(ILL, text, report)
    return Verdict(DIFFERENT, text, report)


def module_of(graph, real="float32"):
    """Return the module of a graph, in float32 if some of its ops have that inside."""
    try:
        return graph.module(ROWS, real)
    # Relay's errors of type are of no one class.
    except Exception:  # pylint: disable=broad-except
        return graph.module(ROWS)


def judge(graph, prune=False, against_tvm=False, real="float32"):
    """Run a graph with DNNL and without, and compare; see `judge_module`.

    Parameters
    ----------
    real : str
        The type in place of float32, if Relay has all ops of the graph in it.
    """
    mod = module_of(graph, real)
    return judge_module(mod, inputs_of(mod), max(graph.depth, 1), prune, against_tvm)


def replay(text):
    """Run the module of a Relay text; the values of its inputs come of their names."""
    mod = relay.transform.InferType()(relay.fromtext(text))
    return judge_module(mod, inputs_of(mod))


def _run(mod, inputs, **options):
    """Run a module; outputs of bfloat16, which numpy does not have, come as float32."""
    bits = {
        name: x.view("uint16") if x.dtype == ml_dtypes.bfloat16 else x for name, x in inputs.items()
    }
    type_ = mod["main"].checked_type.ret_type
    types = type_.fields if isinstance(type_, relay.TupleType) else [type_]
    return [
        array.view(ml_dtypes.bfloat16).astype("float32") if type_.dtype == "bfloat16" else array
        for array, type_ in zip(testing.run(mod, bits, **options), types)
    ]


def _end(error):
    """Return the last lines of a message that say something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return "\n".join(lines[-4:])


def _limit(got, rtol):
    return rtol if "float" in str(got.dtype) else 0.0


def _is_rounding_as_wrong(mod, inputs, outputs, numbers, rtol):
    """Whether oneDNN's error is what rounding each step to a short type makes, as numpy does."""
    truth, reference = evaluate(mod, inputs, is_rounded=False), evaluate(mod, inputs)
    if truth is None or reference is None:
        return False
    return _is_as_wrong(outputs, reference, truth, numbers, rtol, SHORT_FACTOR)


def _is_as_wrong(outputs, reference, truth, numbers, rtol, factor):
    """Whether the error of outputs is at most `factor` times that of a reference, or allowed."""

    def error(found, i):
        return testing.difference([found[i]], [truth[i]]).relative

    return all(error(outputs, i) <= max(rtol, factor * error(reference, i)) for i in numbers)


def _is_tvm_as_wrong(mod, inputs, outputs, numbers, rtol):
    """Whether oneDNN's error is what the arithmetic of float32 makes, as TVM's own error is."""
    # Alone: of the whole graph there may be something that TVM cannot run.
    mod, inputs = _only(mod, inputs, numbers)
    truth = evaluate(mod, inputs)
    if truth is None:
        return False
    try:
        reference = _run(mod, inputs, opt_level=1)
    # TVM has no kernel for some attributes.
    except Exception:  # pylint: disable=broad-except
        return False
    outputs = [outputs[i] for i in numbers]
    return _is_as_wrong(outputs, reference, truth, range(len(numbers)), rtol, FACTOR)


def _only(mod, inputs, numbers):
    """Return a module of some outputs, and the inputs that it needs."""
    body = mod["main"].body
    fields = [body.fields[i] for i in numbers] if isinstance(body, relay.Tuple) else [body]
    result = relay.Tuple(fields)
    params = relay.analysis.free_vars(result)
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(params, result)))
    return mod, {param.name_hint: inputs[param.name_hint] for param in params}


def _types(mod):
    """Return the types of the tensors of main."""
    found = set()

    def visit(expr):
        type_ = expr.checked_type if not isinstance(expr, tvm.ir.Op) else None
        if isinstance(type_, relay.TensorType):
            found.add(type_.dtype)

    relay.analysis.post_order_visit(mod["main"], visit)
    return found
