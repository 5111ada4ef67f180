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
"""The error of each op of an ONNX model that is compiled with Relay."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tvm.contrib.onednn import progress
from tvm.contrib.onednn.frontend import prepare
from tvm.contrib.onednn.options import precision_of
from tvm.contrib.onednn.verify.check import CannotRun
from tvm.contrib.onednn.verify.onnx_source import OnnxSource
from tvm.contrib.onednn.verify.table import Verification, errors


def verify(
    model,
    inputs: Mapping | None = None,
    *,
    shape: Mapping | None = None,
    constants: Mapping[str, object] | None = None,
    target=None,
    **options,
) -> Verification:
    """Compare each op of a compiled ONNX model with onnxruntime, or onnx's reference evaluator.

    The model is compiled with its intermediate results as results, so little is fused. Each op is
    compared for the operands that the compiled model computed, and with its accumulated error.

    Parameters
    ----------
    model : str | os.PathLike | onnx.ModelProto
        The model or its file.
    inputs : Mapping[str, numpy.ndarray] | None
        Inputs by name. Those without a value are drawn.
    shape, constants, target, options
        As for `compile`.

    Returns
    -------
    verification : Verification
        The errors of all ops. Its text is a table of the largest.

    Raises
    ------
    TypeError, ValueError
        As for `compile`; or the model cannot be run.
    """
    from ... import dnnl

    def run(part, precision, arrays):
        values, given = {}, {**options, "precision": precision}
        for value, array in zip(prepare.inputs(part), arrays):
            # TVM's importer may replace dots.
            values[value.name] = values[re.sub(r"\W", "_", value.name)] = array
        compiled = dnnl.compile(part, target=target, **given)
        # Inputs that nothing reads are no parameters.
        results = compiled(**{name: values[name] for name in compiled.input_names})
        return list(results) if isinstance(results, tuple) else [results]

    with progress.step("verify"):
        try:
            source = OnnxSource(prepare.with_inputs(model, shape, constants), run, inputs)
            return errors(source, precision_of(options.get("precision")), progress.note)
        except CannotRun as error:
            raise ValueError(f"the model cannot be verified: {error}") from error
