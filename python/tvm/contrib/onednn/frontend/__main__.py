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
"""Prepares an ONNX file for programs that read it with TVM's importer, such as `tvmc compile`."""

from __future__ import annotations

import argparse

import onnx

from .prepare import Shape, load, prepare, shapes_by_name


def _shape(text: str) -> tuple[str, Shape]:
    """Parse NAME=1,3,48,width, or NAME=1 for a named dimension."""
    name, _, sizes = text.rpartition("=")
    dims = [int(each) if each.isdecimal() else each for each in sizes.split(",")]
    if not name or "" in dims:
        raise argparse.ArgumentTypeError(f"{text!r} is not like NAME=1,3,48,width")
    return name, dims


def main(words: list[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser("python -m tvm.contrib.onednn.frontend", description=__doc__)
    parser.add_argument("model", help="the ONNX file")
    parser.add_argument("prepared", help="the file to write")
    parser.add_argument(
        "--shape",
        type=_shape,
        action="append",
        default=[],
        metavar="NAME=1,3,48,width",
        help="of an input, where a name leaves a dimension open, or NAME=1 of a named dimension; "
        "may be repeated",
    )
    args = parser.parse_args(words)
    try:
        model = load(args.model)
        onnx.save(prepare(model, shapes_by_name(model, args.shape)), args.prepared)
    except (OSError, ValueError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
