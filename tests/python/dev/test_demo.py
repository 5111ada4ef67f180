# SPDX-License-Identifier: Apache-2.0
"""The demo: what it prints, and what it says when something is wrong."""

import json
import types

import numpy as np
import pytest
from dnnl_tests.models import ocr
from PIL import Image
from tvm.testing import dnnl as testing

from scripts import cli, table
from scripts.demo import saved, text_line
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
    assert "--font" in said(error)


def test_a_font_that_is_none_is_named(tmp_path):
    path = tmp_path / "font.ttf"
    path.write_bytes(b"no font")
    with pytest.raises(SetupError, match="font.ttf"):
        text_line.draw("Hello", str(path))


def test_wide_lines_get_a_wider_recogniser_up_to_a_limit():
    assert text_line.draw("Hello").width() == ocr.REC_WIDTH
    assert ocr.REC_WIDTH < text_line.draw("Hello " * 8).width() < text_line.MOST
    assert text_line.draw("Hello " * 80).width() == text_line.MOST


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
        (["--save", "a", "--load", "a"], "not allowed with"),
    ],
)
def test_wrong_options_are_explained(argv, words, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.parse(["demo", *argv])
    assert stop.value.code == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    "argv, words",
    [
        (["--load", "a", "--report"], "cannot be used with --load"),
        (["--font", "a.ttf"], "--font is for --text"),
    ],
)
def test_options_that_do_not_go_together_are_explained(argv, words):
    with pytest.raises(SetupError, match=words):
        cli.run(["demo", *argv])


def test_models_keep_the_order_in_which_they_depend():
    assert cli.parse(["demo", "--models", "rec,cls"]).models == ["cls", "rec"]


def test_save_refuses_a_directory_of_others(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(SetupError, match="did not write"):
        saved.check_target(tmp_path)
    with pytest.raises(SetupError, match="is a file"):
        saved.check_target(tmp_path / "thesis.txt")
    saved.check_target(tmp_path / "new" / "deep")
    assert (tmp_path / "new" / "deep").is_dir()


def index(**changes):
    """Return an index as --save writes it, with changes."""
    model = {"name": "cls", "title": "t", "input": "x", "shape": [1, 3, 48, 192], "partitions": 1}
    machine = saved.platform.machine()
    fields = {"format": saved.FORMAT, "machine": machine, "target": "llvm", "onednn": "3.2.0"}
    return {**fields, "models": [model], **changes}


@pytest.mark.parametrize(
    "text, words",
    [
        (None, "was not saved by the demo"),
        ("{", "cannot read"),
        ("[]", "not of the format"),
        (json.dumps(index(format="other")), "not of the format"),
        (json.dumps({"format": saved.FORMAT}), "damaged"),
        (json.dumps(index(models=[])), "damaged"),
        (json.dumps(index(models=[{"name": "cls"}])), "damaged"),
        (json.dumps(index(machine="pdp11")), "compiled for pdp11"),
        (json.dumps(index()), "lacks cls.so"),
    ],
)
def test_load_refuses_what_is_not_ours(tmp_path, text, words):
    if text is not None:
        (tmp_path / saved.INDEX).write_text(text)
    with pytest.raises(SetupError, match=words) as error:
        saved.read_index(tmp_path)
    assert "what to do: save" in said(error)


@pytest.mark.parametrize(
    "error, words",
    [
        (OSError(28, "No space left on device"), "No space left on device"),
        (RuntimeError("Compilation error:\ncollect2: ld terminated"), "collect2: ld terminated"),
    ],
    ids=["disk", "linker"],
)
def test_a_full_disk_leaves_what_was_saved(tmp_path, error, words):
    class Library:
        def export_library(self, path):
            with open(path, "w") as file:
                file.write("half")
            raise error

    row = types.SimpleNamespace(name="cls")
    (tmp_path / "cls.so").write_text("old")
    with pytest.raises(SetupError, match=words):
        saved.save(tmp_path, [types.SimpleNamespace(workload=row, lib=Library())], None)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("cls.so", "old")]


def test_load_names_a_library_that_is_broken(tmp_path):
    (tmp_path / "cls.so").write_bytes(b"no library")
    with pytest.raises(SetupError, match="cls.so"):
        saved.Saved(tmp_path, index()["models"][0])


def test_load_of_a_directory_that_is_not_there():
    with pytest.raises(SetupError, match="no directory /nowhere"):
        saved.read_index("/nowhere")


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
        (["--prompt", "a", "--save", "d"], "--save does not go with --prompt"),
    ],
    ids=["tokens", "top-p", "precision", "empty", "save"],
)
def test_options_of_a_prompt(argv, words):
    with pytest.raises(SetupError, match=words):
        cli.run(["demo", *argv])


@pytest.mark.parametrize("value", ["2", "nan", "-1", "x"])
def test_a_share_that_is_none_is_refused(value, capsys):
    with pytest.raises(SystemExit):
        cli.parse(["demo", "--prompt", "a", f"--top-p={value}"])
    assert "must be a number from 0 to 1" in capsys.readouterr().err
