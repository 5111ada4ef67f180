# SPDX-License-Identifier: Apache-2.0
"""A TFLite model or a program of PyTorch in the runtime that it was written for, in a worker."""

from scripts.bench import measure

_CALLS = []


def load(path, threads, inputs):
    """Load a file; return why it does not run here, "" if it does."""
    _CALLS[:] = []
    try:
        call = (_program if path.endswith(".pt2") else _interpreter)(path, threads, inputs)
    except ImportError as error:
        package = "torch" if path.endswith(".pt2") else "ai-edge-litert"
        return f"{error}: build/relax/venv/bin/pip install {package}"
    _CALLS.append(call)
    return ""


def _program(path, threads, inputs):
    import torch

    torch.set_num_threads(threads)
    module = torch.export.load(path).module()

    def call(inputs):
        with torch.no_grad():
            result = module(*map(torch.from_numpy, inputs.values()))
        leaves = torch.utils._pytree.tree_leaves(result)
        return [each.float() if each.dtype == torch.bfloat16 else each for each in leaves]

    return call


def _interpreter(path, threads, inputs):
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(path, num_threads=threads)
    numbers = [detail["index"] for detail in interpreter.get_input_details()]
    for number, value in zip(numbers, inputs.values(), strict=True):
        interpreter.resize_tensor_input(number, value.shape)
    interpreter.allocate_tensors()
    results = [detail["index"] for detail in interpreter.get_output_details()]

    def call(inputs):
        for number, value in zip(numbers, inputs.values()):
            interpreter.set_tensor(number, value)
        interpreter.invoke()
        return [interpreter.get_tensor(number) for number in results]

    return call


def run(inputs):
    """Run the file once; return the outputs."""
    (call,) = _CALLS
    return [each if hasattr(each, "astype") else each.numpy() for each in call(inputs)]


def sample(inputs, repeat):
    """Time runs."""
    (call,) = _CALLS
    return measure.sample(lambda: call(inputs), repeat)
