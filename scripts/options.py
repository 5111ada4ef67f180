# SPDX-License-Identifier: Apache-2.0
"""Options that several commands share, and the types of their values.

What parses the command line runs on any Python, before the environment is there: only the standard
library is imported here, and at the top of the modules that add arguments.
"""

import argparse
import math
import os
import sys

from scripts.errors import SetupError

# A quantized model is another file, with unsigned or signed activations; the others are what
# partition_for_dnnl makes of a float32 model.
INT8 = ("int8", "int8-s8")
PRECISIONS = ("float32", "bfloat16", "float16", *INT8)
# Of a language model: int8 quantizes data as the model runs; the last two have only their weights
# in few bits, with a scale for each block.
TEXT_PRECISIONS = ("float32", "bfloat16", INT8[0], "int8-weights", "int4-weights")
PICTURES = (".png", ".svg", ".pdf")


def shared():
    """Return the parser of the options that go before the command or after it."""
    # A default would overwrite what stands before the command.
    parser = argparse.ArgumentParser(
        add_help=False, allow_abbrev=False, argument_default=argparse.SUPPRESS
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print the commands instead of running them"
    )
    parser.add_argument(
        "--no-build", action="store_true", help="do not compile: use libtvm_dnnl.so as it is"
    )
    return parser


def count(text):
    """Parse a number that must be positive."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a positive number, not {text!r}")
    return int(text)


def whole(text):
    """Parse a number that must not be negative."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be a whole number from 0 on, not {text!r}")
    return int(text)


def number(least, most):
    """Return a parser of numbers from `least` to `most`, which may be None."""
    limits = f"of {least} or more" if most is None else f"from {least} to {most}"

    def parse(text):
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        # Neither is true of NaN.
        if not (value >= least and value <= (math.inf if most is None else most)):
            raise argparse.ArgumentTypeError(f"must be a number {limits}, not {text!r}")
        return value

    return parse


def names(text):
    """Parse names that are separated by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def some_of(known, what):
    """Return a parser of names separated by commas, which returns them in the order of `known`.

    `what` they name is for the message about another one.
    """

    def parse(text):
        chosen = names(text)
        for name in chosen:
            if name not in known:
                raise argparse.ArgumentTypeError(
                    f"no {what} {name!r}; there are {', '.join(known)}"
                )
        if not chosen:
            raise argparse.ArgumentTypeError(f"name at least one of {', '.join(known)}")
        return [name for name in known if name in chosen]

    return parse


def writable(path):
    """Parse the path of an output file, which must be writable; a file that is new is not left."""
    is_new = not os.path.exists(path)
    try:
        with open(path, "a", encoding="utf-8"):
            pass
    except OSError as error:
        raise argparse.ArgumentTypeError(f"cannot write {path}: {error.strerror}") from error
    if is_new:
        os.unlink(os.path.realpath(path))
    return path


def picture(path):
    """Parse the path of a plot, whose suffix is its format."""
    if not path.endswith(PICTURES):
        raise argparse.ArgumentTypeError(f"{path} must end in {', '.join(PICTURES)}")
    return writable(path)


def cpus():
    """Return how many CPUs this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def shape(text):
    """Parse NAME=1,3,224,224, or with an x between the sizes."""
    name, _, sizes = text.rpartition("=")
    try:
        dims = tuple(int(size) for size in sizes.replace("x", ",").split(","))
    except ValueError:
        dims = ()
    if not name or not dims or min(dims) < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not like NAME=1,3,224,224")
    return name, dims


def add_shape(parser):
    """Add the option of the commands that read an ONNX file."""
    parser.add_argument(
        "--shape",
        metavar="NAME=1,3,224,224",
        type=shape,
        action="append",
        default=[],
        help="of an input that has no fixed one, or NAME=1 of a named dimension; may be repeated",
    )


def is_onnx(path):
    """Return whether a file is taken for an ONNX model, from its name."""
    return not path.endswith((".tflite", ".pt2"))


def add_tree(parser, check, required=True):
    """Add what the commands about a TVM source tree share; `check` tells what --check does."""
    parser.add_argument("--tvm", metavar="DIR", required=required, help="the TVM source tree")
    parser.add_argument(
        "--check",
        dest="dry_run",
        action="store_true",
        default=argparse.SUPPRESS,
        help=f"as --dry-run: {check}",
    )


def add_newer(parser):
    """Add the option of the commands that can run on the newer oneDNN."""
    parser.add_argument(
        "--onednn-newer",
        action="store_true",
        help="run on the newer oneDNN of requirements/wheel-onednn-newer.txt (a download of 190 "
        "MB) in the place of the one that the backend was compiled with",
    )


def add_precision(parser):
    """Add the option of the commands that partition a model, which quantize nothing."""
    names = [each for each in PRECISIONS if each not in INT8]
    parser.add_argument(
        "--precision",
        choices=names,
        default=names[0],
        help="what float32 convolutions and matmuls compute in (default: float32)",
    )


def add_relax(parser, what):
    """Add the option of the commands that know the plug-in; `what` is what they do then."""
    parser.add_argument("--relax", action="store_true", help=what)


def add_cache(parser):
    """Add the option of the commands that compile models, which it spares the second time."""
    parser.add_argument(
        "--cache",
        metavar="DIR",
        help="keep the compiled models there, and take them from there where nothing has changed",
    )


def add_measurement(parser, repeat):
    """Add what the commands that measure share; `repeat` is the default of --repeat."""
    add_runs(parser, repeat)
    parser.add_argument(
        "--json", type=writable, metavar="FILE", help="write the figures to FILE too"
    )
    parser.add_argument(
        "--plot", type=picture, metavar="FILE", help=f"draw them: {', '.join(PICTURES)}"
    )


def add_runs(parser, repeat):
    """Add how often something is run, and on how many threads."""
    parser.add_argument(
        "--repeat",
        type=count,
        default=repeat,
        metavar="N",
        help=f"runs of each (default: {repeat})",
    )
    parser.add_argument(
        "--threads",
        type=count,
        default=cpus(),
        metavar="N",
        help=f"threads of one run (default: the CPUs, here {cpus()})",
    )


def choose(option, text, rows):
    """Return the rows that a comma-separated option names; all of them if it is empty."""
    chosen = names(text)
    for name in chosen:
        if name not in rows:
            raise SetupError(f"--{option}: there is no {name!r}", f"there are {', '.join(rows)}.")
    return [row for name, row in rows.items() if not chosen or name in chosen]


def limit_threads(threads):
    """Set the number of threads. Thread pools read this when their libraries are loaded."""
    if "tvm" in sys.modules:
        raise RuntimeError("threads must be set before tvm is imported")
    for variable in ("OMP_NUM_THREADS", "TVM_NUM_THREADS"):
        os.environ[variable] = str(threads)
