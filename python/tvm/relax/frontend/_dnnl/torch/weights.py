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
"""Notices changes of weights that PyTorch does not count.

A write through `tensor.data`, or through memory that is shared with numpy, leaves `tensor._version`
as it is.
"""

from __future__ import annotations

import itertools

import torch

#: A tensor of so many words of 8 bytes is compared whole at each call, a larger one at some.
_WHOLE_WORDS, _SAMPLES = 512, 16
#: Of so many words, the sum is compared at a call.
_SUMMED_WORDS = 1 << 15


class Watch:
    """The memory of weights, and what it contained.

    Parameters
    ----------
    tensors : Iterable[torch.Tensor]
        The weights. They stay alive.
    """

    def __init__(self, tensors):
        words = [_words(each) for each in tensors if each.numel()]
        steps = [len(each) // _SAMPLES if len(each) > _WHOLE_WORDS else 1 for each in words]
        views = [each[::step] for each, step in zip(words, steps)]
        dtypes = {each.dtype for each in views}
        self._views = [[each for each in views if each.dtype == dtype] for dtype in dtypes]
        self._samples = self._sampled()
        parts = [part for each in words for part in each.split(_SUMMED_WORDS)]
        self._sums = itertools.cycle([(part, _sum(part)) for part in parts])

    def is_changed(self) -> bool:
        """Tell whether a sample of the weights has changed: all writes of whole tensors do that."""
        return not all(map(torch.equal, self._sampled(), self._samples))

    def is_part_changed(self) -> bool:
        """Tell whether the next part of the weights has changed; each call looks at another."""
        return any(_sum(part) != total for part, total in itertools.islice(self._sums, 1))

    def _sampled(self) -> list[torch.Tensor]:
        return [torch.cat(each) for each in self._views]


def _sum(words) -> int:
    return int(words.sum(dtype=torch.int64))


def _words(tensor) -> torch.Tensor:
    """Return the memory of a tensor, as integers of 8 bytes, or else of one."""
    size = tensor.element_size()
    span = 1 + sum((count - 1) * step for count, step in zip(tensor.shape, tensor.stride()))
    begin, count = tensor.storage_offset() * size, span * size
    storage, words = tensor.untyped_storage(), torch.empty(0, dtype=torch.uint8)
    words = words.set_(storage, begin, (count,), (1,))
    return words.view(torch.int64) if begin % 8 == 0 and count % 8 == 0 else words
