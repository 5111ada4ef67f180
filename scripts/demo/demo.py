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
"""Runs real models on oneDNN through TVM.

It prints how much of them ran there, how fast, how far the results are from those of TVM without
DNNL and of onnxruntime, and the text that was read.
"""

import sys

from scripts import options
from scripts.console import Console
from scripts.errors import SetupError

# Always in this order: the angle of the line decides how the recogniser sees it.
MODELS = ("mobilenet", "cls", "rec")
TEXT = "Reading text with oneDNN 3"


def add_arguments(parser):
    """Add the command's options."""
    line = parser.add_mutually_exclusive_group()
    line.add_argument("--image", metavar="FILE", help="read this image of a line of text")
    line.add_argument("--text", help=f"draw and read this line (default: {TEXT!r})")
    parser.add_argument("--font", metavar="FILE", help="draw --text with this TrueType font")
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
    parser.add_argument(
        "--report", action="store_true", help="tell op by op what runs on oneDNN, and why not"
    )
    files = parser.add_mutually_exclusive_group()
    files.add_argument("--save", metavar="DIR", help="export the compiled libraries to DIR")
    files.add_argument("--load", metavar="DIR", help="run what was saved in DIR, compile nothing")


def main(args):
    """Run the demo; return the exit code."""
    if args.load and args.report:
        raise SetupError(
            "--report needs the models; it cannot be used with --load", "leave it out."
        )
    if args.font and args.text is None:
        raise SetupError("--font is for --text", "give the text, too.")
    if args.text is None and args.image is None and not args.load:
        args.text = TEXT
    # These import tvm.
    from tvm.relay.op.contrib import dnnl

    from scripts.demo import show

    if not dnnl.is_dnnl_available():
        raise SetupError(
            "this TVM has no DNNL code generator",
            "run the demo as `./dev.py demo`; with TVM_HOME, build that TVM with the patch set.",
        )
    console = Console()
    run = show.load_and_run if args.load else show.compile_and_run
    problems = run(args, console)
    for problem in problems:
        print(f"FAILED: {problem}", file=sys.stderr)
    return 1 if problems else 0
