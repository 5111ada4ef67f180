# SPDX-License-Identifier: Apache-2.0
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
