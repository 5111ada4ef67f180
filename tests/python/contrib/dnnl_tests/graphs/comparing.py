# SPDX-License-Identifier: Apache-2.0
"""How far what a module computed may be from its reference."""

import ml_dtypes
import tvm
from tvm import relay
from tvm.testing import dnnl as testing

from .evaluate import at_random, evaluate

# The error of one op in float32, as the tests of single ops allow it, and the largest relative
# error of rounding to shorter numbers, twice: a last bit of float32 may decide between neighbours.
RTOL = {"float32": 2e-5, "float16": 2.0**-10, "bfloat16": 2.0**-7}
# So many times each step is rounded at random to learn how much a graph magnifies roundings; one
# run may have luck. Random rounding errs twice as much as rounding to nearest (see `at_random`).
SAMPLES = 32
# How many times as much oneDNN may err in float32, where a step is more than one rounding: sums in
# another order, and an exp or a log that is a few roundings off. A step of reduced precision is one
# rounding: if oneDNN erred as random rounding does, once in SAMPLES + 1 times it would err most.
FACTOR = 16


def run(mod, inputs, **options):
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


def is_reduced(mod):
    """Whether main has numbers that are shorter than float32."""
    return not _types(mod).isdisjoint(("bfloat16", "float16"))


def allowed(mod, depth):
    """Return the error that `depth` ops one after the other may make, relative to the largest."""
    return depth * max(RTOL[dtype] for dtype in _types(mod) | {"float32"} if dtype in RTOL)


def wrong_outputs(outputs, reference, rtol):
    """Return the numbers of the outputs that differ from a reference, with the differences."""
    return {
        number: diff
        for number, (got, want) in enumerate(zip(outputs, reference))
        if not (diff := testing.difference([got], [want])).relative <= _limit(got, rtol)
    }


def describe(wrong, rtol):
    """Put what `wrong_outputs` found in words."""
    return "\n".join(
        f"output {number} differs by {diff.absolute:.3e}, {diff.relative:.3e} of the largest; "
        f"{rtol:.1e} is allowed"
        for number, diff in wrong.items()
    )


def is_arithmetic(mod, inputs, outputs, numbers, rtol):
    """Whether the arithmetic of the types that a module has makes the error of some outputs."""
    # Alone: of the whole graph there may be something that numpy cannot tell or TVM cannot run.
    mod, inputs = _only(mod, inputs, numbers)
    outputs = [outputs[i] for i in numbers]
    truth = evaluate(mod, inputs, rounding=None)
    if truth is None:
        return False
    samples = [evaluate(mod, inputs, at_random(seed)) for seed in range(SAMPLES)]
    if _is_as_wrong(outputs, samples, truth, rtol, 1 if is_reduced(mod) else FACTOR):
        return True
    # TVM sums reduced precision in reduced precision: its error says nothing.
    return not is_reduced(mod) and _is_tvm_as_wrong(mod, inputs, outputs, truth, rtol)


def _limit(got, rtol):
    return rtol if "float" in str(got.dtype) else 0.0


def _is_tvm_as_wrong(mod, inputs, outputs, truth, rtol):
    """Whether TVM, which rounds inside of each step, errs as much."""
    try:
        reference = run(mod, inputs, opt_level=1)
    # TVM has no kernel for some attributes.
    except Exception:  # pylint: disable=broad-except
        return False
    return _is_as_wrong(outputs, [reference], truth, rtol, FACTOR)


def _is_as_wrong(outputs, references, truth, rtol, factor):
    """Whether the error of outputs is allowed, or `factor` times that of some reference."""

    def error(values, i):
        return testing.difference([values[i]], [truth[i]]).relative

    return all(
        error(outputs, i) <= max(rtol, *(factor * error(values, i) for values in references))
        for i in range(len(truth))
    )


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
    dtypes = set()

    def visit(expr):
        type_ = expr.checked_type if not isinstance(expr, tvm.ir.Op) else None
        if isinstance(type_, relay.TensorType):
            dtypes.add(type_.dtype)

    relay.analysis.post_order_visit(mod["main"], visit)
    return dtypes
