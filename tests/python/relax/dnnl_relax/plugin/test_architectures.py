# SPDX-License-Identifier: Apache-2.0
"""`./dev.py coverage --architectures`; skipped without PyTorch and transformers."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
from scripts.bench import architectures  # noqa: E402


def test_measured():
    """One text model, whose integers stay on TVM; of the table's order of cells."""
    (total, offloaded, partitions, error, _), report = architectures.measured("bert-generation")
    assert total - 5 < offloaded < total and partitions == 1 and error < 1e-5
    assert "attention" in report


def test_apart(monkeypatch):
    """A failure and a process that ends are told, and end nothing else."""
    assert architectures.apart("no such name")[0] is False
    monkeypatch.setattr(architectures, "measured", lambda name: exit(3))
    assert architectures.apart("bert") == (False, "the process ended")
    monkeypatch.setattr(architectures, "LIMIT", 0)
    assert architectures.apart("bert") == (False, "not done in 0 s")


def test_summary():
    right, wrong = [5, 5, 1, "1e-07", "1"], "VerificationError: result 0"
    rows = [["a", *right, ""], ["b", 5, 4, 3, "1e-07", "1", ""], ["c", *"-----", wrong]]
    rows += [["d", *right, architectures.WRONG], ["e", *"-----", "ValueError: no converter"]]
    assert architectures.summary(rows) == (
        "5 architectures: 2 right, 1 of them in one partition and 1 in at most two; 2 wrong; "
        "1 not compiled"
    )


def test_write(monkeypatch, tmp_path):
    """Measured rows replace those of the page; the others stay, in the order of the names."""
    page = tmp_path / "page.md"
    page.write_text(f"# Title\n\n{architectures.MARKS[0]}{architectures.MARKS[1]}end\n")
    monkeypatch.setattr(architectures, "PATH", page)
    right = [5, 5, 1, "1e-07", "1.0", ""]
    architectures._write([["bert", *right], ["vit", *"-----", "ValueError: no converter"]])
    architectures._write([["albert", *right], ["vit", *right]])
    text = page.read_text()
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert rows[2:] == [
        f"| {each} | 5 | 5 | 1 | 1e-07 | 1.0 |  |" for each in ("albert", "bert", "vit")
    ]
    assert (
        "3 architectures: 3 right" in text and text.startswith("# Title") and text.endswith("end\n")
    )
