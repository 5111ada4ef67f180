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
"""What declares the attributes of an op: a type and a default for each.

Readers and rewrites give what they have; a node has the attributes of its op's declaration, each of
its type, which nothing changes. So nothing else casts them, or asks whether they are there.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any


class Attr:
    """The declaration of an attribute.

    Parameters
    ----------
    name : str
        As the table, and so Relay, has it.
    default : Any
        What it is where nothing is given; without one, it must be given.
    """

    REQUIRED = object()

    def __init__(self, name: str, default: Any = REQUIRED):
        self.name = name
        self.is_required = default is Attr.REQUIRED
        self.default = None if self.is_required else self.read(default)

    def read(self, value: Any) -> Any:
        """Return a value in the attribute's type; None, if it is given, stays None."""
        return None if value is None else self.convert(value)

    @staticmethod
    def convert(value: Any) -> Any:
        """Return a value, not None, in the attribute's type."""
        return value


class Int(Attr):
    """An integer."""

    @staticmethod
    def convert(value: Any) -> int:
        return int(_known(value))


class Float(Attr):
    """A number in double precision."""

    @staticmethod
    def convert(value: Any) -> float:
        return float(_known(value))


class Bool(Attr):
    """True or False."""

    @staticmethod
    def convert(value: Any) -> bool:
        return bool(_known(value))


class Text(Attr):
    """A name, such as a mode or a layout."""

    @staticmethod
    def convert(value: Any) -> str:
        return str(value)


class DType(Attr):
    """The name of a data type; empty, which is the default, for that of the data."""

    def __init__(self, name: str, default: Any = ""):
        super().__init__(name, default)

    def read(self, value: Any) -> str:
        """Return the name; that of a type that is not given is empty."""
        text = "" if value is None else str(value)
        return "" if text in ("None", "void") else text


class Ints(Attr):
    """Integers, or a single one for all.

    One that is not known stays as it is given, for the rule to refuse.
    """

    @staticmethod
    def convert(value: Any) -> tuple:
        value = _known(value)
        return (value,) if isinstance(value, int) else tuple(map(_known, value))


class Sections(Attr):
    """A number of equal parts, or the indices at which parts end."""

    @staticmethod
    def convert(value: Any) -> int | tuple:
        value = _known(value)
        return value if isinstance(value, int) else tuple(map(_known, value))


class Pairs(Attr):
    """Pairs of integers, one for each axis."""

    @staticmethod
    def convert(value: Any) -> tuple:
        return tuple(Ints.convert(pair) for pair in value)


def _known(value: Any) -> Any:
    """Return the number that an object of an IR has."""
    return getattr(value, "value", value)


def attribute(given: object, name: str, default: Any) -> Any:
    """Return an attribute of a call of an op that may lack it, as some ops without a row do."""
    return getattr(given, name, default)


class Attributes(SimpleNamespace):
    """The attributes of a call, which cannot be changed."""

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"attribute {name} cannot be changed")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"attribute {name} cannot be removed")


def declared(name: str, attrs: Iterable[Attr], given: object) -> object:
    """Return the attributes of a call as its op declares them, see `attributes_of` of `ir/op.py`.

    Parameters
    ----------
    name : str
        The op, for messages.
    attrs : Iterable[Attr]
        Its declarations.
    given : object
        What is given.
    """
    if isinstance(given, Attributes):
        return given
    values = {} if given is None else dict(vars(given))
    for attr in attrs:
        if attr.name in values:
            try:
                values[attr.name] = attr.read(values[attr.name])
            except (TypeError, ValueError) as error:
                text = f"attribute {attr.name}={values[attr.name]!r} of {name}: {error}"
                raise TypeError(text) from error
        elif attr.is_required:
            raise TypeError(f"attribute {attr.name} of {name} is not given")
        else:
            values[attr.name] = attr.default
    return Attributes(**values)
