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
"""The types of what recurrent layers compute."""

from __future__ import annotations

from functools import partial

from ..ir.op_view import Tensor
from .recurrent import DIRECTIONS, GATES, state_operands, states_of


def _layer(name, args, attrs):
    data, recurrent_weight = args[0], args[2]
    count, hidden = DIRECTIONS[attrs.direction], recurrent_weight.dims[-1]
    batch = data.dims[0 if attrs.batch_first else 1]
    y = Tensor((*data.dims[:2], count * hidden), data.dtype)
    # The last states have the types of the initial ones, zeros that of the data.
    dtypes = [arg.dtype for arg in state_operands(name, attrs, args)]
    dtypes = dtypes or [data.dtype] * states_of(name)
    return (y, *(Tensor((count, batch, hidden), dtype) for dtype in dtypes))


INFERENCES = {name: partial(_layer, name) for name in GATES}
