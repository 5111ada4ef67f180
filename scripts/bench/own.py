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
"""A model of the user's own as a row of the benchmark."""

import dataclasses
from pathlib import Path

from dnnl_tests.models import workloads

from scripts.onnx_model import OnnxModel


@dataclasses.dataclass(frozen=True)
class OwnFile(workloads.Workload):
    """An ONNX file, with any number of inputs.

    Attributes
    ----------
    model : OnnxModel
        The file.
    """

    model: OnnxModel = None

    def inputs(self, seed=0):
        """Return random inputs."""
        return self.model.example(seed)


def workload(path, shapes):
    """Make a row of an ONNX file and shapes of inputs by name."""
    model = OnnxModel(path, shapes)
    (name, value), *_ = model.example().items()
    return OwnFile(
        name=str(path),
        title=Path(path).name,
        load=model.to_relay,
        input_name=name,
        shape=value.shape,
        onnx_path=lambda: path,
        has_classes=False,
        model=model,
    )
