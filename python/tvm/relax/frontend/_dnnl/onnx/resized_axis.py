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
"""How an axis of ONNX's Resize is computed: the positions that it reads, and their weights."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class ResizedAxis:
    """An axis that is resized.

    Attributes
    ----------
    number : int
        The axis.
    size, new_size : int
        The sizes of the input and of the result.
    scale : float
        How many times the result is as large; `scale * size` need not be a whole number.
    roi : tuple[float, float]
        The part that "tf_crop_and_resize" reads, in units of the input.
    """

    number: int
    size: int
    new_size: int
    scale: float
    roi: tuple[float, float] = (0.0, 1.0)

    def positions(self, mode: str) -> np.ndarray:
        """Return the position in the input of each element of the result.

        Parameters
        ----------
        mode : str
            The attribute `coordinate_transformation_mode`.
        """
        # In float32, as in onnxruntime: the nearest element depends on how positions are rounded.
        new = np.arange(self.new_size, dtype="float32")
        width, last = self.scale * self.size, self.size - 1
        if mode == "asymmetric":
            return new / self.scale
        if mode == "align_corners":
            # As in PyTorch and onnxruntime, whatever the scale is.
            return new * (last / max(self.new_size - 1, 1))
        if mode == "tf_crop_and_resize":
            begin, end = self.roi
            if width == 1:
                return new + (begin + end) / 2 * last
            return new * ((end - begin) * last / (width - 1)) + begin * last
        if mode == "pytorch_half_pixel" and width == 1:
            return new - 0.5
        centered = (new + 0.5) / self.scale - 0.5
        if mode == "half_pixel_symmetric":
            return centered + self.size / 2 * (1 - self.new_size / width)
        return centered

    def outside(self, mode: str) -> np.ndarray:
        """Return which elements of the result lie outside of the input."""
        positions = self.positions(mode)
        return (mode == "tf_crop_and_resize") & ((positions < 0) | (positions > self.size - 1))

    def nearest(self, mode: str, rounding: str) -> np.ndarray:
        """Return the element that is nearest to each element of the result.

        Parameters
        ----------
        mode, rounding : str
            The attributes `coordinate_transformation_mode` and `nearest_mode`.
        """
        return np.clip(_ROUNDED[rounding](self.positions(mode)), 0, self.size - 1).astype("int64")

    def weights(
        self, mode: str, kernel: Kernel, antialias: bool, exclude_outside: bool
    ) -> np.ndarray:
        """Return a matrix of a row for each element of the result, and a column for each it reads.

        Parameters
        ----------
        mode : str
            The attribute `coordinate_transformation_mode`.
        kernel : Kernel
            The interpolation.
        antialias : bool
            Whether the kernel is as wide as an element of a smaller result.
        exclude_outside : bool
            Whether elements outside of the input have no weight. Otherwise they are those at the
            edge.
        """
        positions = self.positions(mode)[:, np.newaxis]
        scale = min(self.scale, 1.0) if antialias else 1.0
        reach = math.ceil(kernel.radius / scale)
        taps = np.floor(positions) + np.arange(1 - reach, reach + 1)
        weights = kernel((taps - positions) * scale)
        if exclude_outside:
            weights = np.where((taps < 0) | (taps >= self.size), 0, weights)
        weights = weights / weights.sum(axis=1, keepdims=True)
        matrix = np.zeros((self.new_size, self.size))
        columns = np.clip(taps, 0, self.size - 1).astype("int64")
        np.add.at(matrix, (np.arange(self.new_size)[:, np.newaxis], columns), weights)
        return matrix


@dataclass(frozen=True)
class Kernel:
    """The weight of an element by its distance.

    Attributes
    ----------
    radius : int
        The distance from which on weights are zero.
    alpha : float
        The attribute `cubic_coeff_a`, for a radius of 2.
    """

    radius: int
    alpha: float = -0.75

    def __call__(self, distance: np.ndarray) -> np.ndarray:
        x, a = np.abs(distance), self.alpha
        if self.radius == 1:
            return np.maximum(1 - x, 0)
        near = ((a + 2) * x - (a + 3)) * x * x + 1
        far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
        return np.select([x <= 1, x < 2], [near, far], 0.0)


_ROUNDED = {
    "ceil": np.ceil,
    "floor": np.floor,
    "round_prefer_ceil": lambda positions: np.floor(positions + 0.5),
    "round_prefer_floor": lambda positions: np.ceil(positions - 0.5),
}
