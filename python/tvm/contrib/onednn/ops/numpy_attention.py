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
"""The definition of attention in numpy."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np


def attention(attrs, result_type, query, key, value, *mask):
    """Compute softmax(scale * query * key^T + mask) * value.

    Parameters
    ----------
    attrs : SimpleNamespace
        scale, causal and softmax, the op that the scores go through.
    query : np.ndarray
        (..., heads, queries, width).
    key, value : np.ndarray
        (..., groups, keys, width or value width), where groups divide the heads.
    mask : np.ndarray
        At most two, which are broadcast to (..., heads, queries, keys).
    """
    # They are those of this module's users.
    from .numpy_norms import DEFINITIONS

    count = query.shape[-3] // key.shape[-3]
    key, value = (np.repeat(each, count, -3) for each in (key, value))
    scores = query @ np.swapaxes(key, -1, -2) * attrs.scale
    for each in mask:
        scores = scores + each
    if attrs.causal:
        rows, columns = scores.shape[-2:]
        seen = np.tri(rows, columns, columns - rows, dtype=bool)
        scores = np.where(seen, scores, -np.inf)
    softmax = DEFINITIONS[attrs.softmax]
    return softmax(SimpleNamespace(axis=-1), None, scores) @ value
