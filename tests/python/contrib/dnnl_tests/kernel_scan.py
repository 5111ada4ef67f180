# SPDX-License-Identifier: Apache-2.0
"""Random convolutions, matmuls and pools, to find faults of oneDNN's kernels.

The sizes are those at which kernels differ: channels about multiples of vectors and tiles, strides
that divide windows and exceed them, padding, dilation, zero points, bias, relu and residual. The
operands are small integers, so that the result is exact, whatever the order of the sums.
"""

import math
import time
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
from tvm.contrib.onednn import cpu
from tvm.contrib.onednn.ir.op import infer
from tvm.contrib.onednn.ir.op_view import OpView, Tensor
from tvm.contrib.onednn.ops.evaluate import evaluate_op
from tvm.contrib.onednn.ops.table import TABLE
from tvm.relay.op.contrib import dnnl  # noqa: F401  pylint: disable=unused-import

from dnnl_tests.kernel import run_kernel

CLASSES = ("conv", "deconv", "matmul", "pool")
# By name: the type of the operands.
KINDS = {"f32": "float32", "bf16": "bfloat16", "f16": "float16", "u8": "uint8", "s8": "int8"}
CHANNELS = (
    *(1, 2, 3, 4, 5, 7, 8, 12, 15, 16, 17, 20, 24, 31, 32, 33, 40, 47, 48, 49, 56, 63, 64, 65),
    *(72, 80, 96, 112, 127, 128, 129, 144, 160, 192, 240, 256, 272),
)
SPATIAL = (1, 2, 3, 5, 7, 8, 9, 14, 15, 16, 17, 28, 31, 32, 33, 56, 64, 97, 112, 129, 224)
WINDOWS = (1, 1, 2, 3, 3, 3, 4, 5, 6, 7, 8)
MAX_ELEMENTS, MAX_FLOPS = 2e6, 3e8
# Smaller tensors may take reference code: oneDNN's kernels would read beyond their end.
FEW_ELEMENTS = 256
# What a step may lose, relative to the sum of its operands' magnitudes.
EPSILON = {"f32": 1e-6, "bf16": 2.0**-8, "f16": 2.0**-11, "u8": 4e-6, "s8": 4e-6}
LETTERS = "DHW"


def cases(seed, classes=CLASSES, allowed=None):
    """Yield the cases from a seed on, without an end."""
    while True:
        case = draw(seed, classes, allowed)
        if case is not None:
            yield case
        seed += 1


class Verdict(NamedTuple):
    """What became of a case: "right", "wrong", "reference", "slow" or "error"."""

    kind: str
    text: str = ""
    kernels: tuple = ()


def kinds():
    """Return the kinds that oneDNN computes with on this CPU."""
    return [kind for kind, dtype in KINDS.items() if "int" in dtype or cpu.computes(dtype)]


class _Draw:
    def __init__(self, numbers):
        self.numbers = numbers

    def pick(self, items):
        return items[int(self.numbers.integers(len(items)))]

    def chance(self, probability):
        return self.numbers.random() < probability

    def below(self, end):
        return int(self.numbers.integers(end))

    def window(self, rank):
        """Return taps, strides and dilation of each dimension."""
        taps = [self.pick(WINDOWS) for _ in range(rank)]
        taps = [taps[0]] * rank if self.chance(0.6) else taps
        strides = [self.pick((1, 1, 1, 2, 2, 3, 4)) for _ in range(rank)]
        strides = [strides[0]] * rank if self.chance(0.6) else strides
        strides = taps if self.chance(0.2) else strides
        gaps = [1 if self.chance(0.8) else self.pick((1, 2, 3)) for _ in range(rank)]
        return taps, strides, gaps

    def image(self, reach):
        """Return sizes that windows of a reach fit in."""
        sizes = SPATIAL if len(reach) < 3 else (1, 2, 3, 5, 8, 9)
        return [max(each, self.pick(sizes)) for each in reach]

    def padding(self, reach):
        if self.chance(0.4):
            return [0] * (2 * len(reach))
        return [self.below(each) for each in (*reach, *reach)]

    def conv(self, is_transposed):
        rank = self.pick((1, 2, 2, 2, 2, 3))
        groups = 1 if self.chance(0.8) else self.pick((2, 4))
        ins, outs = (-(-self.pick(CHANNELS) // groups) * groups for _ in range(2))
        if self.chance(0.08):
            groups = ins = outs = self.pick((8, 16, 24, 32, 48, 64, 96))
        taps, strides, gaps = self.window(rank)
        if is_transposed and self.chance(0.2):
            size = self.pick((10, 12, 16, 20, 32)) if rank < 3 else 8
            taps, gaps = [size] * rank, [1] * rank
        reach = [(size - 1) * gap + 1 for size, gap in zip(taps, gaps)]
        attrs = dict(strides=strides, dilation=gaps, padding=self.padding(reach), groups=groups)
        weight = [ins, outs // groups] if is_transposed else [outs, ins // groups]
        if is_transposed:
            is_longer = self.chance(0.3)
            attrs["output_padding"] = [self.below(n) if is_longer else 0 for n in strides]
        letters = LETTERS[3 - rank :]
        order = "IO" if is_transposed else "OI"
        attrs.update(data_layout=f"NC{letters}", kernel_layout=order + letters)
        image = self.image([1] * rank if is_transposed else reach)
        name = f"nn.conv{rank}d" + ("_transpose" if is_transposed else "")
        return name, [[self.pick((1, 1, 1, 2, 3)), ins, *image], [*weight, *taps]], attrs

    def matmul(self):
        rows = self.pick((1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 100, 129))
        inner, columns = (self.pick((*CHANNELS, 300, 512, 768)) for _ in range(2))
        if self.chance(0.7):
            return "nn.dense", [[rows, inner], [columns, inner]], {}
        batch, is_transposed = self.pick((2, 3)), self.chance(0.5)
        right = [batch, columns, inner] if is_transposed else [batch, inner, columns]
        attrs = dict(transpose_a=False, transpose_b=is_transposed)
        return "nn.batch_matmul", [[batch, rows, inner], right], attrs

    def pool(self):
        rank = self.pick((1, 2, 2, 3))
        taps, strides, _ = self.window(rank)
        kind = self.pick(("max", "avg"))
        # A window holds a value of the image.
        padding = [min(pad, size // 2) for pad, size in zip(self.padding(taps), (*taps, *taps))]
        letters = LETTERS[3 - rank :]
        attrs = dict(pool_size=taps, strides=strides, dilation=[1] * rank, padding=padding)
        attrs.update(layout=f"NC{letters}", ceil_mode=False)
        if kind == "avg":
            attrs.update(count_include_pad=self.chance(0.5))
        shape = [self.pick((1, 1, 2, 3)), self.pick(CHANNELS), *self.image(taps)]
        return f"nn.{kind}_pool{rank}d", [shape], attrs


def draw(seed, classes=CLASSES, allowed=None):
    """Return a case as a dictionary of plain values; None if it is too large or has no result."""
    d = _Draw(np.random.default_rng(seed))
    kind, of = d.pick(tuple(allowed or kinds())), d.pick(tuple(classes))
    if of in ("conv", "deconv"):
        op, shapes, attrs = d.conv(of == "deconv")
    else:
        op, shapes, attrs = d.matmul() if of == "matmul" else d.pool()
    case = {"seed": seed, "kind": kind, "op": op, "shapes": shapes, "attrs": attrs}
    is_byte = kind in ("u8", "s8")
    if of == "pool" and is_byte and "avg" in op:
        return None
    if of != "pool":
        case["post_ops"] = [each for each in ("bias", "relu", "sum") if d.chance(0.3)]
        case["zero_point"] = 0
        if is_byte and d.chance(0.5):
            case["zero_point"] = 128 if kind == "u8" else d.pick((-128, 3))
        # Without VNNI, kernels are exact for small weights only.
        case["largest"] = d.pick((4, 64, 127)) if is_byte else 4
        if kind in ("bf16", "f16") and d.chance(0.3):
            case["out_dtype"] = "float32"
    dims = _result(case).shape
    cost = 2 * math.prod(dims)
    if of in ("conv", "deconv"):
        cost = 2 * math.prod(shapes[0] if of == "deconv" else dims) * math.prod(shapes[1][1:])
    case["flops"] = cost * (shapes[0][-1] if of == "matmul" else 1)
    sizes = [math.prod(each) for each in (*shapes, dims)]
    is_small = min(dims) > 0 and max(sizes) <= MAX_ELEMENTS and case["flops"] <= MAX_FLOPS
    return case if is_small and refusal(case) is None else None


def refusal(case):
    """Return why the rule of the op refuses a case; None if it does not."""
    spec = TABLE[case["op"]]
    dtype = case["kind"] if "pool" in case["op"] else None
    dtype = KINDS.get(dtype, "float32" if case["kind"] in ("u8", "s8") else KINDS[case["kind"]])
    args = [Tensor(tuple(map(int, shape)), dtype) for shape in case["shapes"]]
    attrs = SimpleNamespace(**{"out_layout": "", "out_dtype": "", **case["attrs"]})
    result = _result(case)
    return spec.reason(OpView(case["op"], args, (Tensor(result.shape, dtype),), attrs))


def _result(case):
    """Return the type of the op's result."""
    dtype = "float32" if case["kind"] in ("u8", "s8") and "pool" not in case["op"] else None
    dtypes = [dtype or KINDS[case["kind"]]] * len(case["shapes"])
    args = [Tensor(tuple(map(int, shape)), each) for shape, each in zip(case["shapes"], dtypes)]
    attrs = SimpleNamespace(**case["attrs"], out_dtype=case.get("out_dtype", ""))
    return infer(case["op"], args, attrs)


def _text(value):
    values = value if isinstance(value, list) else [value]
    return [str(int(each)) if isinstance(each, bool) else str(each) for each in values]


def run(case):
    """Run a case and judge the result.

    Parameters
    ----------
    case : dict
        What `draw` returned, or one that was saved.

    Returns
    -------
    verdict : Verdict
        "right", "wrong", "reference" for reference code of oneDNN, "slow" or "error".
    """
    numbers, kind, op = np.random.default_rng(case["seed"]), case["kind"], case["op"]
    is_byte, post_ops = kind in ("u8", "s8"), case.get("post_ops", [])
    type_, low, high = _result(case), *{"u8": (0, 256), "s8": (-128, 128)}.get(kind, (-4, 5))
    data = numbers.integers(low, high, case["shapes"][0])
    operands, zero = [data], case.get("zero_point", 0)
    if len(case["shapes"]) > 1:
        largest = case["largest"]
        operands.append(numbers.integers(-largest, largest + 1, case["shapes"][1]))
    attrs = {key: _text(value) for key, value in case["attrs"].items()}
    if "out_dtype" in case:
        attrs["out_dtype"] = [case["out_dtype"]]
    wide = Tensor(type_.shape, "float64")
    definition = SimpleNamespace(**case["attrs"])
    reals = [operands[0] - zero, *operands[1:]]
    wanted = evaluate_op(op, definition, wide, [each.astype("float64") for each in reals])
    magnitude = np.abs(wanted).max(initial=1)
    channel = 1 if "conv" in op else wanted.ndim - 1
    names, constants = [], [1] if len(operands) > 1 and op != "nn.batch_matmul" else []
    for each in post_ops:
        key = f"post_ops.{len(names)}."
        names.append("nn.relu" if each == "relu" else "add")
        if each == "relu":
            wanted = np.maximum(wanted, 0)
            continue
        shape = [n if each == "sum" or k == channel else 1 for k, n in enumerate(wanted.shape)]
        value = numbers.integers(-9, 10, shape)
        attrs[key + "operand"] = [str(len(operands))]
        if each == "bias":
            constants.append(len(operands))
        operands.append(value.astype("float32"))
        wanted, magnitude = wanted + value, magnitude + 9
    dtypes = [KINDS[kind]] * 2 if is_byte else ["float32"] * 2
    dtypes[1:2] = ["int8"] if is_byte else dtypes[1:2]
    inputs = [each.astype(of) for each, of in zip(operands, dtypes)] + operands[2:]
    inputs = inputs[: len(operands)]
    if is_byte and len(case["shapes"]) > 1:
        for k, each in enumerate((zero, 0)):
            for name, value in (("scale", np.float32(1)), ("zero_point", np.int32(each))):
                attrs[f"dequantize.{k}.{name}"] = [str(len(inputs))]
                constants.append(len(inputs))
                inputs.append(np.asarray(value))
    steps, reads = [], None
    if kind in ("bf16", "f16"):
        # As in TVM, post-ops read the type of the result.
        count = len(case["shapes"])
        reads = [KINDS[kind]] * count + [type_.dtype] * (len(inputs) - count)
    begin = time.process_time()
    try:
        given = dict(shape=type_.shape, dtype=type_.dtype, reads=reads, steps=steps)
        got = run_kernel(op, inputs, attrs, names, constants=constants, **given)
    # Every failure of a case is a verdict.
    except Exception as error:  # pylint: disable=broad-except
        return Verdict("error", f"{type(error).__name__}: {str(error).strip().splitlines()[-1]}")
    seconds = time.process_time() - begin
    kernels = tuple(f"{step['kind']} {step['impl']}" for step in steps)
    bound = EPSILON[kind] * (1 + len(names)) * magnitude
    error = np.abs(got.astype("float64") - wanted).max(initial=0)
    if not error <= bound:
        return Verdict("wrong", f"off by {error:g} of {magnitude:g}", kernels)
    is_large = min(data.size, wanted.size) >= FEW_ELEMENTS
    if is_large and any(step["reference"] for step in steps):
        return Verdict("reference", f"{case['flops'] / seconds / 1e9:.3g} GFLOP/s", kernels)
    if seconds > 2 + case["flops"] / 1e8:
        return Verdict("slow", f"{seconds:.2f} s", kernels)
    return Verdict("right", "", kernels)
