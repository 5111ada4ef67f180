# SPDX-License-Identifier: Apache-2.0
"""Wrong arguments: the error names them and says what to do."""

import pytest
from tvm.relay.op.contrib import dnnl

from dnnl_tests import wrong_arguments


@pytest.fixture(scope="module", name="files")
def prepared_files(tmp_path_factory):
    return wrong_arguments.prepared(dnnl, tmp_path_factory.mktemp("files"))


@wrong_arguments.parametrized
def test_wrong_arguments(files, case):
    wrong_arguments.check(files, case)
