# SPDX-License-Identifier: Apache-2.0
"""Answers a prompt with a language model on Relax and the plug-in, token by token."""

import statistics
import time

import tvm
import tvm_dnnl
from tokenizers.decoders import DecodeStream

from scripts.language import generate, smollm2
from scripts.language.gguf_file import GgufFile


def main(args, console):
    """Print the answer as it is generated, and the tokens per second; return the exit code."""
    begin = time.perf_counter()
    with console.step(f"{smollm2.NAME}: read", after=1.0):
        model = GgufFile(smollm2.gguf_path())
        ids = model.turn(args.prompt)
    path = smollm2.compiled_path(model, console, args.precision)
    with console.step(f"{smollm2.NAME}: load", after=1.0):
        decoder = generate.relax_decoder(path)
    ready = time.perf_counter() - begin
    choose = generate.Sampler(args.temperature, args.top_p, args.seed)
    stream, seconds = DecodeStream(skip_special_tokens=True), []
    tokens = generate.generate(decoder, model.config, ids, args.tokens, choose, model.end)
    for token, taken in tokens:
        seconds.append(taken)
        print(stream.step(model.tokenizer, token) or "", end="", flush=True)
    first, *others = seconds
    print(f"\n\n{len(ids)} tokens of the prompt in {first:.2f} s ({len(ids) / first:.0f} a second)")
    if others:
        print(
            f"{len(others)} more tokens in {sum(others):.2f} s ({len(others) / sum(others):.1f} a "
            f"second, median {1e3 * statistics.median(others):.0f} ms)"
        )
    print(
        f"oneDNN {tvm_dnnl.dnnl_version()}, TVM {tvm.__version__}, {tvm_dnnl.num_threads()} "
        f"threads, ready after {ready:.0f} s"
    )
    return 0
