# SPDX-License-Identifier: Apache-2.0
"""An ONNX file that the user named: what it reads, and how TVM imports it."""

import numpy as np

from scripts import options
from scripts.errors import SetupError


class OnnxModel:
    """A model as an ONNX file has it.

    Parameters
    ----------
    path : str
        The file.
    shapes : dict of str to tuple of int
        Shapes of inputs that have no fixed one, or another; also sizes of named dimensions.
    constants : dict of str to number
        Values of inputs that the imported module does not have.

    Attributes
    ----------
    proto : onnx.ModelProto
        The model, with the given shapes.
    shapes : dict of str to list
        By input its dimensions, "?" for an open one.
    """

    def __init__(self, path, shapes=(), constants=()):
        from tvm.contrib.onednn.frontend import prepare

        self.path, self.constants = path, dict(constants)
        try:
            self.proto = prepare.load(path)
        except OSError as error:
            raise SetupError(
                f"cannot read {path}: {error.strerror}", "name another file."
            ) from error
        except Exception as error:  # of the file, or of those with its weights
            raise SetupError(str(error), "name another file.") from error
        inputs = prepare.inputs(self.proto)
        self._types = {item.name: item.type.tensor_type for item in inputs}
        self.given = prepare.shapes_by_name(self.proto, dict(shapes).items())
        try:
            prepare.set_shapes(self.proto, self.given)
        except ValueError as error:
            raise SetupError(f"--{error}", f"{path} is the model.") from error
        self.shapes = {
            name: [dim.dim_value if dim.HasField("dim_value") else "?" for dim in each.shape.dim]
            for name, each in self._types.items()
        }

    def open_inputs(self):
        """Yield for each input with an open dimension its name and how to give it a shape."""
        for name, sizes in self.shapes.items():
            if "?" in sizes:
                yield name, f"--shape {name}={','.join(map(str, sizes))} with numbers"

    def to_relay(self):
        """Import the model into Relay; return the module and its parameters."""
        from tvm.relay.op.contrib.dnnl import from_onnx

        return self._imported(lambda: from_onnx(self.proto, constants=self.constants))

    def to_relax(self):
        """Import the model into Relax; return the module."""
        from tvm_dnnl import from_onnx

        return self._imported(lambda: from_onnx(self.proto, constants=self.constants))

    def _imported(self, load):
        return _imported(f"TVM's ONNX importer cannot read {self.path}", load)

    def example(self, seed=0):
        """Return random inputs by name: floating-point values in [-1, 1], and integers of 0 and 1.

        Such integers are valid as indices, too. An input with an open dimension is an error.
        """
        import onnx

        for _, advice in self.open_inputs():
            raise SetupError("an input has no fixed shape", f"give {advice}.")
        types = {}
        for name, shape in self.shapes.items():
            dtype = onnx.helper.tensor_dtype_to_np_dtype(self._types[name].elem_type)
            if dtype.kind not in "fiub":
                raise SetupError(f"input {name} of {self.path} is not a tensor of numbers")
            types[name] = shape, dtype
        return random_inputs(types, seed)


def random_inputs(types, seed):
    """Return inputs by name, of shapes and types by name, as `OnnxModel.example` draws them."""
    random, values = np.random.default_rng(seed), {}
    for name, (shape, dtype) in types.items():
        is_integer = np.dtype(dtype).kind in "iub"
        drawn = random.integers(0, 2, shape) if is_integer else random.uniform(-1.0, 1.0, shape)
        values[name] = drawn.astype(dtype)
    return values


def relax_module(path, shapes=()):
    """Import a file of any kind into Relax; return the module."""
    if options.is_onnx(path):
        return OnnxModel(path, shapes).to_relax()
    from tvm_dnnl import from_file

    return _imported(f"{path} cannot be imported", lambda: from_file(path, dict(shapes) or None))


def _imported(what, load):
    try:
        return load()
    except Exception as error:  # of whatever kind: the importers of TVM check little
        raise SetupError(
            what,
            "docs/import.md#if-a-model-does-not-import and docs/trouble_shooting.md list remedies; "
            "the end of the error is above.",
            "\n".join(str(error).strip().splitlines()[-4:]),
        ) from error
