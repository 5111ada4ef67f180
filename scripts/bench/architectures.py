# SPDX-License-Identifier: Apache-2.0
"""Architectures of transformers with small sizes and random weights, by torch.export.

Each is imported, partitioned, compiled and run in a process of its own, and compared with PyTorch
on other inputs than those that it was exported with.
"""

import inspect
import multiprocessing
import re
import time
import warnings

import numpy as np

from scripts import options, table
from scripts.console import Console
from scripts.errors import SetupError
from scripts.files import write_between
from scripts.layout import ROOT

try:
    import torch
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_MAPPING
except ImportError as error:
    raise SetupError(
        f"--architectures needs PyTorch and transformers: {error}",
        "build/relax/venv/bin/pip install torch==2.13.0 transformers==5.18.0",
    ) from error
import tvm_dnnl
from torch.utils._pytree import tree_leaves

PATH = ROOT / "docs" / "architectures.md"
MARKS = ("<!-- ./dev.py coverage --architectures --write -->\n", "<!-- until here -->\n")
HEADER = ["architecture", "ops", "on oneDNN", "partitions", "error", "first answer s", "note"]
# Seconds for one architecture.
LIMIT = 300
# Of the largest element. Beyond it a result is wrong; `compile` has a tighter bound, with a reason.
TOLERANCE = 1e-3
WRONG = "wrong"
# Characters of an error.
LONGEST = 200
NAMES = """
albert bart beit bert bert-generation bigbird_pegasus biogpt bit blenderbot blenderbot-small bloom
camembert canine codegen cohere cohere2 convbert convnext convnextv2 ctrl cvt data2vec-audio
data2vec-text data2vec-vision deberta deberta-v2 deepseek_v2 deepseek_v3 deformable_detr deit
detr diffllama dinov2 dinov2_with_registers dinov3_vit distilbert donut-swin dpr dpt
efficientnet electra ernie esm exaone4 falcon flaubert fnet focalnet funnel gemma gemma2 gemma3_text
glm glm4 glpn gpt2 gpt_bigcode gpt_neo gpt_neox gpt_oss gptj granite granitemoe helium hiera hubert
ibert ijepa imagegpt jetmoe layoutlm layoutlmv3 levit lfm2 lilt llama longt5 luke
m2m_100 mamba mamba2 marian markuplm mbart megatron-bert mistral mixtral mobilebert mobilenet_v1
mobilenet_v2 mobilevit mobilevitv2 modernbert mpnet mpt mt5 mvp nemotron nomic_bert nystromformer
olmo olmo2 olmoe openai-gpt opt pegasus persimmon phi phi3 phimoe plbart poolformer
prophetnet pvt pvt_v2 qwen2 qwen2_moe qwen3 qwen3_moe qwen3_next regnet rembert resnet roberta
roberta-prelayernorm roformer rt_detr rwkv segformer sew siglip_vision_model smollm3
speech_to_text squeezebert stablelm starcoder2 swiftformer swin swin2sr swinv2
t5 table-transformer unispeech vit vit_mae vit_msn vitdet wav2vec2 wavlm whisper xglm xlm
xlm-roberta xlnet xmod yolos audio-spectrogram-transformer clip_text_model clip_vision_model clip
aimv2_vision_model doge eurobert gte roc_bert seed_oss sew-d splinter textnet umt5 unispeech-sat
xlm-roberta-xl wav2vec2-conformer olmo3 ernie4_5 apertus arcee glm4_moe flex_olmo
qwen3_5_text minimax_m2 exaone_moe jamba falcon_h1 bitnet hgnet_v2 dinov3_convnext conditional_detr
d_fine glm4_moe_lite lfm2_moe wav2vec2-bert nemotron_h kimi_linear
""".split()
BATCH, LENGTH, IMAGE, SAMPLES = 2, 16, 64, 4000
# Sizes of a config by its attributes' names; the first pattern that fits decides. 0 leaves it.
SIZES = (
    (r"feat_extract|^num_conv", 0),
    (r"vocab_size$", 200),
    (r"(experts_per_tok|top_?k|num_selected_experts)$", 2),
    (r"^(n|topk)_group$", 1),
    (r"experts$", 4),
    (r"(head_dim|d_kv|d_head|head_size|kv_channels)$", 16),
    (r"(key_value|kv)_heads$", 2),
    (r"heads?$", 4),
    (r"rotary_dim$", 16),
    (r"lora_rank$", 32),
    (r"(layers|layer|depth)$", 2),
    (r"intermediate|ffn|inner|d_ff|feedforward|mlp_dim", 128),
    (r"(hidden_size|d_model|n_embd|hidden_dim|^dim|embedding_size|d_embed)$", 64),
    (r"embed_dim$", 96),
    (r"(max_position_embeddings|n_positions|n_ctx|max_seq_len|_positions)$", 64),
    (r"queries$", 10),
    (r"attention_window$", 8),
)
_RESNET = transformers.ResNetConfig(
    embedding_size=16,
    hidden_sizes=[32, 64, 128, 256],
    depths=[1, 1, 1, 1],
    out_features=["stage2", "stage3", "stage4"],
)
# Other values of a config: where these do not fit, a backbone that needs no other package, and
# weights so large that the image matters: it chooses RT-DETR's queries, which are ties otherwise.
OTHERS = {
    "conditional_detr": {"backbone_config": _RESNET},
    "cvt": {"depth": [1, 2, 3]},
    "d_fine": {"encoder_hidden_dim": 256, "initializer_range": 0.1},
    "deepseek_v2": dict(num_key_value_heads=4, num_experts_per_tok=2, n_group=1, topk_group=1),
    "deepseek_v3": {"num_key_value_heads": 4, "first_k_dense_replace": 1, "n_group": 2},
    "deformable_detr": {"backbone_config": _RESNET},
    "detr": {"backbone_config": _RESNET},
    "donut-swin": {"image_size": 224},
    "efficientnet": {"hidden_dim": 2560, "initializer_range": 0.3},
    "esm": {"vocab_size": 33, "pad_token_id": 1, "mask_token_id": 32},
    "glm4_moe": {"n_group": 2},
    "glm4_moe_lite": {"num_key_value_heads": 4, "qk_head_dim": 32},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "hiera": {"image_size": (224, 224)},
    "layoutlmv3": {"coordinate_size": 12, "shape_size": 8, "input_size": IMAGE},
    "kimi_linear": dict(num_key_value_heads=4, qk_head_dim=32, num_experts_per_token=2),
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "lilt": {"hidden_size": 96},
    "mamba2": {"num_heads": 8},
    "mobilebert": {"intra_bottleneck_size": 64},
    "mobilevit": {"initializer_range": 0.1},
    "mobilevitv2": {"initializer_range": 0.1},
    "nemotron": {"num_key_value_heads": 2},
    "nemotron_h": dict(n_groups=2, layers_block_type=["linear_attention", "moe", "full_attention"]),
    "rt_detr": {"encoder_hidden_dim": 256, "initializer_range": 0.1},
    "rwkv": {"rescale_every": 0},
    "swin": {"image_size": 224},
    "table-transformer": {"backbone_config": _RESNET},
    "wav2vec2-bert": {"feature_projection_input_dim": 80},
    "xmod": {"default_language": "en_XX"},
}


def small(kind):
    """Return a config of a class with small sizes."""
    default, changed = kind(), dict(OTHERS.get(kind.model_type, {}))
    for name, value in default.to_dict().items():
        inner = getattr(default, name, None)
        if isinstance(inner, transformers.PreTrainedConfig) and name != "backbone_config":
            new = small(type(inner))
        elif name == "image_size":
            new = IMAGE if isinstance(value, int) else (IMAGE,) * len(value)
        elif name in ("depth", "depths", "num_block_repeats") and isinstance(value, list):
            new = [min(each, 2) for each in value]
        elif isinstance(value, int) and not isinstance(value, bool):
            sizes = [size for pattern, size in SIZES if re.search(pattern, name)]
            sizes[:0] = [3] if name.endswith("token_id") else []
            new = min(value, sizes[0]) if sizes and sizes[0] else value
        else:
            continue
        if new != value:
            changed.setdefault(name, new)
    return kind(**changed)


class Tensors(torch.nn.Module):
    """A model of positional arguments that returns the tensors of its result."""

    def __init__(self, model, names):
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *args):
        result = self.model(**dict(zip(self.names, args)))
        return [each for each in tree_leaves(dict(result)) if isinstance(each, torch.Tensor)]


def built(name):
    """Return a model, and a function that draws its arguments."""
    kind = transformers.CONFIG_MAPPING[name]
    config = small(kind)
    config.use_cache = False
    model = MODEL_MAPPING[kind]
    model = (model[0] if isinstance(model, tuple) else model)._from_config(config).eval()
    vision, bins = getattr(config, "vision_config", config), getattr(config, "num_mel_bins", 0)

    def ids():
        return torch.randint(4, 30, (BATCH, LENGTH))

    def mask():
        """The last tokens of all texts but the first are padding."""
        kept = torch.tensor([LENGTH] + [LENGTH - 4] * (BATCH - 1))
        return (torch.arange(LENGTH) < kept[:, None]).long()

    def image():
        side = getattr(vision, "image_size", None) or IMAGE
        side = side if isinstance(side, tuple) else (side, side)
        return torch.randn(BATCH, getattr(vision, "num_channels", 3), *side)

    def features():
        return torch.randn(BATCH, *((bins, 2 * config.max_source_positions) if bins else (64, 80)))

    def sound():
        return torch.randn(BATCH, *((config.max_length, bins) if bins else (SAMPLES,)))

    draws = {
        "input_ids": ids,
        "attention_mask": mask,
        "decoder_input_ids": ids,
        "pixel_values": image,
        "input_features": features,
        "input_values": sound,
        "noise": lambda: torch.rand(BATCH, (IMAGE // config.patch_size) ** 2),
    }
    accepted = inspect.signature(model.forward).parameters
    # Without masks of pixels and samples; patches are masked at random by one model only.
    skipped = {*(() if "input_ids" in accepted else ["attention_mask"])}
    skipped |= {*(() if name == "vit_mae" else ["noise"])}
    names = [each for each in draws if each in accepted and each not in skipped]
    return Tensors(model, names), lambda: tuple(draws[each]() for each in names)


def measured(name):
    """Return the cells of an architecture after its name, and the offload report."""
    torch.manual_seed(0)
    model, draw = built(name)
    args, others = draw(), draw()
    with torch.no_grad():
        want = model(*others)
        program = torch.export.export(model, args, strict=False)
    start = time.process_time()
    fast = tvm_dnnl.compile(program)
    got = tree_leaves(fast(*others))
    seconds = time.process_time() - start
    errors = [_error(*pair) for pair in zip(got, want, strict=True)]
    report = fast.report
    return (report.total, report.offloaded, report.partitions, max(errors), seconds), str(report)


def _error(got, want):
    """Return the largest error, relative to the largest element."""
    got, want = (np.nan_to_num(np.asarray(each, "float64")) for each in (got, want))
    return np.abs(got - want).max(initial=0) / max(np.abs(want).max(initial=0), 1e-30)


def _child(name, pipe):
    warnings.simplefilter("ignore")
    try:
        pipe.send((True, measured(name)))
    except Exception as error:
        pipe.send((False, f"{type(error).__name__}: {error}"))


def apart(name):
    """Measure an architecture in a process of its own; return whether it did, and the result."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(False)
    process = context.Process(target=_child, args=(name, sender))
    process.start()
    sender.close()
    try:
        return receiver.recv() if receiver.poll(LIMIT) else (False, f"not done in {LIMIT} s")
    except EOFError:
        return False, "the process ended"
    finally:
        process.kill()
        process.join()


def warm_up():
    """Import a model here, so that the processes that are forked have what every import loads."""
    torch.set_num_threads(1)
    program = torch.export.export(torch.nn.Linear(2, 2).eval(), (torch.ones(1, 2),), strict=False)
    tvm_dnnl.partition_for_dnnl(tvm_dnnl.from_exported_program(program))


def summary(rows):
    """Return the counts of the table in one line."""
    right = [cells for cells in rows if cells[-1] == ""]
    counts = [sum(cells[3] <= most for cells in right) for most in (1, 2)]
    wrong = sum("VerificationError" in cells[-1] or cells[-1] == WRONG for cells in rows)
    return (
        f"{len(rows)} architectures: {len(right)} right, {counts[0]} of them in one partition and "
        f"{counts[1]} in at most two; {wrong} wrong; {len(rows) - len(right) - wrong} not compiled"
    )


def _rows_of(page):
    """Return the rows of the table of a page by architecture."""
    lines = page.partition(MARKS[0])[2].partition(MARKS[1])[0].splitlines()
    cells = [line[2:-2].split(" | ") for line in lines if line.startswith("| ")]
    rows = [[int(each) if each.isdigit() else each for each in row] for row in cells[2:]]
    return {row[0]: row for row in rows}


def _write(rows):
    """Write the page, with what it has of other architectures."""
    known = {**_rows_of(PATH.read_text("utf-8")), **{row[0]: row for row in rows}}
    rows = [known[name] for name in NAMES if name in known]
    versions = f"PyTorch {torch.__version__}, transformers {transformers.__version__}"
    page = f"{versions}. {summary(rows)}.\n\n{table.markdown(HEADER, rows)}"
    write_between(PATH, MARKS, page)


def main(args):
    """Print the table; return the exit code.

    With --write, each row replaces the one of the page as soon as it is measured.
    """
    console, rows, reports = Console(), [], []
    warm_up()
    for name in options.choose("models", args.models, {each: each for each in NAMES}):
        with console.step(name):
            is_measured, result = apart(name)
        if is_measured:
            (*counts, error, seconds), report = result
            note = "" if error <= TOLERANCE else WRONG
            rows.append([name, *counts, f"{error:.1e}", f"{seconds:.1f}", note])
            reports.append(f"\n{name}\n{report}")
        else:
            rows.append([name, *"-----", " ".join(result.split())[:LONGEST]])
        print(*rows[-1], sep="\t", flush=True)
        if args.write:
            _write(rows)
    print(*(reports if args.report else []), f"{summary(rows)}.", sep="\n")
    return 0
