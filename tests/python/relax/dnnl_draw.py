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
"""Draws shapes, types and parameters for calls of Relax, at the edges of what rules tell apart."""

import random

import numpy as np
from dnnl_modules import rand
from tvm import relax

SIZES = (1, 1, 1, 2, 2, 3, 4, 4, 5, 6, 7)
LETTERS = {1: "W", 2: "HW", 3: "DHW"}
BYTES = ("int8", "uint8")
OTHERS = ("int8", "uint8", "int32", "bool", "float64")


class Draw:
    """What an op is drawn with; the same seed draws the same.

    Parameters
    ----------
    seed : int
        The seed of all choices.
    dtype : str
        The type of the data and the parameters.
    symbols : dict of int to tirx.Var or None
        The dimensions that are open, by their sizes; None for those of another run that has none.
    """

    def __init__(self, seed, dtype, symbols=None):
        # What is open must not change what else is drawn.
        self.random, self._open = random.Random(seed), random.Random(seed)
        self.dtype, self.symbols = dtype, symbols
        self.variables, self.shapes = [], []

    def choice(self, items):
        return self.random.choice(list(items))

    def chance(self, probability):
        return self.random.random() < probability

    def integer(self, low, high):
        return self.random.randint(low, high)

    def axis(self, shape):
        """Return an axis, maybe from the end."""
        return self.integer(-len(shape), len(shape) - 1)

    def axes(self, shape, least=0):
        """Return some axes."""
        count = self.integer(min(least, len(shape)), len(shape))
        picked = self.random.sample(range(len(shape)), count)
        return [axis - len(shape) * self.integer(0, 1) for axis in picked]

    def shape(self, *ranks):
        shape = [self.choice(SIZES) for _ in range(self.choice(ranks or range(1, 6)))]
        return [self.choice((1, shape[0])) for _ in shape] if shape and self.chance(0.2) else shape

    def var(self, shape, dtype=None):
        """Return a new parameter of the function."""
        open_ = self.symbols or {}
        # Some of those of an open size.
        dims = [
            open_[size] if size in open_ and self._open.random() < 0.6 else size for size in shape
        ]
        type_ = relax.TensorType(dims, dtype or self.dtype)
        self.variables.append(relax.Var(f"x{len(self.variables)}", type_))
        self.shapes.append(tuple(shape))
        return self.variables[-1]

    def data(self, shape):
        """Return a parameter, at times of a type that oneDNN computes nothing in."""
        return self.var(shape, self.choice(OTHERS) if self.chance(0.1) else None)

    def weight(self, shape, dtype=None):
        """Return a constant or a parameter."""
        dtype = dtype or self.dtype
        if self.chance(0.3):
            return self.var(shape, dtype)
        values = rand(*shape) + 2 if "float" in dtype else np.ones(shape)
        return relax.const(values, dtype)
