# SPDX-License-Identifier: Apache-2.0
"""The conformance cases of the `onnx` package on oneDNN."""

import collections
import pathlib

import pytest
import tvm
from tvm.contrib.onednn import cpu

from dnnl_tests.onnx import conformance

# Cases that TVM itself does not pass; renewed by `python -m dnnl_tests.onnx.conformance --write`.
KNOWN = pathlib.Path(__file__).with_name("known.txt")
# The list is that of the TVM that the prebuilt tree has.
PREBUILT = "0.16.dev0"

# All cases of a class are run for its first test.
pytestmark = pytest.mark.timeout(3600)


class Outcomes:
    """What became of the cases that `names` returns, and how many must be run and pass at least."""

    CASES, PASS = 0, 0

    @classmethod
    def names(cls):
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def outcomes(cls):
        return conformance.run_all(cls.names())

    def test_no_case_fails_because_of_dnnl(self, outcomes):
        wrong = {
            name: outcome.reason
            for name, outcome in outcomes.items()
            if outcome.kind == conformance.DNNL_FAILS
        }
        assert not wrong, wrong

    @pytest.mark.skipif(tvm.__version__ != PREBUILT, reason="the list is of another TVM")
    def test_the_known_failures_fail_and_no_others(self, outcomes):
        known = conformance.read_known(KNOWN)
        assert set(known) <= set(conformance.cases())
        known = {name: kind for name, kind in known.items() if name in outcomes}
        kinds = {name: out.kind for name, out in outcomes.items() if out.kind in conformance.KNOWN}
        assert {name: kind for name, kind in kinds.items() if name not in known} == {}, "new ones"
        # The list is of a CPU with all types; on others oneDNN is given nothing of some cases.
        if not all(map(cpu.computes, cpu.REAL)):
            known = {
                name: kind
                for name, kind in known.items()
                if outcomes[name].kind != conformance.NOT_OFFLOADED
            }
        assert sorted(set(known) - set(kinds)) == [], "these pass now: take them out of the list"
        assert kinds == known

    def test_enough_cases_run_on_onednn(self, outcomes):
        kinds = collections.Counter(outcome.kind for outcome in outcomes.values())
        print(conformance.summary(outcomes))
        assert len(outcomes) > self.CASES
        assert kinds[conformance.PASSES] > self.PASS, kinds
        ops = {op for outcome in outcomes.values() for op in outcome.offloaded}
        assert ops >= {"nn.conv2d", "nn.conv2d_transpose", "nn.dense", "nn.max_pool2d"}


class TestEachOp(Outcomes):
    """A case of each op and rank, and one for each way in which an op is known to fail."""

    CASES, PASS = 300, 100

    @classmethod
    def names(cls):
        return conformance.one_per_op(conformance.read_known(KNOWN))


@pytest.mark.nightly
@pytest.mark.slow
class TestFirstHalf(Outcomes):
    """Every second case; a file of their own has the others, so that two processes share them."""

    HALF, CASES, PASS = 0, 700, 275

    @classmethod
    def names(cls):
        return list(conformance.cases())[cls.HALF :: 2]


@pytest.mark.parametrize(
    "text, reason",
    [
        ("Traceback:\n  0: f()\nInternalError: Check failed: (a == b) is false: a is 1", "a is 1"),
        ("TVMError: TVMError: in f(): [20:48:29] /src/type.h:449: unknown type", "unknown type"),
        ("has free variables: [Var(x, ty=TensorType([3], float32))]", "has free variables"),
        ("these are not supported for frontend ONNX: Det, Col2Im", "these are not supported"),
        ("", ""),
    ],
)
def test_a_reason_is_short(text, reason):
    assert conformance._reason(ValueError(text)) == f"ValueError: {reason}".rstrip()


class TestTheRunner:
    """That failures are seen, on one case."""

    FOLDER = conformance.cases()["node/relu"]

    def test_a_case_that_passes(self):
        assert conformance.run_case(self.FOLDER) == (conformance.PASSES, "", ("nn.relu",))

    def test_wrong_numbers(self, monkeypatch):
        run = conformance.testing.run

        def wrong(mod, *args, **options):
            outputs = run(mod, *args, **options)
            return [x + 1 for x in outputs] if len(mod.get_global_vars()) > 1 else outputs

        monkeypatch.setattr(conformance.testing, "run", wrong)
        outcome = conformance.run_case(self.FOLDER)
        assert outcome == (conformance.DNNL_FAILS, "wrong numbers", ("nn.relu",))

    def test_wrong_with_and_without(self, monkeypatch):
        monkeypatch.setattr(conformance.testing, "run", lambda *args, **options: [])
        outcome = conformance.run_case(self.FOLDER)
        assert outcome.kind == conformance.TVM_FAILS
        assert outcome.reason == "0 outputs instead of 1"

    def test_the_list_is_read_as_it_was_written(self, tmp_path):
        outcomes = {
            "node/a": conformance.Outcome(conformance.NOT_IMPORTED, "no [converter] for A"),
            "node/b": conformance.Outcome(conformance.PASSES),
            "node/c": conformance.Outcome(conformance.CRASHES, "code -11"),
            **{f"node/d{i}": conformance.Outcome(conformance.TVM_FAILS, "x") for i in range(30)},
        }
        path = tmp_path / "known.txt"
        conformance.write_known(path, outcomes, "# Head.")
        assert path.read_text().startswith("# Head.\n\n[not imported] no [converter] for A\n")
        wanted = {"node/a": conformance.NOT_IMPORTED, "node/c": conformance.CRASHES}
        wanted.update((f"node/d{i}", conformance.TVM_FAILS) for i in range(30))
        assert conformance.read_known(path) == wanted
        assert max(map(len, path.read_text().splitlines())) <= conformance.COLUMNS
