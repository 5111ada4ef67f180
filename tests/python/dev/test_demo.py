# SPDX-License-Identifier: Apache-2.0
"""The demo: what it prints, and what it says when something is wrong."""

import numpy as np
import pytest
from dnnl_tests.models import ocr
from PIL import Image
from tvm.testing import dnnl as testing

from scripts import cli, table
from scripts.demo import text_line
from scripts.errors import SetupError


def said(error):
    """Return what a person is told."""
    return str(error.value)


@pytest.mark.parametrize(
    "name, content, words",
    [
        ("missing.png", None, "does not exist"),
        ("text.png", b"plain text", "not an image"),
        ("empty.png", b"", "not an image"),
    ],
)
def test_an_image_that_cannot_be_read_is_named(tmp_path, name, content, words):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SetupError, match=words) as error:
        text_line.read(str(path))
    assert name in said(error)
    assert "what to do: name an image" in said(error)


def test_a_directory_or_half_an_image_is_refused(tmp_path):
    with pytest.raises(SetupError, match="is a directory"):
        text_line.read(str(tmp_path))
    image = tmp_path / "whole.png"
    ocr.draw_line("Hello").save(image)
    half = tmp_path / "half.png"
    half.write_bytes(image.read_bytes()[: image.stat().st_size // 2])
    with pytest.raises(SetupError, match="half.png"):
        text_line.read(str(half))


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "P", "1", "I;16"])
def test_images_of_all_modes_become_rgb(tmp_path, mode):
    path = tmp_path / "line.png"
    Image.new(mode, (90, 30), 1).save(path)
    line = text_line.read(str(path))
    assert line.image.mode == "RGB"
    data = ocr.to_input(line.image, 320)
    assert data.shape == (1, 3, 48, 320)
    assert data.dtype == np.float32
    assert -1 <= data.min() <= data.max() <= 1


def test_transparent_is_white(tmp_path):
    path = tmp_path / "line.png"
    Image.new("RGBA", (8, 8), (0, 0, 0, 0)).save(path)
    assert text_line.read(str(path)).image.getpixel((0, 0)) == (255, 255, 255)


@pytest.mark.parametrize("text, words", [("", "visible"), (" ", "visible"), ("a\nb", "visible")])
def test_text_that_is_no_line_is_refused(text, words):
    with pytest.raises(SetupError, match=words):
        text_line.draw(text)


def test_text_without_glyphs_is_refused_with_the_remedy():
    with pytest.raises(SetupError, match="no glyph for 你 好") as error:
        text_line.draw("Hello 你好")
    assert "--image" in said(error)


def test_decoding_joins_runs_and_drops_blanks():
    classes = ["", "a", "b", " "]
    steps = [1, 1, 0, 1, 2, 2, 0, 0, 3, 2]
    probabilities = np.full((1, len(steps), 4), 0.1, "float32")
    probabilities[0, np.arange(len(steps)), steps] = 0.7
    text, confidence = ocr.decode(probabilities, classes)
    assert text == "aab b"
    assert confidence == pytest.approx(0.7)
    blank = np.zeros((1, 5, 4), "float32")
    blank[..., 0] = 1
    assert ocr.decode(blank, classes) == ("", 0.0)
    with pytest.raises(ValueError, match="expected an output of shape"):
        ocr.decode(blank, classes[:3])


@pytest.mark.parametrize(
    "argv, words",
    [
        (["--models", "vgg"], "no model 'vgg'; there are mobilenet, cls, rec"),
        (["--models", ","], "name at least one"),
        (["--repeat", "0"], "positive"),
        (["--repeat", "-1"], "positive"),
        (["--image", "a.png", "--text", "a"], "not allowed with"),
    ],
)
def test_wrong_options_are_explained(argv, words, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.parse(["demo", *argv])
    assert stop.value.code == 2
    assert words in capsys.readouterr().err


def test_difference_is_relative_to_the_largest_and_sees_nan():
    assert testing.difference([np.array([2.0, 4.0])], [np.array([2.0, 8.0])]) == (4.0, 0.5)
    assert testing.difference([np.array([np.nan])], [np.array([1.0])]).relative == np.inf
    assert testing.difference([np.array([1.0])], [np.array([np.nan])]).absolute == np.inf
    with pytest.raises(ValueError, match="shape"):
        testing.difference([np.zeros(2)], [np.zeros(3)])
    with pytest.raises(AssertionError, match="exceeds"):
        testing.assert_close([np.ones(2)], [np.zeros(2)])


def test_table_aligns_wide_characters():
    lines = table.render(["name", "two\nlines"], [["中文", "1"], ["ab", "22"]]).split("\n")
    assert [line.rstrip() for line in lines] == [
        "name        two",
        "          lines",
        "------  -------",
        "中文          1",
        "ab           22",
    ]


@pytest.mark.parametrize(
    "argv, words",
    [
        (["--tokens", "5"], "--tokens goes with --prompt"),
        (["--top-p", "0.5", "--text", "a"], "--top-p goes with --prompt"),
        (["--precision", "int8"], "--precision goes with --prompt"),
        (["--prompt", " "], "the text is empty"),
    ],
    ids=["tokens", "top-p", "precision", "empty"],
)
def test_options_of_a_prompt(argv, words):
    with pytest.raises(SetupError, match=words):
        cli.run(["demo", *argv])


@pytest.mark.parametrize("value", ["2", "nan", "-1", "x"])
def test_a_share_that_is_none_is_refused(value, capsys):
    with pytest.raises(SystemExit):
        cli.parse(["demo", "--prompt", "a", f"--top-p={value}"])
    assert "must be a number from 0 to 1" in capsys.readouterr().err
