# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""The backend of `torch.compile`: graphs of TorchDynamo as Relax modules, or in PyTorch."""

from __future__ import annotations

import threading
import warnings

import torch
import tvm
from torch._guards import tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from tvm import relax

from .weights import Watch

#: A graph is compiled for each set of weights and shapes, at most this often.
_MAX_VARIANTS = 16
#: TVM's kernels and oneDNN's read tensors from such addresses, as PyTorch and TVM allocate them.
_ALIGNMENT = 64


class Unsupported(Exception):
    """A graph that only PyTorch can run, for the reason in the message."""


class Graph:
    """A graph of TorchDynamo, which compiles itself when it is called.

    Parameters
    ----------
    module : torch.fx.GraphModule
        The graph.
    build : callable
        Returns the executable of a `torch.export.ExportedProgram`.
    """

    def __init__(self, module, build):
        self.module, self.build = module, build
        self._own = [*module.parameters(), *module.buffers()]
        nodes = module.graph.find_nodes(op="placeholder")
        self._is_static = [_is_static(node) for node in nodes]
        self._variants, self._lock = {}, threading.Lock()
        self._name = f"a graph of {sum(n.op.startswith('call') for n in module.graph.nodes)} ops"
        self._warned = set()

    def __call__(self, *args):
        reason = self._eager_reason(args)
        if reason:
            return self._in_pytorch(reason)(*args)
        with self._lock:
            key = tuple(map(_key, args, map(self._is_weight, range(len(args)), args)))
            key += tuple(_key(each, True) for each in self._own)
            run = self._variants.get(key)
            if run is not None and self._has_other_weights(run):
                del self._variants[key]
                run = None
            if run is None:
                run = self._variants[key] = self._compile(args)
            return run(*args)

    def _has_other_weights(self, run) -> bool:
        """Tell whether weights were changed in a way that their versions do not count."""
        watch = getattr(run, "watch", None)
        if not isinstance(watch, Watch):
            return False  # PyTorch runs this graph
        if watch.is_changed():
            return True
        if not watch.is_part_changed():
            return False
        message = (
            f"tvm_dnnl: a few elements of the weights of {self._name} were changed through `.data` "
            "or numpy, which is not noticed at once: earlier results may be of the old weights"
        )
        warnings.warn(message, RuntimeWarning, stacklevel=4)
        return True

    def _is_weight(self, i, arg):
        return self._is_static[i] or isinstance(arg, torch.nn.Parameter)

    def _eager_reason(self, args):
        """Return why PyTorch must run a call, or None."""
        tensors = [each for each in (*args, *self._own) if isinstance(each, torch.Tensor)]
        if torch.is_grad_enabled() and any(each.requires_grad for each in tensors):
            return "gradients are enabled; call it within torch.no_grad() or inference_mode()"
        if torch.is_autocast_enabled("cpu"):
            return 'autocast is enabled; use options={"precision": "bfloat16"} instead'
        if any(each.device.type != "cpu" for each in tensors):
            return "its tensors are not on the CPU"
        return None

    def _in_pytorch(self, reason):
        if reason not in self._warned:
            self._warned.add(reason)
            message = f"tvm_dnnl: {self._name} runs in PyTorch: {reason}"
            warnings.warn(message, RuntimeWarning, stacklevel=3)
        return self.module

    def _compile(self, args):
        """Return what runs calls with these weights and shapes."""
        if len(self._variants) >= _MAX_VARIANTS:
            return self._in_pytorch(f"it was called with more than {_MAX_VARIANTS} shapes")
        try:
            # The state of the trace that this graph is from is not that of its export.
            with tracing(None), torch.no_grad():
                return self._compiled(args)
        except Exception as error:  # PyTorch can run what cannot be compiled, whatever the reason
            lines = str(error).strip().splitlines() or [""]
            return self._in_pytorch(f"{type(error).__name__}: {lines[0]}")

    def _compiled(self, args):
        _check_aliases(self.module, args)
        is_input = [
            isinstance(arg, torch.Tensor) and not self._is_weight(i, arg)
            for i, arg in enumerate(args)
        ]
        inputs = tuple(arg for arg, chosen in zip(args, is_input) if chosen)
        traced = []
        frozen = _Frozen(self.module, args, is_input, traced.append)
        program = torch.export.export(frozen, inputs, strict=False)
        outputs = traced[-1]
        if all(outputs):
            raise Unsupported("it returns no tensor")
        executable = self.build(program)
        machine = relax.VirtualMachine(executable, tvm.cpu())
        main = machine["main"]

        def run(*args):
            result = main(*(_aligned(arg) for arg, chosen in zip(args, is_input) if chosen))
            result = list(result) if isinstance(result, (tuple, list, tvm.ir.Array)) else [result]
            tensors = iter([_as_torch(each) for each in result])
            return tuple(plain[0] if plain else next(tensors) for plain in outputs)

        run.weights = frozen  # The key has the identities of weights: they must stay alive.
        run.watch = Watch(each.detach() for each in (*frozen.buffers(), *self._own))
        return run


class _Frozen(torch.nn.Module):
    """A graph with constant weights and numbers, which returns tensors only.

    It calls `note` with a list: for each output, (value,) if it is not a tensor, and () otherwise.
    """

    def __init__(self, module, args, is_input, note):
        super().__init__()
        self.module, self.is_input, self.note = module, is_input, note
        self.plain = {}
        for i, arg in enumerate(args):
            if is_input[i]:
                continue
            if isinstance(arg, torch.Tensor):
                self.register_buffer(f"weight_{i}", arg.detach())
            else:
                self.plain[i] = arg

    def forward(self, *inputs):
        left, args = iter(inputs), []
        for i, chosen in enumerate(self.is_input):
            frozen = self.plain[i] if i in self.plain else getattr(self, f"weight_{i}", None)
            args.append(next(left) if chosen else frozen)
        results = self.module(*args)
        self.note([() if isinstance(each, torch.Tensor) else (each,) for each in results])
        return tuple(each for each in results if isinstance(each, torch.Tensor))


def _is_static(node):
    """Whether TorchDynamo passes a parameter or buffer of the model as an argument."""
    return node.meta.get("tensor_dict", {}).get("_dynamo_static_input_type") is not None


def _key(arg, is_weight):
    if not isinstance(arg, torch.Tensor):
        return arg
    if not is_weight:
        return arg.dtype, arg.shape
    # An inference tensor has no version; it cannot be changed outside of inference_mode().
    version = None if arg.is_inference() else arg._version
    return id(arg), arg.data_ptr(), version


def _check_aliases(module, args):
    """Refuse results that share memory with arguments or each other: a write would be seen."""
    mode = FakeTensorMode()
    with mode:
        fakes = [mode.from_tensor(x) if isinstance(x, torch.Tensor) else x for x in args]
    if any(True for _ in module.parameters()) or any(True for _ in module.buffers()):
        mode.allow_non_fake_inputs = True
    with mode:
        results = [each for each in module(*fakes) if isinstance(each, torch.Tensor)]
    seen = {_storage(each) for each in fakes if isinstance(each, torch.Tensor)}
    for i, result in enumerate(results):
        if _storage(result) in seen:
            raise Unsupported(f"result {i} is a view of an argument or of another result")
        seen.add(_storage(result))


def _storage(tensor):
    return tensor.untyped_storage()._cdata


def _aligned(tensor):
    """Return a tensor that TVM reads in place, which is the argument itself where it can be."""
    tensor = tensor.detach().contiguous()
    return tensor if tensor.data_ptr() % _ALIGNMENT == 0 else tensor.clone()


def _as_torch(tensor):
    return tensor if isinstance(tensor, torch.Tensor) else torch.from_dlpack(tensor)
