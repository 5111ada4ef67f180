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
"""The converters for ops of PyTorch that TVM's importer has none for, or a wrong one."""

from __future__ import annotations

from . import attention, recurrent, views

#: Files of this folder. Each has `CONVERTERS`, a dict from the op to its converter.
_FAMILIES = attention, views


def convert_map(values: dict):
    """Return the converters, for the argument `custom_convert_map` of TVM's importer.

    Parameters
    ----------
    values : dict[torch.fx.Node, torch.Tensor]
        The values of the constants of the program.
    """
    converters = {name: each for family in _FAMILIES for name, each in family.CONVERTERS.items()}
    return {**converters, **recurrent.converters(values)}
