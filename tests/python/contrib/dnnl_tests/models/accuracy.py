# SPDX-License-Identifier: Apache-2.0
"""How much a model in reduced precision differs from the same model in float32."""

import dataclasses
import statistics

import numpy as np

# What PP-OCR reads when it is compared.
TEXTS = (
    "Reading text with oneDNN 3",
    "The quick brown fox",
    "user@example.com",
    "3.14159 > 22/7",
)


def examples(workload, count=4):
    """Return inputs of a workload to compare outputs on, always the same."""
    if workload.to_input is None:
        return [workload.inputs(seed=200 + number) for number in range(count)]
    from dnnl_tests.models import ocr  # pylint: disable=import-outside-toplevel

    words, random = " ".join(TEXTS).split(), np.random.default_rng(0)
    shuffled = [" ".join(random.permutation(words)[:3]) for _ in range(count - len(TEXTS))]
    lines = [*TEXTS, *shuffled][:count]
    return [{ocr.INPUT: workload.to_input(ocr.draw_line(text))} for text in lines]


@dataclasses.dataclass(frozen=True)
class Accuracy:
    """How outputs differ from those of the same model in float32.

    Attributes
    ----------
    cosine : float
        The smallest of all inputs.
    error : float
        The largest difference, relative to the largest number of the same output if it has others
        than zeros.
    top1 : float or None
        The share of rows whose largest number is the same one; None if they are no classes.
    """

    cosine: float
    error: float
    top1: float | None

    @classmethod
    def of(cls, outputs, expected, has_classes):
        """Compare the first output for each input with what is expected."""
        cosines, errors, same = [], [], []
        for got, want in zip(outputs, expected):
            got, want = got.astype("float64"), want.astype("float64")
            norm = np.linalg.norm(got) * np.linalg.norm(want)
            cosines.append(float((got * want).sum() / norm) if norm else float("nan"))
            errors.append(float(np.abs(got - want).max() / (np.abs(want).max() or 1)))
            same.append(float((got.argmax(-1) == want.argmax(-1)).mean()))
        return cls(min(cosines), max(errors), statistics.mean(same) if has_classes else None)
