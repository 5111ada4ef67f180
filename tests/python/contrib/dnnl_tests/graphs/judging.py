# SPDX-License-Identifier: Apache-2.0
"""Running a graph on oneDNN and on TVM alone, and judging what they computed."""

import random
import warnings
from typing import NamedTuple

from tvm import relay
from tvm.contrib.onednn import cpu

from . import comparing
from .evaluate import evaluate
from .graph import inputs_of
from .partitions import Seams
from .rows import ROWS

SAME, APART, NOTHING, NO_REFERENCE, ILL, DIFFERENT, RAISED = (
    "same",
    "right partition by partition",
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


def judge_module(mod, inputs, depth=1, prune=False, against_tvm=False, precision="float32"):
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
    precision : str
        The option of `partition_for_dnnl`.

    Returns
    -------
    Verdict
        Errors of the partitioner, the code generator and the runtime included.
    """
    from tvm.relay.op.contrib import dnnl  # pylint: disable=import-outside-toplevel

    fields = {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            partitioned = dnnl.partition_for_dnnl(mod, prune=prune, precision=precision)
            report = dnnl.offload_report(partitioned)
        fields = report.to_dict()
        outputs = comparing.run(partitioned, inputs) if report.partitions else None
    # Whatever it is, it is what the search is for, if TVM alone can run the graph.
    except Exception as error:  # pylint: disable=broad-except
        outputs, failure = None, f"{type(error).__name__}: {_end(error)}"
    else:
        failure = ""
        if outputs is None:
            return Verdict(NOTHING, "", fields)
    # TVM rounds bfloat16 at each step, of a sum too, and some of its code for float16 is wrong.
    is_reduced = comparing.is_reduced(mod)
    is_of_tvm = failure or (against_tvm and not is_reduced)
    reference = None if is_of_tvm else evaluate(mod, inputs)
    if reference is None and is_reduced and not failure:
        return Verdict(NO_REFERENCE, "numpy cannot tell", fields)
    if reference is None:
        try:
            reference = comparing.run(mod, inputs, opt_level=1)
        # TVM has no kernel for some attributes.
        except Exception as error:  # pylint: disable=broad-except
            reference = evaluate(mod, inputs)
            if reference is None or (failure and fields.get("offloaded") != fields.get("total")):
                return Verdict(NO_REFERENCE, _end(error), fields)
    if failure:
        return Verdict(RAISED, failure, fields)
    rtol = comparing.allowed(mod, depth)
    wrong = comparing.wrong_outputs(outputs, reference, rtol)
    if not wrong:
        return Verdict(SAME, "", fields)
    kind, text = _look_into(mod, partitioned, inputs, outputs, wrong, rtol)
    return Verdict(kind, "\n".join(filter(None, [comparing.describe(wrong, rtol), text])), fields)


def _look_into(mod, partitioned, inputs, outputs, wrong, rtol):
    """Find out what makes the difference of outputs; return a kind and a text.

    What stays on TVM is not ours: TVM sums bfloat16 in bfloat16, for example. And an
    error that a partition may make becomes any other one in what TVM makes of it. So each partition
    is judged alone, on what TVM handed to it in this very run, and the graph of partitions on
    whether it is another way to write the graph. Where numpy cannot tell, the outputs are judged.
    """
    seams = Seams(mod, partitioned, inputs)
    reason = seams.why_unlike(outputs, rtol)
    if reason is not None:
        is_ill = comparing.is_arithmetic(mod, inputs, outputs, list(wrong), rtol)
        return ILL if is_ill else DIFFERENT, reason
    kind, texts = APART, []
    for partition in seams.partitions:
        reference = evaluate(partition.mod, partition.inputs)
        own = comparing.allowed(partition.mod, partition.depth)
        differing = comparing.wrong_outputs(partition.outputs, reference, own)
        if not differing:
            continue
        texts.append(f"{partition.name}: {comparing.describe(differing, own)}")
        ran = partition.mod, partition.inputs, partition.outputs
        if not comparing.is_arithmetic(*ran, list(differing), own):
            return DIFFERENT, texts[-1]
        kind = ILL
    return kind, "\n".join(texts)


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
    # Named, a type that the CPU is slow in is used, too.
    precision = real if comparing.is_reduced(mod) and cpu.computes(real) else "float32"
    return judge_module(mod, inputs_of(mod), max(graph.depth, 1), prune, against_tvm, precision)


def replay(text):
    """Run the module of a Relay text; the values of its inputs come of their names."""
    mod = relay.transform.InferType()(relay.fromtext(text))
    return judge_module(mod, inputs_of(mod))


def _end(error):
    """Return the last lines of a message that say something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return "\n".join(lines[-4:])
