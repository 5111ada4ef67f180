# SPDX-License-Identifier: Apache-2.0
"""Generates tokens: one run for the prompt, and one for each token with the cache of those before.

A decoder is a function of the model's inputs in their order that returns its results. Keys and
values stay what the runtime returned them as, so that they need not be copied.
"""

import dataclasses
import time

import numpy as np
from dnnl_tests.models import llama

from scripts.errors import SetupError


@dataclasses.dataclass
class Sampler:
    """Chooses a token by its logits.

    With temperature 0 it is the most probable one. Else tokens are drawn by logits that are divided
    by it, only from the most probable ones that have the probability `top_p` together.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self):
        self._random = np.random.default_rng(self.seed)

    def __call__(self, logits):
        """Return the token that is chosen by logits (vocabulary,)."""
        if self.temperature == 0:
            return int(logits.argmax())
        scaled = logits.astype("float64") / self.temperature
        shares = np.exp(scaled - scaled.max())
        shares /= shares.sum()
        order = np.argsort(-shares, kind="stable")
        ascending = np.cumsum(shares[order])
        # The token with which the sum is reached is one of them.
        order = order[: 1 + np.searchsorted(ascending, self.top_p)]
        kept = shares[order]
        return int(self._random.choice(order, p=kept / kept.sum()))


def generate(decoder, config, ids, count, choose=None, end=None):
    """Yield new tokens, and the seconds of the run that each is the result of.

    Parameters
    ----------
    decoder : callable
        Accepts the inputs of `llama.model`, and returns its results.
    config : llama.Config
        The sizes.
    ids : list of int
        The prompt.
    count : int
        The most new tokens.
    choose : callable, optional
        Accepts the logits of a position; returns a token. By default it is the most probable.
    end : int, optional
        The token after which nothing is generated.
    """
    if not ids or len(ids) + count > config.context:
        raise SetupError(
            f"a prompt of {len(ids)} tokens with {count} new ones: at least one token is needed, "
            f"and the model has {config.context} positions",
            "use another prompt, or fewer new tokens.",
        )
    choose, cache, new = choose or Sampler(), None, ids
    for _ in range(count):
        inputs = llama.inputs(config, new, cache)
        begin = time.perf_counter()
        logits, *cache = decoder(*inputs.values())
        logits = logits.numpy() if hasattr(logits, "numpy") else logits
        seconds = time.perf_counter() - begin
        new = [choose(logits[0, -1])]
        yield new[0], seconds
        if new[0] == end:
            return


def relax_decoder(path):
    """Load a compiled model; return the function that runs it on Relax's virtual machine."""
    import tvm
    import tvm_dnnl  # noqa: F401  (registers the runtime of oneDNN)
    from tvm import relax

    # The pool would keep the keys and values of each length that is no longer needed.
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(path)), tvm.cpu(), "naive")
    main, tensor = machine["main"], tvm.runtime.tensor

    def run(*inputs):
        return main(*[tensor(each) if isinstance(each, np.ndarray) else each for each in inputs])

    return run


def onnxruntime_decoder(path, threads):
    """Return a function that runs an ONNX file on onnxruntime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    return lambda *inputs: session.run(None, dict(zip(names, inputs)))
