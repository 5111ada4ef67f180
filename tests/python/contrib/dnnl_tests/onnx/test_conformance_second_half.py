# SPDX-License-Identifier: Apache-2.0
"""The other half of the conformance cases, see `test_conformance`."""

from dnnl_tests.onnx import test_conformance

pytestmark = test_conformance.pytestmark


class TestSecondHalf(test_conformance.TestFirstHalf):
    """The cases that the first half leaves out."""

    HALF = 1
