# SPDX-License-Identifier: Apache-2.0
"""Open dimensions: arithmetic, and what is known to be equal."""

import random

import pytest
from tvm.contrib.onednn.ir.dim import Dim, divided, is_same, number, product, substituted, symbol_of

N, M, K = map(Dim.symbol, "nmk")


@pytest.mark.parametrize(
    "one, other",
    [
        (N + M, M + N),
        (N * M, M * N),
        (2 * N, N + N),
        (N * (M + 1), N * M + N),
        (3 - N, -(N - 3)),
        ((N + M) * (N - M), N * N - M * M),
        ((N + 5) // 2, (N + 1) // 2 + 2),
        ((2 * N - 1) // 2 + 1, N),
        ((3 * N) // 2, N + N // 2),
        ((N // 2 + 1) // 3, (N + 2) // 6),
        (((N - 3) // 2 - 2) // 2 + 1, (N - 3) // 4),
        ((N // M + 1) // 2, (1 + N // M) // 2),
        ((N * M + K) // N, M + K // N),
        (5 // N, 5 // N),
    ],
    ids=str,
)
def test_equal(one, other):
    assert one == other and hash(one) == hash(other) and is_same(one, other)


@pytest.mark.parametrize("one, other", [(N, M), (N, N + 1), (N, 4), (N // 2, N // 3), (N, N * N)])
def test_not_known_to_be_equal(one, other):
    assert one != other and not is_same(one, other)


@pytest.mark.parametrize(
    "size, value", [(N - N, 0), (N - N + 3, 3), (N * 0, 0), (N // N, 1), (6 * N // (2 * N), 3)]
)
def test_plain_numbers(size, value):
    assert type(size) is int and size == value and number(size) == value


@pytest.mark.parametrize(
    "size, by, quotient",
    [
        (6 * N, 3, 2 * N),
        (N * M, M, N),
        (4 * N * M + 2 * N, 2 * N, 2 * M + 1),
        (12, 4, 3),
        (0, N, 0),
        (N, 2, None),
        (N + 1, N, None),
        (5, N, None),
        (N * M, N + M, None),
        (16 * N + 16, 4 * N + 4, 4),
        (N * N - M * M, N + M, N - M),
        (N * M + M * K + N, N + K, None),
        (2 * N + 2, 4 * N + 4, None),
        (N, 0, None),
        (N, None, None),
        (None, 2, None),
    ],
)
def test_exact_division(size, by, quotient):
    assert divided(size, by) == quotient


def test_nothing_is_known():
    assert product([N, None, 2]) is None and product([]) == 1 and product([N, 2]) == 2 * N
    assert not is_same(None, None)
    for compute in (lambda: N + None, lambda: N * None, lambda: N - None, lambda: N // None):
        with pytest.raises(TypeError):
            compute()
    with pytest.raises(ZeroDivisionError):
        N // 0


def test_symbols_of_one_name_are_told_apart_by_key():
    class Var:
        def __str__(self):
            return "n"

    one, other = (Dim.symbol(Var()) for _ in range(2))
    assert one != other
    assert one * other == other * one and one + other == other + one
    assert (one - other) + (other - one) == 0
    assert symbol_of(Dim.symbol("n", native=3)).native == 3
    assert all(symbol_of(size) is None for size in (2 * N, N + 1, N * M, N // 2, 3, None))


def test_substitution():
    assert substituted(N * M + 2, {"n": 3}) == 3 * M + 2
    assert substituted(N + M, {"n": M, "m": N}) == M + N
    assert substituted((N + 1) // M, {"n": 4 * M - 1}) == 4
    assert substituted(None, {}) is None and substituted(7, {"n": 1}) == 7


def expression(rng, depth):
    """Return a size, and a function that computes it of numbers."""
    if depth == 0 or rng.random() < 0.15:
        if rng.random() < 0.4:
            value = rng.randint(-4, 9)
            return value, lambda sizes: value
        key = rng.choice("nmk")
        return Dim.symbol(key), lambda sizes: sizes[key]
    (one, f), (other, g) = (expression(rng, depth - 1) for _ in "ab")
    kind = rng.choice("++-*/")
    if kind == "+":
        return one + other, lambda sizes: f(sizes) + g(sizes)
    if kind == "-":
        return one - other, lambda sizes: f(sizes) - g(sizes)
    if kind == "*":
        return one * other, lambda sizes: f(sizes) * g(sizes)
    by, symbol = rng.randint(1, 4), rng.choice("nmk")
    if rng.random() < 0.7:
        return one // by, lambda sizes: f(sizes) // by
    return one // Dim.symbol(symbol), lambda sizes: f(sizes) // sizes[symbol]


@pytest.mark.parametrize("seed", range(100))
def test_arithmetic_is_that_of_numbers(seed):
    rng = random.Random(seed)
    size, compute = expression(rng, 4)
    for _ in range(5):
        sizes = {key: rng.randint(1, 30) for key in "nmk"}
        assert substituted(size, sizes) == compute(sizes), size


@pytest.mark.parametrize("seed", range(50))
def test_exact_division_leaves_no_remainder(seed):
    rng = random.Random(seed)
    quotient, _ = expression(rng, 2)
    by = rng.choice([1, 2, 3, N, 2 * M, 3 * N * K, N + 1, 2 * N * M + 3 * K - 1])
    assert divided(quotient * by, by) == quotient
