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
"""Mixtures of experts of com.microsoft, written as ops of the standard.

Each token is multiplied by the weights of all experts, as in mixtures of PyTorch: what selects rows
by values that are computed would stay on TVM.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .node_info import Decomposition, NodeInfo


def unpack(packed: np.ndarray, bits: int) -> np.ndarray:
    """Return values of uint8 of which each byte of the last axis has several."""
    shifts = np.arange(0, 8, bits, dtype="uint8")
    values = (packed[..., None] >> shifts) & np.uint8(2**bits - 1)
    return values.reshape(*packed.shape[:-1], -1)


def _moe(node: NodeInfo):
    for number in (6, 7):
        node.require(not node.has(number), "fc3, the weights of a third matmul,")
    operands = {"w1": 2, "b1": 3, "w2": 4, "b2": 5}
    given = {name: f"x{number}" for name, number in operands.items() if node.has(number)}
    return _mixture(node, given, {}, bool(node.attrs.get("normalize_routing_weights", 0)))


def _quantized_moe(node: NodeInfo):
    """Dequantize the weights."""
    for number in (8, 9, 10, 13):
        node.require(not node.has(number), "fc3, the weights of a third matmul,")
    node.require(not any(map(node.has, range(15, 21))), "a global scale or scale of activations")
    node.require(node.text("quant_type", "int") == "int", f"quant_type={node.text('quant_type')}")
    node.require(node.attrs.get("weights_prepacked", 0) <= 0, "weights_prepacked=1")
    constants, dtype = {}, node.dtype(0)
    for name, first, zero, key in (("w1", 2, 11, "fc1"), ("w2", 5, 12, "fc2")):
        bits = node.attrs.get("expert_weight_bits", 4)
        bits = node.attrs.get(f"{key}_expert_weight_bits", bits)
        node.require(bits in (2, 4, 8), f"{bits} bits, other than 2, 4 and 8,")
        values = unpack(node.constant(first, f"{key}_experts_weights"), bits).astype("float32")
        scales = node.constant(first + 1, f"{key}_scales").astype("float32")
        experts, rows, columns = values.shape
        scales = scales.reshape(experts, rows, -1)
        middle = np.array(2 ** (bits - 1), "float32")
        if node.has(zero):
            packed = unpack(node.constant(zero, f"{key}_zero_points"), bits)
            # Without blocks, the rows of an expert are packed; else the blocks of a row.
            count = scales.shape[2] if packed.ndim == 3 else rows
            middle = packed[..., :count].reshape(scales.shape)[..., None].astype("float32")
        blocks = values.reshape(*scales.shape, -1)
        values = ((blocks - middle) * scales[..., None]).reshape(experts, rows, columns)
        constants[name] = values.astype(dtype)
    given = {name: f"x{number}" for name, number in {"b1": 4, "b2": 7}.items() if node.has(number)}
    # onnxruntime always normalizes the probabilities of the router itself.
    is_normalized = bool(node.attrs.get("normalize_routing_weights", 0)) or not node.has(14)
    return _mixture(node, {**given, "w1": "w1", "w2": "w2"}, constants, is_normalized)


#: Attributes that are read; data stays in floating point at any accuracy_level.
_ATTRIBUTES = {
    *(
        "accuracy_level",
        "activation_alpha",
        "activation_beta",
        "activation_type",
        "block_size",
        "k",
    ),
    *("expert_weight_bits", "fc1_expert_weight_bits", "fc2_expert_weight_bits"),
    *("normalize_routing_weights", "quant_type", "swiglu_fusion", "swiglu_limit"),
    *("swiglu_limit_after_activation", "use_sparse_mixer", "weights_prepacked"),
}

#: Of a hidden value h.
_ACTIVATIONS = {
    "relu": "act = Relu(h)",
    "silu": "gate = Sigmoid(h) act = Mul(h, gate)",
    "identity": "act = Identity(h)",
    "gelu": """h2 = Mul(h, h) h3 = Mul(h2, h) part = Mul(h3, cubic) inner = Add(h, part)
        scaled = Mul(inner, root) curve = Tanh(scaled) above = Add(curve, one)
        gate = Mul(above, half) act = Mul(h, gate)""",
}


def _mixture(
    node: NodeInfo, given: dict[str, str], constants: dict[str, np.ndarray], is_normalized
):
    """Return the body of a mixture.

    Parameters
    ----------
    node : NodeInfo
        The node.
    given : dict[str, str]
        The names of weights and biases: inputs or constants.
    constants : dict[str, np.ndarray]
        Constants by name.
    is_normalized : bool
        Whether the shares of the experts of a token are divided by their sum.
    """
    kind, fusion = node.text("activation_type", "relu"), node.attrs.get("swiglu_fusion", 0)
    node.require_neutral({"use_sparse_mixer": 0, "swiglu_limit_after_activation": 0})
    for name in sorted(node.attrs.keys() - _ATTRIBUTES):
        node.require(False, f"{name}={node.attrs[name]}")
    is_gated = kind == "swiglu"
    node.require(is_gated or kind in _ACTIVATIONS, f"activation_type={kind}")
    node.require(not is_gated or fusion in (1, 2), f"swiglu_fusion={fusion}, without fc3,")
    shape, dtype = node.shape(0), node.dtype(0)
    experts = node.known(node.shape(1)[-1], "the number of experts")
    numbers = {"zero": 0, "one": 1, "half": 0.5, "cubic": 0.044715, "root": np.sqrt(2 / np.pi)}
    constants = {**constants, **{k: np.array(v, dtype) for k, v in numbers.items()}}
    constants.update(
        rows=np.array([1, -1, node.known(shape[-1], "the last axis")]),
        count=np.array([node.attrs.get("k", 1)]),
        numbers=np.arange(experts),
        **{f"axis{k}": np.array([k]) for k in range(3)},
    )
    nodes = [
        "x = Reshape(x0, rows) all = Softmax <axis = -1> (x1)",
        "top, at = TopK <axis = -1> (all, count)",
    ]
    share = "top"
    if node.has(14):
        nodes.append("top2 = GatherElements <axis = 1> (x14, at)")
        share = "top2"
    if is_normalized:
        nodes.append(f"sum = ReduceSum({share}, axis1) normal = Div({share}, sum)")
        share = "normal"
    nodes.append(f"""column = Unsqueeze(at, axis2) is_own = Equal(column, numbers)
        each = Unsqueeze({share}, axis2) owned = Where(is_own, each, zero)
        shares = ReduceSum <keepdims = 0> (owned, axis1) turned = Transpose <perm = [1, 0]> (shares)
        factors = Unsqueeze(turned, axis2)""")

    def dense(result, data, weight, bias):
        nodes.append(f"{result}_t = Transpose <perm = [0, 2, 1]> ({weight})")
        nodes.append(f"{result}{'_m' if bias else ''} = MatMul({data}, {result}_t)")
        if bias:
            nodes.append(f"{result}_b = Unsqueeze({bias}, axis1)")
            nodes.append(f"{result} = Add({result}_m, {result}_b)")

    if is_gated:
        parts = {"g": (0, 2**31, 2), "l": (1, 2**31, 2)}
        if fusion == 2:
            size = node.known(node.shape(2)[1], "the hidden size") // 2
            parts = {"g": (0, size, 1), "l": (size, 2 * size, 1)}
        for name, bounds in parts.items():
            constants.update({f"{name}_{k}": np.array([v]) for k, v in zip("abc", bounds)})
            at = f"{name}_a, {name}_b, axis1, {name}_c"
            nodes.append(f"w1_{name} = Slice({given['w1']}, {at})")
            bias = f"b1_{name}" if "b1" in given else None
            if bias:
                nodes.append(f"{bias} = Slice({given['b1']}, {at})")
            dense(f"h_{name}", "x", f"w1_{name}", bias)
        gate, up = "h_g", "h_l"
        if "swiglu_limit" in node.attrs:
            limit = node.attrs["swiglu_limit"]
            constants.update(limit=np.array(limit, dtype), lowest=np.array(-limit, dtype))
            nodes.append("g = Min(h_g, limit) l = Clip(h_l, lowest, limit)")
            gate, up = "g", "l"
        numbers = {"alpha": node.attrs.get("activation_alpha", 1.0)}
        numbers["beta"] = node.attrs.get("activation_beta", 0.0)
        constants.update({name: np.array(value, dtype) for name, value in numbers.items()})
        nodes.append(
            f"""scaled = Mul({gate}, alpha) open = Sigmoid(scaled) swish = Mul({gate}, open)
            shifted = Add({up}, beta) act = Mul(swish, shifted)"""
        )
    else:
        dense("h", "x", given["w1"], given.get("b1"))
        nodes.append(_ACTIVATIONS[kind])
    dense("out", "act", given["w2"], given.get("b2"))
    nodes.append("""weighted = Mul(out, factors) total = ReduceSum <keepdims = 0> (weighted, axis0)
        sizes = Shape(x0) y0 = Reshape(total, sizes)""")
    used = " ".join(nodes)
    return node.body(used, **{k: v for k, v in constants.items() if k in used})


#: By domain and op.
EXPERTS: Mapping[tuple[str, str], Decomposition] = {
    ("com.microsoft", "MoE"): _moe,
    ("com.microsoft", "QMoE"): _quantized_moe,
}
