# SPDX-License-Identifier: Apache-2.0
"""Wrong arguments: the error names them and says what to do."""

import pytest
import tvm_dnnl
from dnnl_tests import wrong_arguments
from dnnl_tests.wrong_arguments import X


@pytest.fixture(scope="module", name="files")
def prepared_files(tmp_path_factory):
    return wrong_arguments.prepared(tvm_dnnl, tmp_path_factory.mktemp("files"))


@wrong_arguments.parametrized
def test_wrong_arguments(files, case):
    wrong_arguments.check(files, case)


CACHED = {
    "folder": (lambda m, f: m(f.onnx, folder=f.onnx), OSError, "folder: .* name another one"),
    "no-folder": (lambda m, f: m(f.onnx, folder=None), TypeError, "folder must be a str"),
    "path": (lambda m, f: m(f.mod, folder=f.folder), TypeError, "path must be a str.* IRModule"),
    "shape": (
        lambda m, f: m(f.onnx, folder=f.folder, shape=[1]),
        TypeError,
        "shape must be a dict",
    ),
    "text": (lambda m, f: m(f.text, folder=f.folder), ValueError, "it is a text"),
}


@pytest.mark.parametrize("call, error, message", CACHED.values(), ids=CACHED.keys())
def test_wrong_arguments_of_cached_model(files, call, error, message):
    with pytest.raises(error, match=message):
        call(tvm_dnnl.cached_model, files)


def test_what_is_no_program_of_torch_export(files):
    with pytest.raises(TypeError, match="ExportedProgram .`from_file` reads a file., not str"):
        tvm_dnnl.from_exported_program("m.pt2")
    with pytest.raises(TypeError, match="path must be a str or an os.PathLike, not NoneType"):
        tvm_dnnl.from_file(None)


def test_options_of_torch_compile():
    with pytest.raises(TypeError, match="no option 'precison'; did you mean 'precision'"):
        tvm_dnnl.torch_backend(None, [], options={"precison": "auto"})
    with pytest.raises(ValueError, match="target: TVM does not know 'f'"):
        tvm_dnnl.torch_backend(None, [], options={"target": "f"})


def test_values_that_no_parameter_has_are_warned_of(files):
    with pytest.warns(UserWarning, match="1 of 2 names .* are ignored: no; main has x"):
        tvm_dnnl.partition_for_dnnl(files.mod, {"no": X, "x": X})
