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
"""A language model on one runtime, in a worker process whose peak memory is that of the runtime."""

import os
import resource
import time

from scripts.language import generate

# What others wait with in a loop before their threads sleep.
REST = 0.05


class Decoder:
    """A runtime that runs a decoder whose cache is in its inputs and results.

    Parameters
    ----------
    run : callable
        Accepts the inputs of the model in their order; returns its results.
    config : dnnl_tests.models.llama.Config
        The sizes.
    """

    def __init__(self, run, config):
        self._run, self._config = run, config

    def measure(self, ids, count):
        """Return the new tokens, and the seconds of the prompt and of each further token."""
        steps = list(generate.generate(self._run, self._config, ids, count))
        return [token for token, _ in steps], [seconds for _, seconds in steps]


class LlamaCpp:
    """llama.cpp on the quantized weights of a GGUF file.

    Its times are its own, without what its server adds; the tokens are not told.

    Parameters
    ----------
    path : str
        The file.
    threads, context : int
        The threads of a run, and the most positions.
    """

    def __init__(self, path, threads, context):
        import xllamacpp

        params = xllamacpp.CommonParams()
        params.model.path, params.n_ctx, params.n_parallel = path, context, 1
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        params.verbosity = 0
        self._server = xllamacpp.Server(params)

    def measure(self, ids, count):
        """Return no tokens, and the seconds of the prompt and the mean of each further token."""
        answer = self._server.handle_completions(
            {
                "prompt": ids,
                "n_predict": count,
                "temperature": 0,
                "cache_prompt": False,
                "ignore_eos": True,
            }
        )
        times = answer["timings"]
        if times["prompt_n"] != len(ids) or times["predicted_n"] != count:
            raise RuntimeError(f"llama.cpp ran other tokens than it was given: {times}")
        # The first new token is that of the prompt's run.
        each = 1e-3 * times["predicted_ms"] / max(count - 1, 1)
        return None, [1e-3 * times["prompt_ms"], *[each] * (count - 1)]


def _openvino(path, threads):
    """Return a function that runs an ONNX file on OpenVINO with open dimensions."""
    import openvino

    core = openvino.Core()
    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32",
    }
    request = core.compile_model(path, "CPU", settings).create_infer_request()
    names = [each.get_any_name() for each in request.get_compiled_model().inputs]

    def run(*inputs):
        return list(request.infer(dict(zip(names, inputs)), share_inputs=True).values())

    return run


_RUNTIME: dict = {}


def prepare(name, paths, threads, config):
    """Load the model; return the seconds of that.

    Parameters
    ----------
    name : str
        The runtime: relax, onnxruntime, openvino or llama.cpp.
    paths : dict of str to str
        The files of the model: "so", "onnx" and "gguf".
    threads : int
        The threads of a run.
    config : dnnl_tests.models.llama.Config
        The sizes.
    """
    begin = time.perf_counter()
    if name == "llama.cpp":
        runtime = LlamaCpp(paths["gguf"], threads, config.context)
    elif name == "relax":
        runtime = Decoder(generate.relax_decoder(paths["so"]), config)
    elif name == "onnxruntime":
        runtime = Decoder(generate.onnxruntime_decoder(paths["onnx"], threads), config)
    else:
        runtime = Decoder(_openvino(paths["onnx"], threads), config)
    _RUNTIME["it"] = runtime
    return time.perf_counter() - begin


def measure(ids, count):
    """Generate tokens, once the threads of other processes sleep; see `Decoder.measure`."""
    time.sleep(REST)
    return _RUNTIME["it"].measure(ids, count)


def peak_megabytes():
    """Return the most memory that this process has had, files that are mapped included."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def files(count):
    """Return the files of the model, its sizes, and the tokens of a text: in the plug-in's process.

    Parameters
    ----------
    count : int
        How many tokens of the text.

    Returns
    -------
    paths : dict of str to str
        The compiled library, the ONNX file and the GGUF file: "so", "onnx" and "gguf".
    config : dnnl_tests.models.llama.Config
        The sizes.
    ids : list of int
        The tokens.
    facts : dict
        The versions of TVM and oneDNN.
    """
    import tvm
    import tvm_dnnl

    from scripts.console import Console
    from scripts.language import smollm2
    from scripts.language.gguf_file import GgufFile
    from scripts.layout import ROOT

    console, model = Console(), GgufFile(smollm2.gguf_path())
    paths = {
        "so": os.fspath(smollm2.compiled_path(model, console)),
        "onnx": os.fspath(smollm2.onnx_path(model, console)),
        "gguf": os.fspath(smollm2.gguf_path()),
    }
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    ids = model.tokenizer.encode(" ".join(text.split())).ids[:count]
    versions = {"tvm": tvm.__version__, "onednn": tvm_dnnl.dnnl_version()}
    return paths, model.config, ids, versions
