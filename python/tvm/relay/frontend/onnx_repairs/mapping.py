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
"""The module `onnx.mapping`, which onnx >= 1.19 lacks and TVM's importer reads."""

from __future__ import annotations

import importlib.util
import pathlib
import sys
import types


class _Mapping(types.ModuleType):
    """Computes the types of tensors when they are read, as this requires the package onnx."""

    def __getattr__(self, name):
        if name != "TENSOR_TYPE_TO_NP_TYPE":
            raise AttributeError(name)
        import onnx  # pylint: disable=import-outside-toplevel

        kinds = set(onnx.TensorProto.DataType.values()) - {onnx.TensorProto.UNDEFINED}
        table = {kind: onnx.helper.tensor_dtype_to_np_dtype(kind) for kind in kinds}
        self.TENSOR_TYPE_TO_NP_TYPE = table  # pylint: disable=invalid-name
        return table


def provide_mapping():
    """Let `onnx.mapping` be imported, without importing the package onnx."""
    package = importlib.util.find_spec("onnx")
    folders = package.submodule_search_locations if package else None
    if folders and not any((pathlib.Path(each) / "mapping.py").exists() for each in folders):
        sys.modules.setdefault("onnx.mapping", _Mapping("onnx.mapping"))
