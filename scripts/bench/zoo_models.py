# SPDX-License-Identifier: Apache-2.0
"""Architectures of PyTorch with random weights, in a worker process: as files and by inductor."""

import numpy as np

from scripts.bench import measure
from scripts.errors import SetupError

try:
    import onnxscript  # noqa: F401
    import torch
    import transformers as hf
except ImportError as error:
    raise SetupError(
        f"--zoo needs PyTorch, transformers and onnxscript: {error}",
        "build/relax/venv/bin/pip install torch==2.13.0 transformers==5.18.0 onnxscript==0.7.2",
    ) from error

nn = torch.nn
_IDS = 1000


class _First(nn.Module):
    """A model of one argument that returns the first tensor of its result."""

    def __init__(self, model, name):
        super().__init__()
        self.model, self.name = model, name

    def forward(self, x):
        result = self.model(**{self.name: x})
        return result if isinstance(result, torch.Tensor) else result[0]


class _ResidualBlock(nn.Module):
    """Two convolutions with a residual connection (Rombach et al., 2022)."""

    def __init__(self, channels):
        super().__init__()
        self.layers = nn.Sequential(
            *[
                layer
                for _ in range(2)
                for layer in (
                    nn.GroupNorm(32, channels),
                    nn.SiLU(),
                    nn.Conv2d(channels, channels, 3, padding=1),
                )
            ]
        )

    def forward(self, x):
        return x + self.layers(x)


class _SpatialTransformer(nn.Module):
    """Self-attention and a gated feed-forward layer over the pixels (Rombach et al., 2022)."""

    def __init__(self, channels, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(channels) for _ in range(2)])
        self.group = nn.GroupNorm(32, channels)
        self.qkv = nn.ModuleList([nn.Linear(channels, channels, bias=False) for _ in range(3)])
        self.out = nn.Linear(channels, channels)
        self.gated, self.down = nn.Linear(channels, 8 * channels), nn.Linear(4 * channels, channels)

    def forward(self, image):
        batch, channels, height, width = image.shape
        x = self.group(image).permute(0, 2, 3, 1).reshape(batch, height * width, channels)
        y = self.norms[0](x)
        heads = [
            each(y).reshape(batch, height * width, self.heads, -1).transpose(1, 2)
            for each in self.qkv
        ]
        y = nn.functional.scaled_dot_product_attention(*heads)
        x = x + self.out(y.transpose(1, 2).reshape(x.shape))
        value, gate = self.gated(self.norms[1](x)).chunk(2, -1)
        x = x + self.down(value * nn.functional.gelu(gate))
        return image + x.reshape(batch, height, width, channels).permute(0, 3, 1, 2)


def _ids(*shape):
    return torch.randint(0, _IDS, shape)


def _whisper():
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    return WhisperEncoder(hf.WhisperConfig()), "input_features", torch.randn(1, 80, 3000)


def _bert(batch):
    config = hf.BertConfig(num_hidden_layers=6, vocab_size=_IDS)
    return hf.BertModel(config, add_pooling_layer=False), "input_ids", _ids(batch, 128)


def _unet():
    model = nn.Sequential(_ResidualBlock(320), _SpatialTransformer(320, 8))
    return model, "input", torch.randn(1, 320, 32, 32)


def _hifigan():
    return hf.SpeechT5HifiGan(hf.SpeechT5HifiGanConfig()), "spectrogram", torch.randn(1, 50, 80)


def _qwen3():
    config = hf.Qwen3Config(
        vocab_size=_IDS,
        hidden_size=512,
        intermediate_size=1536,
        num_hidden_layers=6,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=64,
        use_cache=False,
    )
    return hf.Qwen3Model(config), "input_ids", _ids(1, 256)


def _image(model, config, side=224, batch=1, **sizes):
    return lambda: (model(config(**sizes)), "pixel_values", torch.randn(batch, 3, side, side))


_T5 = dict(vocab_size=_IDS, use_cache=False)
# By name: what people call it, and a function that makes the model, the name of its argument, and
# that.
ZOO = {
    "whisper": ("Whisper encoder, 4 layers, 1,500 positions", _whisper),
    "unet": ("latent diffusion UNet block, 32x32", _unet),
    "resnet50": ("ResNet-50", _image(hf.ResNetModel, hf.ResNetConfig)),
    "mobilenet_v2": ("MobileNet v2", _image(hf.MobileNetV2Model, hf.MobileNetV2Config)),
    "efficientnet": (
        "EfficientNet b7, 224x224",
        _image(hf.EfficientNetModel, hf.EfficientNetConfig),
    ),
    "bert": ("BERT base, 6 layers, 128 tokens", lambda: _bert(1)),
    "vit": ("ViT base, 6 layers", _image(hf.ViTModel, hf.ViTConfig, num_hidden_layers=6)),
    "convnext": ("ConvNeXt tiny", _image(hf.ConvNextModel, hf.ConvNextConfig)),
    "qwen3": ("Qwen3, 6 layers of 512, 256 tokens", _qwen3),
    "swin": ("Swin tiny", _image(hf.SwinModel, hf.SwinConfig)),
    "segformer": ("SegFormer b0, 512x512", _image(hf.SegformerModel, hf.SegformerConfig, 512)),
    "hifigan": ("HiFi-GAN, 50 frames", _hifigan),
    "t5": (
        "T5 small encoder, 128 tokens",
        lambda: (hf.T5EncoderModel(hf.T5Config(**_T5)), "input_ids", _ids(1, 128)),
    ),
    "bert-16": ("BERT base, 6 layers, batch 16", lambda: _bert(16)),
    "resnet50-16": ("ResNet-50, batch 16", _image(hf.ResNetModel, hf.ResNetConfig, batch=16)),
}
_COMPILED = {}


def titles():
    """Return what people call each model, by name."""
    return {name: title for name, (title, _) in ZOO.items()}


def versions():
    """Return the versions of PyTorch and transformers."""
    return {"PyTorch": str(torch.__version__), "transformers": hf.__version__}


def _made(name):
    """Return a model, the same each time, and an example of its argument."""
    torch.manual_seed(0)
    model, argument, x = ZOO[name][1]()
    return _First(model.eval(), argument), x


def export(name, path):
    """Write a model as an ONNX file whose input is `x`."""
    model, x = _made(name)
    with torch.no_grad():
        torch.onnx.export(
            model, (x,), path, input_names=["x"], dynamo=True, external_data=False, verbose=False
        )


def load(key, name, precision, threads, inputs):
    """Compile a model by inductor, with its weights frozen, and run it once."""
    torch.set_num_threads(threads)
    torch._inductor.config.freezing = True
    model, _ = _made(name)
    dtype = getattr(torch, precision)
    compiled = torch.compile(model.to(dtype))
    _COMPILED[key] = lambda x: compiled(x.to(dtype) if x.is_floating_point() else x)
    run(key, inputs)


def run(key, inputs):
    """Run a model once; return the outputs."""
    with torch.no_grad():
        return [_COMPILED[key](torch.from_numpy(inputs["x"])).float().numpy()]


def sample(key, inputs, repeat):
    """Time runs."""
    x = torch.from_numpy(np.array(inputs["x"]))
    with torch.no_grad():
        return measure.sample(lambda: _COMPILED[key](x), repeat)


def drop(key):
    """Free a model."""
    _COMPILED.pop(key, None)
    torch._dynamo.reset()
