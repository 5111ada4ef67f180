# SPDX-License-Identifier: Apache-2.0
"""Graphs of one kernel node, made without TVM's compiler and run by the JSON runtime."""

import json

import numpy as np
import tvm

SYMBOL = "kernel"


def _operand_node(name, array, dtype, is_constant):
    attrs = {"dtype": [[dtype]], "shape": [[list(array.shape)]]}
    return {"op": "const" if is_constant else "input", "name": name, "attrs": attrs}


def _tensor(array, dtype):
    """Return an array as a tensor of a type that numpy may lack."""
    if dtype != "bfloat16":
        return tvm.nd.array(array.astype(dtype))
    words = (array.astype("float32").view("uint32") >> 16).astype("uint16")
    return tvm.nd.empty(array.shape, dtype).copyfrom(words)


def run_kernel(
    op,
    inputs,
    attrs=None,
    post_ops=(),
    shape=None,
    dtype=None,
    reads=None,
    constants=(),
    steps=None,
):
    """Run one kernel node on arrays and return its result.

    Parameters
    ----------
    op : str
        The op, or the root op of a composite.
    inputs : list[numpy.ndarray]
        What the op reads, followed by the operands of the post-ops.
    attrs : dict[str, list[str]] | None
        Attributes of the op, and under "post_ops.<i>." those of the post-ops.
    post_ops : sequence of str
        What is fused to the op. A binary one is given its operand by `attrs`.
    shape, dtype : tuple[int, ...], str | None
        Of the result; None for those of the first input.
    reads : str | sequence of str | None
        The type that all inputs are rounded to, or that of each; None for their own.
    constants : collection of int
        Which of the inputs are constants.
    steps : list | None
        Is extended by the primitives of the plan.

    Returns
    -------
    numpy.ndarray
        Of bfloat16 as float32.
    """
    shape = tuple(inputs[0].shape if shape is None else shape)
    dtypes = [reads] * len(inputs) if isinstance(reads, str) else reads
    dtypes = dtypes or [str(array.dtype) for array in inputs]
    dtype = dtype or dtypes[0]
    given = {name: [values] for name, values in (attrs or {}).items()}
    kernel = {
        "op": "kernel",
        "name": op,
        "inputs": [[i, 0, 0] for i in range(len(inputs))],
        "attrs": {
            "num_inputs": str(len(inputs)),
            "num_outputs": "1",
            "dtype": [[dtype]],
            "shape": [[list(shape)]],
            **given,
        },
    }
    if post_ops:
        kernel["attrs"].update(root_op=[[op]], post_ops=[list(post_ops)])
    nodes = [
        _operand_node(f"{SYMBOL}_i{i}", array, of, i in constants)
        for i, (array, of) in enumerate(zip(inputs, dtypes))
    ]
    nodes.append(kernel)
    graph = {
        "symbol": SYMBOL,
        "nodes": nodes,
        "arg_nodes": list(range(len(inputs))),
        "heads": [[len(inputs), 0, 0]],
        "node_row_ptr": list(range(len(nodes) + 1)),
    }
    create = tvm.get_global_func("runtime.DNNLJSONRuntimeCreate")
    module = create(SYMBOL, json.dumps(graph), [f"{SYMBOL}_i{i}" for i in constants])
    tensors = list(map(_tensor, inputs, dtypes))
    assert module.get_function("__init_" + SYMBOL)([tensors[i] for i in constants]) == 0
    if steps is not None:
        steps += json.loads(module.get_function("get_plan")())["primitives"]
    result = tvm.nd.empty(shape, dtype)
    given = [tensor for i, tensor in enumerate(tensors) if i not in constants]
    module.get_function(SYMBOL)(*given, result)
    values = result.numpy()
    if dtype != "bfloat16":
        return values
    return (values.astype("uint32") << 16).view("float32")


def outer_product(values, columns=24):
    """Return two matrices whose product has `values` in each column, exactly.

    What is fused to a matmul sees any number so: NaN and infinities, too.
    """
    values = np.asarray(values, "float32").reshape(-1, 1)
    return values, np.ones((1, columns), "float32")
