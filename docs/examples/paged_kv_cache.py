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
"""A Llama with TVM's PagedKVCache, written with `relax.frontend.nn`, on oneDNN.

    python paged_kv_cache.py

Weights are random; `generate` accepts others by their names in `Llama`.
"""

import numpy as np
import tvm
import tvm_dnnl
from tvm import relax
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op, spec
from tvm.relax.frontend.nn.llm.kv_cache import PagedKVCache, RopeMode, TIRPagedKVCache

SIZES = {"layers": 2, "width": 64, "hidden": 96, "heads": 4, "groups": 2, "vocabulary": 128}
CACHE_SIZES = ("sequences", "context", "chunk", "page", "sliding_window")


class Layer(nn.Module):
    """Attention and an MLP."""

    def __init__(self, index, width, hidden, heads, groups, **_):
        self.index, self.heads, self.groups, self.size = index, heads, groups, width // heads
        self.qkv = nn.Linear(width, (heads + 2 * groups) * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate_up = nn.Linear(width, 2 * hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)
        self.norm = nn.RMSNorm(width, -1, 1e-5, bias=False)
        self.mlp_norm = nn.RMSNorm(width, -1, 1e-5, bias=False)

    def forward(self, x, cache):
        batch, length, width = x.shape
        heads = self.heads + 2 * self.groups
        qkv = op.reshape(self.qkv(self.norm(x)), (batch, length, heads, self.size))
        y = cache.attention_with_fused_qkv(self.index, qkv, self.heads, self.size**-0.5)
        x = x + self.out(op.reshape(y, (batch, length, width)))
        gate, up = op.split(self.gate_up(self.mlp_norm(x)), 2, axis=-1)
        return x + self.down(op.silu(gate) * up)


class Llama(nn.Module):
    """The layers, and the cache that they share."""

    def __init__(self, sizes):
        self.sizes, width = sizes, sizes["width"]
        self.embedding = nn.Embedding(sizes["vocabulary"], width)
        self.layers = nn.ModuleList([Layer(n, **sizes) for n in range(sizes["layers"])])
        self.norm = nn.RMSNorm(width, -1, 1e-5, bias=False)
        self.head = nn.Linear(width, sizes["vocabulary"], bias=False)

    def run(self, ids: nn.Tensor, cache: PagedKVCache):
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x, cache)
        return self.head(self.norm(x)), cache

    def create_cache(self, sequences, context, chunk, page, sliding_window):
        heads, size = self.sizes["heads"], self.sizes["width"] // self.sizes["heads"]
        return TIRPagedKVCache(
            "mha",
            *(sequences, context, chunk, page, sliding_window),
            layer_partition=relax.ShapeExpr([0, self.sizes["layers"]]),
            num_hidden_layers=self.sizes["layers"],
            num_attention_heads=heads,
            num_key_value_heads=self.sizes["groups"],
            qk_head_dim=size,
            v_head_dim=size,
            mla_original_qk_head_dim=0,
            mla_original_v_head_dim=0,
            rope_mode=RopeMode.NORMAL,
            rope_scale=1,
            rope_theta=10000,
            rope_scaling={},
            rope_ext_factors=relax.prim_value(0),
            rotary_dim=size,
            enable_disaggregation=False,
            dtype="float32",
            target=tvm.target.Target("llvm"),
        )


def module(sizes):
    """Return the module, and its parameters' names and sizes."""
    # One function for the prompt and for tokens, whose weights are arguments with names.
    run = {"ids": spec.Tensor([1, "length"], "int32"), "cache": spec.Object(PagedKVCache)}
    functions = {"run": run, "create_cache": dict.fromkeys(CACHE_SIZES, int)}
    modes = {"run": "plain", "create_cache": "none"}
    for name, mode in modes.items():
        functions[name] = {**functions[name], "$": {"param_mode": mode, "effect_mode": "none"}}
    return Llama(sizes).export_tvm(spec=functions)


def decoder(sizes, weights, context=256, page=16):
    """Return a function from new tokens to logits; keys and values remain in the cache."""
    mod, _ = module(sizes)
    params = {name: tvm.runtime.tensor(value) for name, value in weights.items()}
    # With the weights as constants oneDNN packs these once.
    mod = tvm_dnnl.partition_for_dnnl(mod, params)
    library = tvm.compile(relax.transform.RunCodegen()(mod), target="llvm")
    machine = relax.VirtualMachine(library, tvm.cpu(), memory_cfg="naive")
    shape = tvm.runtime.ShapeTuple
    cache = machine["create_cache"](*(shape([n]) for n in (1, context, context, page, 0)))
    state = {name: tvm.get_global_func(f"vm.builtin.kv_state_{name}") for name in STATE}
    state["add_sequence"](cache, 0)

    def run(ids):
        state["begin_forward"](cache, shape([0]), shape([len(ids)]))
        logits, _ = machine["run"](tvm.runtime.tensor(np.array([ids], "int32")), cache)
        state["end_forward"](cache)
        return logits.numpy()

    return run


STATE = ("add_sequence", "begin_forward", "end_forward")


def generate(sizes, weights, prompt, count):
    """Return the most probable tokens after a prompt."""
    run, new, tokens = decoder(sizes, weights), list(prompt), []
    for _ in range(count):
        new = [int(run(new)[0, -1].argmax())]
        tokens += new
    return tokens


def random_weights(sizes):
    """Return weights by their names."""
    random = np.random.default_rng(0)
    params = module(sizes)[1]
    shapes = {name: [int(size) for size in param.shape] for name, param in params}
    return {
        name: (random.standard_normal(shape) / shape[-1] ** 0.5).astype("float32")
        for name, shape in shapes.items()
    }


if __name__ == "__main__":
    print(*generate(SIZES, random_weights(SIZES), [3, 5, 9], 8))
