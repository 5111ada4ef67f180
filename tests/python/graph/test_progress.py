# SPDX-License-Identifier: Apache-2.0
"""What calls of the API tell on stderr while they run."""

import contextlib
import io

import pytest
from tvm.contrib.onednn import progress


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """Steps tell at once what they do."""
    monkeypatch.delenv("TVM_DNNL_PROGRESS", raising=False)
    monkeypatch.setattr(progress, "PATIENCE", 0.001)


@progress.told("compile")
def compile_(model, work=lambda: None):
    progress.note("import Conv", 5, 20)
    progress._current.get().ticker.join(0.1)  # it draws
    work()
    return model


def lines(capsys):
    return capsys.readouterr().err.splitlines()


def test_a_long_call_tells_what_it_does(capsys):
    assert compile_("folder/model.onnx") == "folder/model.onnx"
    first, last = lines(capsys)
    assert first == "oneDNN: compile model.onnx ..."
    assert last.startswith("oneDNN: compile model.onnx  ") and last.endswith("s  done")


def test_a_module_has_no_name(capsys):
    compile_(object())
    assert lines(capsys)[0] == "oneDNN: compile ..."


def test_a_terminal_shows_a_bar(monkeypatch):
    stream = io.StringIO()
    stream.isatty = lambda: True
    monkeypatch.setenv("TERM", "xterm")
    console = progress.Console(stream)
    console.note("import Conv", 5, 20)
    assert console._note == "[#####...............] 5 of 20, import Conv"


def test_calls_within_a_call_are_notes_of_it(capsys):
    noted = []

    def work():
        with progress.step("partition"):
            noted.append(progress._current.get().console._note)

    compile_("model.onnx", work)
    assert noted == ["partition"] and len(lines(capsys)) == 2


@pytest.mark.parametrize("patience", [0.001, 60.0])
def test_a_failure_is_told_only_by_what_was_shown(patience, monkeypatch, capsys):
    monkeypatch.setattr(progress, "PATIENCE", patience)

    def fail():
        raise ValueError

    with pytest.raises(ValueError):
        compile_("model.onnx", fail)
    assert [line[-6:] for line in lines(capsys)[1:]] == (["failed"] if patience < 1 else [])


def test_it_can_be_silent(monkeypatch, capsys):
    monkeypatch.setenv("TVM_DNNL_PROGRESS", "0")
    with progress.step("compile"):
        progress.note("import Conv", 1, 2)
    assert lines(capsys) == []
    monkeypatch.setenv("TVM_DNNL_PROGRESS", "no")
    with pytest.raises(ValueError, match="TVM_DNNL_PROGRESS must be 0 or 1, not 'no'"):
        progress.step("compile")


def test_a_closed_stream_fails_no_call(monkeypatch):
    stream = io.StringIO()
    stream.close()
    console = progress.Console.__new__(progress.Console)
    console.stream, console.live, console.colour, console._note = stream, False, False, ""
    with console.step("compile"):
        pass
    monkeypatch.setattr("sys.stderr", None)
    with progress.step("compile"):
        pass


def test_nodes_are_noted():
    class Importer:
        def from_onnx(self, graph):
            for name in graph.node:
                self._convert_operator(name)

        def _convert_operator(self, op_name):
            if op_name == "Two":
                self._convert_operator("Part")

    class Subgraph(Importer):
        def from_onnx(self, graph):
            self._convert_operator("Inner")

    class Graph:
        node = ("One", "Two", "Three")

    progress.note_nodes(Importer)
    noted = []
    with progress.step("import"):
        console = progress._current.get().console
        console.note = lambda *told: noted.append(told)
        Importer().from_onnx(Graph)
        Subgraph().from_onnx(Graph)
    assert noted[0] == ("import One", 1, 3) and ("import Part", 3, 3) in noted
    assert noted[-1] == ("import Inner", 0, 0)


def test_passes_are_noted_with_the_options_of_the_context_around():
    contexts = []

    class Context(contextlib.nullcontext):
        opt_level, required_pass, disabled_pass, config = 2, ["a"], ["b"], {"c": 1}
        instruments = None

        def __init__(self, **options):
            super().__init__()
            contexts.append(options)

        @classmethod
        def current(cls):
            return cls

    class Tvm:
        class transform:
            PassContext = Context

        class instrument:
            pass_instrument = staticmethod(lambda each: each)

    with progress.passes_noted(Tvm):
        assert contexts == []  # there is no step to tell
    with progress.step("compile"), progress.passes_noted(Tvm):
        (options,) = contexts
        (instrument,) = options.pop("instruments")
        assert options == dict(
            opt_level=2, required_pass=["a"], disabled_pass=["b"], config={"c": 1}
        )
        instrument.run_before_pass(None, type("Info", (), {"name": "FuseOps"}))
        assert progress._current.get().console._note == "1 passes, now FuseOps"
        Context.instruments = ["the user's"]
        with progress.passes_noted(Tvm):
            assert len(contexts) == 1
