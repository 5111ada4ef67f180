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
"""ONNX's Squeeze of open sizes."""

from __future__ import annotations

from tvm import tirx
from tvm.relax.frontend.onnx import onnx_frontend


class Squeeze(onnx_frontend.Squeeze):
    """Convert Squeeze of sizes that are known to be 1; TVM 0.26 does not check them."""

    @classmethod
    def _squeeze(cls, bb, data, axis):
        shape = getattr(data.ty, "shape", None) if isinstance(axis, (tuple, list)) else None
        for each in axis if shape is not None else ():
            if not isinstance(shape[each], tirx.IntImm):
                raise ValueError(f"Squeeze of axis {each}, whose size is open")
        return super()._squeeze(bb, data, axis)


REPLACEMENTS = {"Squeeze": Squeeze}
