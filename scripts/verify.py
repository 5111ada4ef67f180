# SPDX-License-Identifier: Apache-2.0
"""Compares each op of a compiled model with onnxruntime, onnx's reference or numpy.

The model is compiled with its intermediate results as results. Each op is compared for the operands
that the compiled model computed, so errors do not accumulate; the accumulated error is beside it.
"""

from pathlib import Path

from scripts import options
from scripts.console import Console, passes_noted
from scripts.errors import SetupError
from scripts.onnx_model import OnnxModel, relax_module
from scripts.report import facts, write


def add_arguments(parser):
    """Add the command's options."""
    parser.add_argument(
        "model", metavar="MODEL", help="an ONNX file; or a .tflite or .pt2 file, by Relax"
    )
    parser.add_argument("--html", metavar="FILE", help="write the page of the report with errors")
    parser.add_argument("--json", metavar="FILE", help="write the errors of all ops")
    parser.add_argument(
        "--inputs", metavar="FILE.npz", help="the inputs by name; others are drawn (default: all)"
    )
    parser.add_argument(
        "--reference",
        choices=("source", "numpy"),
        default="source",
        help="compare with onnxruntime or onnx's reference evaluator, or with the numpy definition "
        "of each op that the model is imported to, in float64 (default: source)",
    )
    options.add_shape(parser)
    options.add_precision(parser)
    options.add_relax(parser, "of TVM's Relax, by the plug-in for Relax")


def read_inputs(path):
    """Return the arrays of a file by name."""
    import numpy as np

    try:
        with np.load(path) as arrays:
            return dict(arrays)
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise SetupError(f"cannot read {path}: {error}", "write it with numpy.savez.") from error


def main(args):
    """Print and write the errors; return 1 if one is larger than rounding explains."""
    if args.relax:
        import tvm_dnnl as dnnl
    else:
        from tvm.relay.op.contrib import dnnl
    is_other = not options.is_onnx(args.model)
    model = None if is_other else OnnxModel(args.model, args.shape)
    inputs = read_inputs(args.inputs) if args.inputs else None
    with Console().step(f"{Path(args.model).name}: verify"), passes_noted():
        try:
            how = dict(precision=args.precision, prune=False)
            if is_other:
                given, how["shape"] = args.model, dict(args.shape) or None
            else:
                given, how["reference"] = model.proto, args.reference
            result = dnnl.verify(given, inputs, **how)
        except (TypeError, ValueError) as error:
            raise SetupError(str(error)) from error
    print(result)
    if args.json:
        write(args.json, result.to_json() + "\n")
    if args.html:
        is_relax = args.relax
        mod, params = (relax_module(args.model, args.shape), None) if is_relax else model.to_relay()
        mod = dnnl.partition_for_dnnl(mod, params, precision=args.precision)
        title = f"{Path(args.model).name}: errors on oneDNN"
        report, shown = dnnl.offload_report(mod), facts(dnnl, None, args.precision)
        write(args.html, report.to_html(title, shown, errors=result.page_rows()))
    return 1 if result.wrong else 0
