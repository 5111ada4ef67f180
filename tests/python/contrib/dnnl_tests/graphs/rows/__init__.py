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
"""The ops that graphs are drawn from.

A unary op without attributes needs no row of its own, unless it should read others than positive
values.
"""

from tvm.contrib.onednn.ops.table import PLAIN

from . import binary, conv, eltwise, matmul, norm, pool, recurrent, view

_FAMILIES = (conv, matmul, recurrent, pool, norm, eltwise, binary, view)

ROWS = {row.name: row for family in _FAMILIES for row in family.ROWS}
for _name in PLAIN:
    if not _name.startswith("dnnl."):
        ROWS.setdefault(_name, eltwise.of_positive(_name))
