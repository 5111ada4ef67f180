# SPDX-License-Identifier: Apache-2.0
"""What the tests of PyTorch models share: export, import, and comparison with PyTorch."""

import numpy as np
import torch
import tvm_dnnl
from torch.utils._pytree import tree_leaves

from dnnl_relax.modules import compiled, composites, partitions, virtual_machine


def tensors(tree):
    """Return the tensors of nested tuples, lists and dicts."""
    return [each for each in tree_leaves(tree) if isinstance(each, torch.Tensor)]


def machine(mod):
    """Return the main function of a partitioned module."""
    return virtual_machine(compiled(mod))["main"]


def check(model, *calls, dynamic_shapes=None, **options):
    """Import a model, exported with the first of these arguments, and compare it with PyTorch.

    Parameters
    ----------
    model : torch.nn.Module
        The model, in `eval()`.
    calls : tuple
        Arguments; the model is run with each of them.
    dynamic_shapes : optional
        That of `torch.export.export`.
    options
        Those of `partition_for_dnnl`.

    Returns
    -------
    figures : tuple of int
        The ops on oneDNN, all ops, and the partitions.
    composites : collections.Counter
        The composites by name.
    """
    program = torch.export.export(model, calls[0], dynamic_shapes=dynamic_shapes)
    mod = tvm_dnnl.partition_for_dnnl(tvm_dnnl.from_exported_program(program), **options)
    main = machine(mod)
    for args in calls:
        with torch.no_grad():
            want = tensors(model(*args))
        got = main(*tensors(args))
        got = [got] if isinstance(got, torch.Tensor) else list(got)
        assert len(got) == len(want)
        for one, other in zip(got, want):
            # float32 sums in another order: so many roundings of an element, or of the largest one.
            wanted = other.numpy()
            largest = np.abs(wanted[np.isfinite(wanted)]).max(initial=1)
            np.testing.assert_allclose(one.numpy(), wanted, rtol=1e-4, atol=1e-5 * largest)
    report = tvm_dnnl.offload_report(mod)
    return (report.offloaded, report.total, partitions(mod)), composites(mod)
