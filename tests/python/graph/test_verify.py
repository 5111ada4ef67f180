# SPDX-License-Identifier: Apache-2.0
"""The comparison of a compiled model with its source, on sources of numpy."""

import json

import ml_dtypes
import numpy as np
import pytest
from tvm.contrib.onednn.verify import compare
from tvm.contrib.onednn.verify.check import CannotRun, Step, VerificationError, check
from tvm.contrib.onednn.verify.table import errors


class Chain:
    """A source: functions of one operand, one after the other."""

    framework, dtype, is_discrete, undefined = "numpy", "float32", False, ()

    def __init__(self, functions, wrong=(), wrong_alone=True, x=None):
        rng = np.random.default_rng(0)
        self.inputs = [rng.normal(size=(4, 5)).astype("float32") if x is None else x]
        self.functions, self.wrong, self.wrong_alone = functions, dict(wrong), wrong_alone
        self.compilations, self.others = 0, []

    def _values(self, functions, epsilon=0.0, seed=0):
        rng, value, values = np.random.default_rng(seed), self.inputs[0], []
        for function in functions:
            value = function(compare.rounded_at_random(value, epsilon, rng))
            values.append(value)
        return values

    def run(self, inputs):
        assert inputs is self.inputs
        return self._values(self._compiled())[-1:]

    def _compiled(self):
        return [self.wrong.get(i, f) for i, f in enumerate(self.functions)]

    def results(self):
        return self._values(self.functions)[-1:]

    def rounded(self, epsilon, seed):
        return self._values(self.functions, epsilon, seed)[-1:]

    def steps(self):
        return [
            Step(f"f{i}", "call", f"line {i}", (f"f{i - 1}",) if i else (), 80)
            for i in range(len(self.functions))
        ]

    def compiled(self, names, precision):
        self.compilations += 1
        is_right = not self.wrong_alone or (precision is None and self.wrong_alone == "oneDNN")
        values = self._values(self.functions if is_right else self._compiled())
        return [values[int(name[1:])] for name in names]

    def evaluate(self, step, values, epsilon=0, seed=0):
        x = values[step.operands[0]] if step.operands else self.inputs[0]
        rng = np.random.default_rng(seed)
        return self.functions[int(step.name[1:])](compare.rounded_at_random(x, epsilon, rng))

    def values(self, names):
        values = self._values(self.functions)
        return [values[int(name[1:])] for name in names]

    def opinions(self, step, values):
        return ()

    def other_results(self):
        return self.others


def half(x):
    return x * x.dtype.type(0.5)


def test_right():
    source = Chain([np.tanh, half])
    assert "as numpy computes it, relative error 0.0e+00" == check(source, source.run, "float32")
    assert source.compilations == 0


@pytest.mark.parametrize("x", [np.full((2, 3), -1.0, "float32"), np.zeros((0, 3), "float32")])
@pytest.mark.filterwarnings("ignore:invalid value")
def test_nothing_to_compare(x):
    source = Chain([np.log], x=x)
    assert check(source, source.run, "float32").startswith("not compared: for these inputs")


def test_first_op_that_differs():
    source = Chain([np.tanh, half, np.exp, half], {1: lambda x: x * np.float32(0.51), 3: np.sin})
    with pytest.raises(VerificationError) as raised:
        check(source, source.run, "float32")
    text = str(raised.value)
    assert "differs is f1 (call, 4x5 float32)" in text and "line 1" in text
    assert "imported wrongly" in text


def test_onednn_differs():
    source = Chain([np.tanh, half], {1: np.sin}, wrong_alone="oneDNN")
    with pytest.raises(VerificationError, match="TVM without oneDNN computes it correctly"):
        check(source, source.run, "float32")


def test_fusion_differs():
    source = Chain([np.tanh, half], {1: np.sin}, wrong_alone=False)
    with pytest.raises(VerificationError, match="a rewrite or fusion is wrong"):
        check(source, source.run, "float32")


def test_rounding_explains():
    """A sine of a million periods leaves no digits, so each op is compared."""

    def far(x):
        return np.sin(x * np.float32(1e7))

    source = Chain([np.tanh, far], {0: lambda x: np.tanh(x) * np.float32(1 + 2e-7)})
    check(source, source.run, "float32")
    assert source.compilations == 1


def positive(x):
    return x > 0


def largest(x):
    return np.argmax(x, -1)


def mask(x):
    return (x > 0).astype("uint8")


def is_wrong_if_fused(function):
    """Return a source whose last op is wrong in the model, and right alone."""
    wrong = {1: lambda x: function(-x)}
    source = Chain([np.tanh, function], wrong, wrong_alone=False)
    source.is_discrete = True
    return source


@pytest.mark.parametrize("function", [positive, largest, mask])
def test_a_discrete_result_that_is_wrong(function):
    source = is_wrong_if_fused(function)
    with pytest.raises(VerificationError, match="a rewrite or fusion is wrong"):
        check(source, source.run, "float32")


def test_ties_explain_a_discrete_result():
    """A spacing decides whether the elements are greater than what they are compared with."""
    x = np.random.default_rng(0).normal(size=(4, 5)).astype("float32")
    limit = np.tanh(x)
    wrong = {0: lambda x: np.nextafter(np.tanh(x), np.float32(2))}
    source = Chain([np.tanh, lambda x: x > limit], wrong, wrong_alone=False, x=x)
    source.is_discrete = True
    note = check(source, source.run, "float32")
    assert "each op is right for its operands" in note or "relative error" in note


def test_rounding_that_explains_everything():
    """A wrong op before a sine of a million periods is found, as each op is compared."""

    def far(x):
        return np.sin(x * np.float32(1e7))

    source = Chain([np.tanh, half, far], {0: np.sin})
    with pytest.raises(VerificationError, match="differs is f0"):
        check(source, source.run, "float32")


def test_a_source_that_cannot_be_rounded():
    """The bound is then that of the type."""
    source = Chain([np.tanh, half], {1: np.sin}, wrong_alone=False)

    def rounded(epsilon, seed):
        if epsilon:
            raise CannotRun("no random numbers")
        return source.results()

    source.rounded = rounded
    with pytest.raises(VerificationError, match="a rewrite or fusion is wrong"):
        check(source, source.run, "float32")


@pytest.mark.parametrize("is_discrete", [False, True])
def test_another_implementation_agrees(is_discrete):
    """One runtime alone may be wrong."""
    source = Chain([np.tanh, half], {1: np.sin}, wrong_alone=False)
    source.is_discrete = is_discrete
    source.others = [[half(source.inputs[0])], [np.sin(np.tanh(source.inputs[0]))]]
    assert "each op is right for its operands" in check(source, source.run, "float32")
    del source.others[1]
    with pytest.raises(VerificationError, match="a rewrite or fusion is wrong"):
        check(source, source.run, "float32")


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_reduced_precision(precision):
    """Its error is accepted, that of a wrong op is not."""
    dtype = getattr(ml_dtypes, precision, precision)

    def rounded(x):
        return np.tanh(x.astype(dtype).astype("float32"))

    source = Chain([np.tanh, half], {0: rounded})
    check(source, source.run, precision)
    with pytest.raises(VerificationError):
        check(source, source.run, "float32")
    source = Chain([np.tanh, half], {0: np.sin})
    with pytest.raises(VerificationError):
        check(source, source.run, precision)


def test_batches(monkeypatch):
    monkeypatch.setattr("tvm.contrib.onednn.verify.check.MAX_BYTES", 200)
    source = Chain([np.tanh, half, half, np.exp], {3: np.sin})
    with pytest.raises(VerificationError, match="differs is f3"):
        check(source, source.run, "float32")
    assert source.compilations > 2


def test_errors_of_ops():
    """Each op is compared for the operands that were computed; errors accumulate beside that."""
    source = Chain([np.tanh, half, np.exp, half], {1: lambda x: x * np.float32(0.51)})
    result = errors(source, "float32")
    assert [each.name for each in result.ops] == ["f0", "f1", "f2", "f3"]
    assert [each.name for each in result.wrong] == ["f1"] == [result.worst()[0].name]
    assert result.ops[3].error == 0 and result.ops[3].accumulated > 1e-3
    assert result.ops[0].accumulated == 0
    text = str(result)
    assert "4 ops in float32, compared with numpy" in text and "f1      call" in text
    assert "1 ops have an error that rounding does not explain" in text
    assert json.loads(result.to_json())["ops"][1]["where"] == "line 1"


NAN, INF = np.float32([[np.nan, 1]]), np.float32([[np.inf, 1]])


@pytest.mark.parametrize(
    "got, want, error",
    [
        (NAN, NAN, 0),
        (INF, INF, 0),
        (NAN, INF, np.inf),
        (-INF, INF, np.inf),
        (np.float32([[2, 1]]), NAN, np.inf),
        (NAN, np.float32([[2, 1]]), np.inf),
        (np.float32([1]), np.float64([1]), np.inf),
        (np.zeros((2, 1)), np.zeros(2), np.inf),
        (np.int64([2**60 + 1]), np.int64([2**60]), 1),
        (np.array([True]), np.array([False]), 1),
        (np.zeros((0, 3)), np.zeros((0, 3)), 0),
        (np.array([1.5], ml_dtypes.bfloat16), np.array([1], ml_dtypes.bfloat16), 0.5),
    ],
)
def test_largest_error(got, want, error):
    assert compare.largest_error(got, want) == error


@pytest.mark.parametrize("dtype, steps", [("float16", 8), ("bfloat16", 4), ("float32", 256)])
def test_bound_of_the_smallest_numbers(dtype, steps):
    info = ml_dtypes.finfo(dtype)
    least = np.array(info.smallest_subnormal, dtype)
    assert compare.free_bound(least, dtype) == steps * float(info.smallest_subnormal)


def test_random_rounding_keeps_integers():
    x = np.float32([0, 1, 300, 0.1, np.inf, np.nan])
    noisy = compare.rounded_at_random(x, 2.0**-7, np.random.default_rng(0))
    np.testing.assert_array_equal(noisy[[0, 1, 2, 4, 5]], x[[0, 1, 2, 4, 5]])
    assert noisy[3] != x[3] and abs(noisy[3] - x[3]) < 0.1 * 2.0**-7
    assert noisy.dtype == x.dtype
