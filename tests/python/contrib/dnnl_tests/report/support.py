# SPDX-License-Identifier: Apache-2.0
"""The table of what oneDNN runs, read off the rows of the policy and found by asking its rules."""

import collections
import itertools
import re
from types import SimpleNamespace
from unittest import mock

import numpy as np
import tvm
from tvm.contrib.onednn import cpu
from tvm.contrib.onednn.ir.numpy_types import numpy_type
from tvm.contrib.onednn.ir.op import infer
from tvm.contrib.onednn.ir.op_view import OpView, Tensor
from tvm.contrib.onednn.ops.draw import Draw
from tvm.contrib.onednn.ops.table import TABLE
from tvm.contrib.onednn.rewrites.qnn_sums import ACCUMULATING
from tvm.contrib.onednn.rewrites.read_qnn import READERS
from tvm.relay.op.contrib._dnnl.partition import pattern_table

from dnnl_tests import graphs as random_graphs
from dnnl_tests.graphs.draw import Unfit

DTYPES = ("float32", "bfloat16", "float16", "float64", "int32", "int8", "uint8")
SEEDS = range(10)
# So many of the calls that are accepted are asked about other types than float32.
FEW = 2
# The attributes that are layouts, and which operand has the layout.
LAYOUTS = {"data_layout": 0, "kernel_layout": 1, "layout": 0}

HEAD = """# What runs on oneDNN

Which ops of *your* model run on oneDNN is in its offload report, with a reason for each that does
not: `print(model.report)` in Python, or, for an ONNX file,

```sh
./dev.py report model.onnx            # as imported by Relay
./dev.py report model.onnx --relax    # as imported by Relax; also .tflite and .pt2 files
```

This page lists what is possible. An op that has no row stays on TVM. An op that has one stays on
TVM, too, if

- its data type is not in the row. On a CPU that lacks `bfloat16` or `float16`,
  it runs in `float32`;
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


def _operands(call, dtype):
    """Yield operands of a drawn call whose data has a type, as have any of those in float32.

    A bias or a scale may have another type than the data. Operands after the first are constant.
    """

    def tensor(value, dtype, is_first):
        return Tensor(value.shape, dtype, None if is_first else value.astype(numpy_type(dtype)))

    drawn = [str((value[0] if isinstance(value, list) else value).dtype) for value in call.values]
    data = next(k for k, each in enumerate(drawn) if each != "bool")
    choices = [{each, dtype or each} if each == "float32" else {each} for each in drawn]
    choices[data] = {dtype or drawn[data]}
    for types in itertools.product(*choices):
        yield [
            (
                tuple(tensor(each, t, k + n == 0) for n, each in enumerate(value))
                if isinstance(value, list)
                else tensor(value, t, k == 0)
            )
            for k, (value, t) in enumerate(zip(call.values, types))
        ]


def _view(name, args, attrs):
    """Return a call of an op for its rule."""
    attrs = TABLE[name].attributes(SimpleNamespace(**attrs))
    result = infer(name, args, attrs)
    return OpView(name, args, result if isinstance(result, tuple) else (result,), attrs)


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


def layouts(view):
    """Return a text of the layouts that the rule accepts in the place of a call's own."""
    texts, (spec, attrs) = [], (TABLE[view.name], vars(view.attrs))
    for attr in spec.attrs:
        if attr.name not in LAYOUTS:
            continue
        place, letters = LAYOUTS[attr.name], attrs[attr.name]
        orders = ["".join(order) for order in itertools.permutations(letters)]
        accepted = []
        for layout in orders:
            args = list(view.args)
            dims = [args[place].shape[letters.index(letter)] for letter in layout]
            value = None if place == 0 else np.ones(dims, "float32")
            args[place] = Tensor(tuple(dims), args[place].dtype, value)
            try:
                is_legal = spec.reason(_view(view.name, args, {**attrs, attr.name: layout})) is None
            # Some have no type.
            except Exception:  # pylint: disable=broad-except
                continue
            if is_legal:
                accepted.append(layout)
        is_any = len(accepted) == len(orders)
        texts.append(f"any order of `{attr.default}`" if is_any else _texts(sorted(accepted)))
    return "; ".join(texts)


class Support:
    """What the rule of an op accepts.

    It is asked about calls that its row draws. The first few that are accepted are asked about
    again in each type, with the same shapes and attributes.
    """

    def __init__(self, spec):
        self.spec, self.refused, self.accepted = spec, set(), []
        for seed in SEEDS:
            reason, view = self._ask(seed)
            if reason is None:
                self.accepted.append((seed, view))
            elif reason:
                self.refused.add(template(reason))
        asked = [seed for seed, _ in self.accepted[:FEW]]
        self.dtypes = {t for t in DTYPES if any(self._ask(seed, t)[0] is None for seed in asked)}

    def _ask(self, seed, dtype=None):
        """Return what the rule says of a drawn call, "" if that has no type, and the call."""
        call, reason, view = self.spec.draw(Draw(seed)), "", None
        for args in _operands(call, dtype):
            try:
                view = _view(self.spec.name, args, call.attrs)
            except (TypeError, ValueError):
                continue
            reason = self.spec.reason(view)
            if reason is None:
                break
        return reason, view

    @property
    def layouts(self):
        """The layouts that are accepted, as a text."""
        return layouts(self.accepted[0][1]) if self.accepted else ""


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
    return [f"`{name}`", dtypes, "", f"as `{root.spec.name}`", "", "a whole composite", ""]


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
