# SPDX-License-Identifier: Apache-2.0
"""A language model on one runtime, in a worker process whose peak memory is that of the runtime."""

import os
import time

import numpy as np

from scripts.bench.measure import REST, peak_megabytes  # noqa: F401  (the second is asked for)
from scripts.errors import SetupError
from scripts.language import generate

# By precision: OpenVINO's hint. It computes what is not quantized in float32.
_OPENVINO_HINTS = {"bfloat16": "bf16"}


class Decoder:
    """A runtime that runs a decoder whose cache is in its inputs and results.

    `run` accepts the inputs of the model in their order, and returns its results.
    """

    def __init__(self, run, config):
        self._run, self._config = run, config

    def measure(self, ids, count, follow=None):
        """Return the most probable tokens, and the seconds of the prompt and of each further token.

        With `follow`, these tokens are read, and the most probable ones only after them; `logits`
        keeps the logits of all.
        """
        logits, choose = [], None
        if follow is not None:
            rest = iter(follow)

            def choose(values):
                logits.append(np.array(values))
                return next(rest, int(values.argmax()))

        steps = list(generate.generate(self._run, self._config, ids, count, choose))
        seconds = [each for _, each in steps]
        if follow is None:
            return [token for token, _ in steps], seconds
        self.logits = np.stack(logits)
        return self.logits.argmax(1).tolist(), seconds


class LlamaCpp:
    """llama.cpp on the quantized weights of a GGUF file; `context` is the most positions.

    Its times are its own, without what its server adds; the tokens are not told.
    """

    def __init__(self, path, threads, context):
        import xllamacpp

        params = xllamacpp.CommonParams()
        params.model.path, params.n_ctx, params.n_parallel = path, context, 1
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        params.verbosity = 0
        self._server = xllamacpp.Server(params)

    def measure(self, ids, count, follow=None):
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
        del follow  # Its server reads its own tokens only.
        times = answer["timings"]
        if times["prompt_n"] != len(ids) or times["predicted_n"] != count:
            raise RuntimeError(f"llama.cpp ran other tokens than it was given: {times}")
        # The first new token is that of the prompt's run.
        each = 1e-3 * times["predicted_ms"] / max(count - 1, 1)
        return None, [1e-3 * times["prompt_ms"], *[each] * (count - 1)]


class OpenVinoGenai:
    """openvino-genai on the quantized weights of a GGUF file.

    Its cache is a state of the model, computed in one sequence without reuse of prompts. The tokens
    are not told, as they are not those that others read.
    """

    def __init__(self, path, threads):
        import openvino_genai

        self._library = openvino_genai
        self._pipeline = openvino_genai.LLMPipeline(
            path,
            "CPU",
            ATTENTION_BACKEND="SDPA",
            INFERENCE_NUM_THREADS=threads,
            INFERENCE_PRECISION_HINT="f32",
        )

    def measure(self, ids, count, follow=None):
        """Return no tokens, and the seconds of the prompt and of each further token."""
        del follow  # It reads its own tokens only.
        import openvino

        settings = self._library.GenerationConfig(
            max_new_tokens=count, do_sample=False, ignore_eos=True
        )
        given = self._library.TokenizedInputs(
            openvino.Tensor(np.array([ids], "int64")),
            openvino.Tensor(np.ones((1, len(ids)), "int64")),
        )
        result = self._pipeline.generate(given, settings)
        if len(result.tokens[0]) != count:
            raise RuntimeError(
                f"openvino-genai generated {len(result.tokens[0])} of {count} tokens"
            )
        metrics = result.perf_metrics
        first = 1e-3 * metrics.get_ttft().mean
        times = metrics.raw_metrics.m_new_token_times
        return None, [first, *(1e-3 * (b - a) for a, b in zip(times, times[1:]))]


def _openvino(path, threads, precision):
    """Return a function that runs an ONNX file on OpenVINO with open dimensions."""
    import openvino

    core = openvino.Core()
    if precision == "bfloat16" and "BF16" not in core.get_property(
        "CPU", "OPTIMIZATION_CAPABILITIES"
    ):
        raise SetupError("OpenVINO has no bfloat16 kernels for this CPU")
    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": _OPENVINO_HINTS.get(precision, "f32"),
    }
    request = core.compile_model(path, "CPU", settings).create_infer_request()
    names = [each.get_any_name() for each in request.get_compiled_model().inputs]

    def run(*inputs):
        return list(request.infer(dict(zip(names, inputs)), share_inputs=True).values())

    return run


_RUNTIME: dict = {}


def prepare(name, paths, threads, config, precision, context):
    """Load the model on a runtime; return the seconds of that.

    `paths` are its files, as `files` returns them, and `context` the most positions that are
    measured. A SetupError says why the runtime does not run this precision, or is not installed.
    """
    begin = time.perf_counter()
    try:
        if name == "llama.cpp":
            runtime = LlamaCpp(paths["gguf"], threads, context)
        elif name == "openvino-genai":
            if not precision.endswith("weights"):
                raise SetupError("openvino-genai reads GGUF files of 8 or 4 bits only")
            runtime = OpenVinoGenai(paths["gguf"], threads)
        elif name == "relax":
            runtime = Decoder(generate.relax_decoder(paths["so"]), config)
        elif name == "onnxruntime":
            if precision == "bfloat16":
                raise SetupError("onnxruntime has no bfloat16 kernels for x86 CPUs")
            runtime = Decoder(generate.onnxruntime_decoder(paths["onnx"], threads), config)
        else:
            runtime = Decoder(_openvino(paths["onnx"], threads, precision), config)
    except ImportError as error:
        package = getattr(error, "name", None) or str(error)
        raise SetupError(f"{error}: `pip install {package}` adds it") from error
    _RUNTIME["it"] = runtime
    return time.perf_counter() - begin


def measure(ids, count, follow=None):
    """Generate tokens, once the threads of other processes sleep; see `Decoder.measure`."""
    time.sleep(REST)
    return _RUNTIME["it"].measure(ids, count, follow)


def save_reference(ids, count, path):
    """Generate the tokens of the reference, and write their logits to a file; return the tokens."""
    decoder = _RUNTIME["it"]
    tokens, _ = decoder.measure(ids, count, ())
    np.save(path, decoder.logits)
    return tokens


def largest_error(path):
    """Return the largest difference of the last logits from those of a file, and their range."""
    expected = np.load(path)
    difference = np.abs(_RUNTIME["it"].logits - expected).max()
    return float(difference), float(np.ptp(expected))


def files(count, precision, runtimes):
    """Return the files of the model, its sizes, and the tokens of a text: in the plug-in's process.

    `runtimes` need the files.

    Returns
    -------
    paths : dict of str to str
        The compiled library, the ONNX file and the GGUF file: "so", "onnx" and "gguf"; and the
        ONNX file in float32, "reference".
    config : dnnl_tests.models.llama.Config
        The sizes.
    ids : list of int
        So many tokens as `count`.
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
        "so": smollm2.compiled_path(model, console, precision),
        "onnx": smollm2.onnx_path(model, console, precision),
        "reference": smollm2.onnx_path(model, console),
    }
    if not {"llama.cpp", "openvino-genai"}.isdisjoint(runtimes):
        paths["gguf"] = smollm2.gguf_path_of(model, console, precision)
    text = "".join((ROOT / n).read_text(encoding="utf-8") for n in ("LICENSE", "CONTRIBUTING.md"))
    ids = model.tokenizer.encode(" ".join(text.split())).ids[:count]
    versions = {"tvm": tvm.__version__, "onednn": tvm_dnnl.dnnl_version()}
    return {key: os.fspath(path) for key, path in paths.items()}, model.config, ids, versions
