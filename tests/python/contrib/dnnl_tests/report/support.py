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
"""The table of what oneDNN runs, read off the rows of the policy and found by asking its rules."""

import collections
import inspect
import itertools
import re
from types import SimpleNamespace
from unittest import mock

import numpy as np
import tvm
from tvm import relay
from tvm.contrib.onednn import cpu
from tvm.contrib.onednn.ir.op_view import OpView, Tensor
from tvm.contrib.onednn.ops.recurrent import GATES, states_of
from tvm.contrib.onednn.ops.table import TABLE
from tvm.contrib.onednn.rewrites.qnn_sums import ACCUMULATING
from tvm.contrib.onednn.rewrites.read_qnn import READERS
from tvm.relay.op.contrib import dnnl
from tvm.relay.op.contrib._dnnl.ir.relay_view import view_of
from tvm.relay.op.contrib._dnnl.partition import pattern_table

from dnnl_tests import graphs as random_graphs
from dnnl_tests.graphs.calls import alone, call_of, drawn, function
from dnnl_tests.graphs.draw import Unfit
from dnnl_tests.graphs.row import op

DTYPES = ("float32", "bfloat16", "float16", "float64", "int32", "int8", "uint8")
SEEDS = range(10)
# So many of the calls that are accepted are asked about other types than float32.
FEW = 2
READY = "can be offloaded; the module is not partitioned"
# The attributes that are layouts, and which operand has the layout.
LAYOUTS = {"data_layout": 0, "kernel_layout": 1, "layout": 0}

_LAYER = dict(direction="forward", batch_first=False, has_initial_state=False)
# The operands and attributes of virtual ops that have more than data of shape (2, 3). A shape is an
# operand of the type that is asked about; those after the first are constant.
OPERANDS = {
    "dnnl.attention": ([(2, 4, 3)] * 3, {"scale": 1.0, "causal": False, "softmax": "nn.softmax"}),
    "dnnl.block_quantized_dense": (
        [(2, 3), np.zeros((4, 16), "uint8"), np.ones((4, 1), "float32")],
        {"bits": 4, "block_size": 32},
    ),
    "dnnl.dynamic_quantized_dense": (
        [(2, 3), np.zeros((4, 3), "int8"), np.ones((), "float32"), np.zeros((), "int32")],
        {},
    ),
    "dnnl.expert_dense": ([(2, 3), (4, 5, 3), np.ones((2, 4, 1), "bool")], {}),
    **{
        name: (
            [(3, 2, 4), (1, 5 * gates, 4), (1, 5 * gates, 5), np.zeros((1, 5 * gates), "float32")],
            {**_LAYER, "linear_before_reset": False, "activation": "tanh"},
        )
        for name, gates in GATES.items()
    },
}

HEAD = """# What runs on oneDNN

Which ops of *your* model run on oneDNN is in its offload report, with a reason for each that does
not: `print(model.report)` in Python, or, for an ONNX file,

```sh
./dev.py report model.onnx            # as imported by Relay
./dev.py report model.onnx --relax    # as imported by Relax; also .tflite and .pt2 files
```

This page lists what is possible. An op that has no row stays on TVM. An op that has one stays on
TVM, too, if

- its data type is not in the row. `bfloat16` and `float16` also require a CPU that supports them;
- a tensor is empty, or its size is [open](open_dimensions.md#what-is-offloaded) and oneDNN must
  know it;
- an attribute is one of those in [Reasons for a refusal](#reasons-for-a-refusal);
- the partition would be [too small to be
  faster](trouble_shooting.md#nothing-or-less-than-expected-runs-on-onednn).

| column | meaning |
| --- | --- |
| op | the name in Relay. `dnnl.` at the beginning marks a pattern of several ops, as exporters \
write them, and, at the end of the table, a fused composite |
| types | the data types |
| 8 bits | the operands that may be `uint8` or `int8`: a dequantize before the op is fused into \
it, and so is a quantize after it |
| layouts | the layouts of data and weight, if the op has such an attribute |
| fuses | what is fused after the op if nothing else reads the result in between. `eltwise` and \
`binary` are the ops with that entry in the next column |
| fused as | what the op is when it is fused after another |
| Relax | the ops of [Relax](relax.md) that are read as this one. Empty: Relax has no such op, \
or writes it as several, which are read together |

## Ops
"""

LAST = """\
`./dev.py ops --write` generates this page by asking the rules of the backend about random calls of
each op; `--run` also runs these calls and compares the results. A test fails if the page is out of
date.
"""

REFUSED_HEAD = """## Reasons for a refusal

The reasons for calls in float32, with `n` in place of numbers. The report of a model has the
numbers.
"""

# What rows say of the operands in 8 bits, for people.
IN_8_BITS = {
    None: "",
    "constant weight": "data and a constant weight",
    "weight": "data and weight",
    "operands": "all operands",
    "data": "data, if a quantize follows",
}

QNN_HEAD = """## QNN ops

These are read as [float ops between dequantize and quantize](how_it_works.md#quantized-models) if
oneDNN can run the result; `offload_report` lists the QNN ops of a model that stay on TVM.
"""

ALWAYS_HEAD = """## Not supported

Ops of Relay that never run on oneDNN on their own:
"""


def _texts(values):
    return ", ".join(f"`{value}`" for value in values)


def _call(name, seed, dtype):
    """Return a typed call of an op that the schema draws; None where Relay refuses it."""
    try:
        call = call_of(function(*alone(drawn(name, seed, dtype, edges=False))))
    # Some ops take some types only.
    except (tvm.TVMError, TypeError, ValueError):
        return None
    # Relay writes matmuls of rank 4 as others.
    return call if call.op.name == name else None


def graphs(name):
    """Return graphs of one step of a row."""
    drawn = []
    for seed in SEEDS:
        try:
            drawn.append(random_graphs.single(seed, random_graphs.ROWS[name], random_graphs.ROWS))
        except Unfit:
            continue
    return drawn


def template(reason):
    """Return a reason without its numbers and axes."""
    reason = re.sub(r"\([-\d?, ]*\)", "(...)", reason)
    reason = re.sub(r"\[[-\d, ]*\]", "[...]", reason)
    reason = re.sub(r"(?<![\w.])-?\d+(\.\d+)?(?![\w.]|-D)", "n", reason)
    return re.sub(r"\b[DHW]=", "", re.sub(r"\balong [DHW]\b", "along an axis", reason))


def _reasons(mod, name):
    """Return what the policy says about the calls of an op in a module."""
    return set(dnnl.offload_report(mod).reasons.get(name, {}))


def _in_layout(call, key, layout):
    """Return a module of the same call with another layout of one operand."""
    function = op(call.op.name)
    names = [name for name in inspect.signature(function).parameters if hasattr(call.attrs, name)]
    attrs = {name: getattr(call.attrs, name) for name in names}
    # Some of Relay's functions take a tuple, but no array.
    attrs.update({name: tuple(x) for name, x in attrs.items() if isinstance(x, tvm.ir.Array)})
    letters, place = str(attrs[key]), LAYOUTS[key]
    shapes = [[int(dim) for dim in arg.checked_type.shape] for arg in call.args]
    shapes[place] = [shapes[place][letters.index(letter)] for letter in layout]
    args = [relay.var(f"x{i}", shape=shape) for i, shape in enumerate(shapes)]
    expr = function(*args, **{**attrs, key: layout})
    return relay.transform.InferType()(tvm.IRModule.from_expr(expr))


def layouts(call):
    """Return a text of the layouts that the policy accepts in the place of a call's own."""
    texts = []
    for key in LAYOUTS:
        if not hasattr(call.attrs, key):
            continue
        orders = ["".join(order) for order in itertools.permutations(getattr(call.attrs, key))]
        accepted = []
        for layout in orders:
            try:
                mod = _in_layout(call, key, layout)
            # Relay itself has no type for some.
            except Exception:  # pylint: disable=broad-except
                continue
            if READY in _reasons(mod, call.op.name):
                accepted.append(layout)
        usual = next(attr.default for attr in TABLE[call.op.name].attrs if attr.name == key)
        is_any = len(accepted) == len(orders)
        texts.append(f"any order of `{usual}`" if is_any else _texts(sorted(accepted)))
    return "; ".join(texts)


class Support:
    """What the rules of an op, virtual or not, accept.

    An op is asked about calls that are drawn at random, in float32. The first few that are
    accepted are asked about again in each other type, with the same shapes and attributes.
    """

    def __init__(self, spec):
        self.spec, self.name = spec, spec.name
        self.dtypes, self.refused, self.accepted = set(), set(), None
        if self.name.startswith("qnn."):
            self.dtypes = {dtype for dtype in DTYPES if self._accepts_quantized(dtype)}
            return
        if self.name.startswith("dnnl."):
            self.dtypes = {dtype for dtype in DTYPES if self._accepts_virtual(dtype)}
            return
        ready = []
        for seed in SEEDS:
            reason = self._reason(seed, DTYPES[0])
            if reason is None:
                ready.append(seed)
            elif reason:
                self.refused.add(template(reason))
        for dtype in DTYPES:
            if any(self._reason(seed, dtype) is None for seed in ready[:FEW]):
                self.dtypes.add(dtype)
        if ready:
            self.accepted = _call(self.name, ready[0], DTYPES[0])

    def _accepts_quantized(self, dtype):
        """Whether the rule of a quantize or a dequantize accepts data of a type."""
        data = relay.var("data", shape=(2, 3), dtype=dtype)
        call = op(self.name.replace("qnn.", "qnn.op."))(data, relay.const(1.0), relay.const(0))
        try:
            mod = relay.transform.InferType()(tvm.IRModule.from_expr(call))
        # Relay itself has these for some types only.
        except tvm.TVMError:
            return False
        return self.spec.reason(view_of(mod["main"].body)) is None

    def _accepts_virtual(self, dtype):
        """Whether the rule of a virtual op accepts an operand of a type."""
        given, attrs = OPERANDS.get(self.name, ([(2, 3)], {}))
        operands = []
        for each in given:
            if isinstance(each, tuple):
                value = np.ones(each, "float32") if operands else None
                operands.append(Tensor(each, dtype, value))
            else:
                operands.append(Tensor(each.shape, str(each.dtype), each))
        results = operands[:1] * (1 + states_of(self.name) if self.name in GATES else 1)
        view = OpView(self.name, operands, tuple(results), SimpleNamespace(**attrs))
        return self.spec.reason(view) is None

    def _reason(self, seed, dtype):
        """Return what the rule says of a call: None if it accepts it, "" if Relay refuses it."""
        call = _call(self.name, seed, dtype)
        return "" if call is None else self.spec.reason(view_of(call))

    @property
    def layouts(self):
        """The layouts that are accepted, as a text."""
        return "" if self.accepted is None else layouts(self.accepted)


def _row(support):
    """Return the cells of an op."""
    spec = support.spec
    return [
        f"`{spec.name}`",
        _texts(dtype for dtype in DTYPES if dtype in support.dtypes),
        IN_8_BITS[spec.reads_int8],
        support.layouts,
        ", ".join(spec.fuses),
        spec.post or "",
        _texts(spec.relax_ops),
    ]


def _composite_row(name, root):
    """Return the cells of a composite, whose operands are those of its root."""
    dtypes = _texts(dtype for dtype in DTYPES if dtype in root.dtypes)
    return [f"`{name}`", dtypes, "", f"as `{root.name}`", "", "a whole composite", ""]


def _table(titles, rows):
    lines = [titles, ["---"] * len(titles), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _by_reason(reasons):
    """Return rows of a reason and the ops that it is given for, of pairs of op and reason."""
    names = collections.defaultdict(list)
    for name, reason in reasons:
        names[reason].append(name)
    return [[reason, _texts(ops)] for reason, ops in sorted(names.items())]


def text():
    """Return the text of the file, which is the same on every CPU."""
    with mock.patch.object(cpu, "computes", lambda dtype: dtype in cpu.REAL):
        return _text()


def _text():
    supports = {name: Support(spec) for name, spec in TABLE.items()}
    rows = [_row(support) for support in supports.values()]
    for name, ((root,), *_) in pattern_table.composites(TABLE).items():
        rows.append(_composite_row(name, supports[root]))
    reasons = [(name, reason) for name, support in supports.items() for reason in support.refused]
    parts = [
        HEAD,
        _table(["op", "types", "8 bits", "layouts", "fuses", "fused as", "Relax"], rows),
        REFUSED_HEAD,
        _table(["reason", "ops"], _by_reason(reasons)),
        QNN_HEAD,
        _table(["kind", "ops"], [[kind, _texts(ops)] for kind, ops in qnn_ops().items()]),
        ALWAYS_HEAD,
        _table(["reason", "ops"], _by_reason(sorted(without_row().items()))),
        LAST,
    ]
    return "\n".join(parts)


def qnn_ops():
    """Return the QNN ops that have no row and are read as others, by kind."""
    # pylint: disable=protected-access
    kinds = {
        "int32 accumulation, with the requantize, dequantize or cast that follows": ACCUMULATING,
        "others": READERS,
    }
    # The reader names some by those of the float ops, which need not be there.
    known = {name for name in tvm.ir.Op.list_op_names() if name.startswith("qnn.")} - {*TABLE}
    return {kind: sorted(known.intersection(readers)) for kind, readers in kinds.items()}


def without_row():
    """Return why ops have no row, by op."""
    from tvm.contrib.onednn.ops import others  # pylint: disable=import-outside-toplevel

    return others.REFUSED


def names():
    """Return the names of all rows and composites."""
    return [*TABLE, *pattern_table.composites(TABLE)]


def run(progress=None):
    """Run calls of each row on oneDNN and compare; return what is wrong, by row."""
    wrong = {}
    for name in names():
        if progress:
            progress(name)
        if name.startswith("qnn."):
            # Random quantized graphs run these.
            continue
        verdicts = [random_graphs.judge(graph) for graph in graphs(name)[:3]]
        failed = [verdict.text for verdict in verdicts if random_graphs.is_failure(verdict)]
        if failed:
            wrong[name] = failed[0]
    return wrong
