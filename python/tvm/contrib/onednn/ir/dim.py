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
"""Sizes of tensors that are not known before a model runs.

A size is an ``int``, a `Dim`, or None where nothing is known. A `Dim` is a polynomial with integer
coefficients over atoms: symbols, each an open dimension of at least 1, and quotients of other
sizes. Two sizes that are equal here are equal in every run; two that differ may still be equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional, Union

# The atoms of a product, sorted, and its coefficient.
_Term = tuple[tuple, int]


@dataclass(frozen=True)
class Symbol:
    """An open dimension.

    Parameters
    ----------
    key : Hashable
        Tells symbols apart.
    native : Any
        What the reader knows it by; symbols of one key are equal whatever this is.
    """

    key: Any
    native: Any = None

    def __eq__(self, other):
        return isinstance(other, Symbol) and self.key == other.key

    def __hash__(self):
        return hash(self.key)

    def __str__(self):
        return str(self.key)


@dataclass(frozen=True)
class Quotient:
    """A size divided by another, rounded down."""

    numerator: KnownSize
    denominator: KnownSize

    def __str__(self):
        return f"(({self.numerator}) // ({self.denominator}))"


@dataclass(frozen=True)
class Dim:
    """A polynomial of symbols and quotients that is not a plain number.

    Build it with `symbol` and arithmetic: sums and products with integers and other sizes, and
    ``//``. A result that does not depend on a symbol is an ``int``.
    """

    terms: tuple[_Term, ...]

    @staticmethod
    def symbol(key, native=None) -> Dim:
        """Return the size that a symbol stands for."""
        return Dim((((Symbol(key, native),), 1),))

    def __add__(self, other: KnownSize) -> KnownSize:
        return NotImplemented if other is None else _sum((*self.terms, *_terms(other)))

    def __mul__(self, other: KnownSize) -> KnownSize:
        if other is None:
            return NotImplemented
        pairs = ((a, b) for a in self.terms for b in _terms(other))
        return _sum((_sorted((*a, *b)), m * n) for (a, m), (b, n) in pairs)

    def __neg__(self) -> KnownSize:
        return self * -1

    def __sub__(self, other: KnownSize) -> KnownSize:
        return NotImplemented if other is None else self + other * -1

    def __rsub__(self, other: KnownSize) -> KnownSize:
        return self * -1 + other

    __radd__, __rmul__ = __add__, __mul__

    def __floordiv__(self, other: KnownSize) -> KnownSize:
        return NotImplemented if other is None else _floor_divided(self, other)

    def __rfloordiv__(self, other: int) -> KnownSize:
        return _floor_divided(other, self)

    def __str__(self):
        texts = []
        for atoms, number in self.terms:
            factors = [] if number == 1 and atoms else [str(number)]
            texts.append("*".join([*factors, *map(str, atoms)]))
        return " + ".join(texts)

    __repr__ = __str__


KnownSize = Union[int, Dim]
Size = Optional[KnownSize]


def _terms(size: Size) -> Sequence[_Term]:
    return size.terms if isinstance(size, Dim) else ((((), size),) if size else ())


def _order(atom: Symbol | Quotient) -> tuple:
    # Symbols that look alike are told apart by their hashes.
    return type(atom).__name__, str(atom), hash(atom)


def _sorted(atoms) -> tuple:
    return tuple(sorted(atoms, key=_order))


def _sum(terms) -> KnownSize:
    total: dict[tuple, int] = {}
    for atoms, number in terms:
        total[atoms] = total.get(atoms, 0) + number
    kept = [(atoms, number) for atoms, number in total.items() if number]
    if not kept or (len(kept) == 1 and not kept[0][0]):
        return kept[0][1] if kept else 0
    return Dim(tuple(sorted(kept, key=lambda term: (-len(term[0]), *map(_order, term[0])))))


def _floor_divided(size: KnownSize, by: KnownSize) -> KnownSize:
    """Divide, rounded down; multiples of the denominator are no part of the quotient that is left.

    So ``(n + 5) // 2`` is ``(n + 1) // 2 + 2``, and ``(n // 2 + 1) // 3`` is ``(n + 2) // 6``:
    sizes that differ by how they were computed only are equal.
    """
    if by == 0:
        raise ZeroDivisionError(f"{size} // 0")
    quotient: KnownSize = 0
    rest: KnownSize = 0
    for atoms, number in _terms(size):
        if isinstance(by, int):
            times, left = divmod(number, by)
            quotient, rest = quotient + _sum([(atoms, times)]), rest + _sum([(atoms, left)])
            continue
        term = _sum([(atoms, number)])
        exact = divided(term, by)
        quotient, rest = (quotient, rest + term) if exact is None else (quotient + exact, rest)
    if rest == 0 or (isinstance(rest, int) and isinstance(by, int)):
        return quotient
    inner = _quotient_in(rest) if isinstance(by, int) and by > 0 else None
    if inner is not None:
        atom, offset = inner
        numerator, denominator = atom.numerator, atom.denominator
        return quotient + _floor_divided(numerator + offset * denominator, denominator * by)
    return quotient + Dim((((Quotient(rest, by),), 1),))


def _quotient_in(size: KnownSize) -> tuple[Quotient, int] | None:
    """Return the quotient by a positive number and the number that a size is the sum of."""
    first, *others = _terms(size)
    atoms, factor = first
    if factor != 1 or len(atoms) != 1 or not isinstance(atoms[0], Quotient):
        return None
    denominator = atoms[0].denominator
    if not isinstance(denominator, int) or denominator <= 0 or any(each[0] for each in others):
        return None
    return atoms[0], others[0][1] if others else 0


def divided(size: Size, by: Size) -> Size:
    """Return the quotient of two sizes if the division leaves no remainder in every run, else None.

    Parameters
    ----------
    size : int | Dim
        The numerator.
    by : int | Dim
        The denominator.
    """
    if size is None or by is None or not _terms(by):
        return None
    # Terms are in an order of polynomials: the first of a product is the product of the first.
    divisor, divisor_number = _terms(by)[0]
    quotient: KnownSize = 0
    while size != 0:
        atoms, number_ = _terms(size)[0]
        rest = list(atoms)
        for atom in divisor:
            if atom not in rest:
                return None
            rest.remove(atom)
        if number_ % divisor_number:
            return None
        term = _sum([(tuple(rest), number_ // divisor_number)])
        quotient, size = quotient + term, size - term * by
    return quotient


def product(sizes: Sequence[Size]) -> Size:
    """Multiply sizes; None if one of them is not known."""
    result: KnownSize = 1
    for size in sizes:
        if size is None:
            return None
        result = result * size
    return result


def substituted(size: Size, sizes: Mapping[Any, Size]) -> Size:
    """Return a size with others in the place of symbols.

    Parameters
    ----------
    size : int | Dim | None
        The size.
    sizes : Mapping[Hashable, int | Dim]
        What stands for a symbol, by its key; symbols that are not in it stay.
    """
    if not isinstance(size, Dim):
        return size
    total: KnownSize = 0
    for atoms, number_ in size.terms:
        term = product([number_, *(_substituted_atom(atom, sizes) for atom in atoms)])
        if term is None:
            return None
        total = total + term
    return total


def _substituted_atom(atom: Symbol | Quotient, sizes: Mapping[Any, Size]) -> Size:
    if isinstance(atom, Quotient):
        numerator, denominator = (
            substituted(each, sizes) for each in (atom.numerator, atom.denominator)
        )
        return None if numerator is None or denominator is None else numerator // denominator
    return sizes.get(atom.key, Dim((((atom,), 1),)))


def symbol_of(size: Size) -> Symbol | None:
    """Return the symbol that a size is, None for any other size."""
    if not isinstance(size, Dim) or len(size.terms) != 1:
        return None
    ((atoms, factor),) = size.terms
    return atoms[0] if factor == len(atoms) == 1 and isinstance(atoms[0], Symbol) else None


def symbols_in(size: Size) -> Iterator[Symbol]:
    """Yield the symbols that a size depends on."""
    for atoms, _ in _terms(size):
        for atom in atoms:
            if isinstance(atom, Symbol):
                yield atom
            else:
                yield from symbols_in(atom.numerator)
                yield from symbols_in(atom.denominator)


def number(size: Size) -> int | None:
    """Return a size that is a plain number, None for any other."""
    return None if isinstance(size, Dim) else size


def is_same(one: Size, other: Size) -> bool:
    """Whether two sizes are known to be equal in every run."""
    return one is not None and one == other


def least(size: Size) -> int | None:
    """Return the least number that a size may be; None if that is not known.

    Symbols are 1 or more, quotients 0 or more, and what is the size of a tensor 1 or more.
    """
    if not isinstance(size, Dim):
        return size
    if any(count < 0 for atoms, count in size.terms if atoms):
        return None
    known = (all(isinstance(atom, Symbol) for atom in atoms) for atoms, _ in size.terms)
    return max(1, sum(count for is_known, (_, count) in zip(known, size.terms) if is_known))


def broadcast(*shapes: Sequence[Size]) -> tuple[Size, ...]:
    """Return the shape that shapes are broadcast to, as numpy does it."""
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    return tuple(map(_common, *padded)) if len(padded) > 1 else padded[0]


def _common(*sizes: Size) -> Size:
    kept = [size for size in dict.fromkeys(sizes) if size != 1]
    if len(kept) <= 1:
        return kept[0] if kept else 1
    # A size that is not 1 is that of the result. Of two open ones either may be.
    known = [size for size in kept if isinstance(size, int)]
    return next(iter(known or (size for size in kept if (least(size) or 0) > 1)), None)
