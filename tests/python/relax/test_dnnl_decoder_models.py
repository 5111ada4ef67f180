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
"""Decoders as Optimum exports GPT-2, and as onnxruntime optimizes it: imported unaided."""

import dataclasses

import numpy as np
import pytest
import tvm_dnnl
from dnnl_modules import composites
from dnnl_tests.models import gpt2, llama
from test_dnnl_llama import PROMPT, reference

CONFIG = dataclasses.replace(llama.TINY, kv_heads=llama.TINY.heads)
MODELS = {
    "optimum": (gpt2.model, llama.inputs),
    "onnxruntime": (gpt2.fused_model, gpt2.fused_inputs),
}


def generated(run, inputs, count):
    """Return the logits of a prompt and of the tokens after it, and the last cache."""
    logits, cache, new = [], None, PROMPT
    for _ in range(count):
        first, *cache = run(inputs(CONFIG, new, cache))
        logits.append(first)
        new = [int(first[0, -1].argmax())]
    return logits, cache


@pytest.mark.parametrize("build, inputs", MODELS.values(), ids=MODELS)
def test_gpt2(build, inputs):
    """A prompt and three tokens, each with the keys and values of the one before."""
    model = build(CONFIG, gpt2.random_weights(CONFIG))
    counts = composites(tvm_dnnl.partition_for_dnnl(tvm_dnnl.from_onnx(model)))
    assert counts["dnnl.attention"] == CONFIG.layers and not counts["dnnl.softmax"]
    compiled = tvm_dnnl.compile(model)
    assert compiled.report.partitions == 1
    got = generated(lambda values: compiled(*values.values()), inputs, 4)
    expected = generated(reference(model), inputs, 4)
    for one, other in zip((*got[0], *got[1]), (*expected[0], *expected[1])):
        # float32 sums in another order, over two layers.
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5 * np.abs(other).max())
