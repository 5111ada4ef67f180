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

An op of the table needs a row of its own only if it reads several tensors of the graph; of the
others, the schema draws the attributes and parameters.
"""

from tvm.contrib.onednn.ops.table import TABLE

from . import binary, composites, drawn, eltwise, joins, matmul, recurrent

_FAMILIES = (composites, matmul, recurrent, eltwise, binary, joins)

ROWS = {row.name: row for family in _FAMILIES for row in family.ROWS}
for _name in TABLE:
    if not _name.startswith(("dnnl.", "qnn.")):
        ROWS.setdefault(_name, drawn.row(_name))
