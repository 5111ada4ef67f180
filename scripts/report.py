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
"""Tells what of an ONNX model runs on oneDNN, fused as what, and why the rest does not.

It is told as a table, and on request as a page with the graph drawn, or as JSON.
"""

from pathlib import Path

from scripts import options
from scripts.console import Console
from scripts.errors import SetupError
from scripts.files import write_atomically
from scripts.onnx_model import OnnxModel


def add_arguments(parser):
    """Add the command's options."""
    parser.add_argument("model", metavar="MODEL.onnx")
    parser.add_argument("--html", metavar="FILE", help="write a page with the graph drawn")
    parser.add_argument("--json", metavar="FILE", help="write all numbers and ops")
    options.add_shape(parser)
    parser.add_argument(
        "--exclude",
        metavar="A,B",
        default="",
        help="Relay ops and composites that stay on TVM",
    )
    parser.add_argument(
        "--no-prune", action="store_true", help="keep partitions that are too small to be faster"
    )
    options.add_relax(parser, "of TVM's Relax, by the plug-in for Relax")


def load(args, console):
    """Import the model into Relay, or Relax; say which inputs need a shape.

    Returns
    -------
    mod, params : tuple[tvm.IRModule, dict]
        The module, and what is not in it yet.
    """
    model = OnnxModel(args.model, args.shape)
    if args.relax:
        # Relax keeps what is open under a name of its own.
        return model.to_relax(), None
    for name, advice in model.open_inputs():
        console.say(f"input {name} has no fixed shape, so little can run on oneDNN: give {advice}")
    import tvm

    # So that the importer notes the names of the file's nodes.
    with tvm.transform.PassContext(config={"relay.frontend.fill_span": True}):
        return model.to_relay()


def write(path, text):
    """Write a file that the user named."""
    try:
        write_atomically(path, text)
    except OSError as error:
        raise SetupError(f"cannot write {path}: {error.strerror}", "name another file.") from error


def main(args):
    """Print and write the report; return the exit code."""
    # After the arguments are parsed: this imports tvm.
    if args.relax:
        import tvm_dnnl as dnnl
    else:
        from tvm.relay.op.contrib import dnnl
    from scripts.passes import shown

    exclude = [name for name in args.exclude.split(",") if name]
    console = Console()
    # The name alone: there is to be room for what it does now.
    with console.step(f"{Path(args.model).name}: partition for oneDNN"):
        console.note("import")
        mod, params = load(args, console)
        try:
            with shown(console):
                mod = dnnl.partition_for_dnnl(mod, params, prune=not args.no_prune, exclude=exclude)
        except ValueError as error:
            raise SetupError(str(error)) from error
        report = dnnl.offload_report(mod)
        report.next_step = ""
    print(report)
    if args.json:
        write(args.json, report.to_json() + "\n")
    if args.html:
        write(args.html, report.to_html(f"{Path(args.model).name} on oneDNN"))
    return 0
