"""Models of transformers, timm, torchvision and diffusers, small and with random weights."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import nn

from tests.conformance.torch_compile.model import Calls, Model, called_with

_TEXT = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
_DECODER = {**_TEXT, "num_key_value_heads": 2}
_VISION = {**{name: value for name, value in _TEXT.items() if name != "vocab_size"}, "image_size": 64}
_PAIR = {
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
    "vocab_size": 128,
    "use_cache": False,
}


def _ids(batch: int = 2, length: int = 16) -> torch.Tensor:
    return torch.randint(0, 128, (batch, length))


def _image(size: int = 64) -> torch.Tensor:
    return torch.randn(2, 3, size, size)


def _transformers(family: str, kind: str, config: dict[str, Any], **inputs: Callable[[], Any]) -> Model:
    """The class ``family + kind`` of transformers, called once."""

    def make() -> tuple[nn.Module, Calls]:
        module = _of_transformers(family, kind, config)
        return module, called_with(**{name: value() for name, value in inputs.items()})

    return Model(make, package="transformers")


def _of_transformers(family: str, kind: str, config: dict[str, Any]) -> nn.Module:
    transformers: Any = import_module("transformers")
    return getattr(transformers, family + kind)(getattr(transformers, f"{family}Config")(**config))


def _decoding(cache: str) -> Model:
    """Llama with a cache of transformers: a prompt of 4 tokens, then 4 steps."""

    def make() -> tuple[nn.Module, Calls]:
        module: Any = _of_transformers("Llama", "ForCausalLM", _DECODER)
        caches: Any = import_module("transformers.cache_utils")
        words = _ids(2, 8)

        def calls(function: Any) -> Any:
            state = (
                caches.StaticCache(config=module.config, max_cache_len=12)
                if cache == "static"
                else caches.DynamicCache(config=module.config)
            )
            outputs: list[Any] = []
            for begin, end in ((0, 4), (4, 5), (5, 6), (6, 7), (7, 8)):
                outputs.append(function(input_ids=words[:, begin:end], cache=state).logits)
            return outputs

        return module, calls

    return Model(make, trains=False, package="transformers")


def _clip() -> tuple[nn.Module, Calls]:
    transformers: Any = import_module("transformers")
    text = {**_TEXT, "projection_dim": 32, "eos_token_id": 2, "bos_token_id": 1, "pad_token_id": 0}
    config = transformers.CLIPConfig(text_config=text, vision_config={**_VISION, "patch_size": 16})
    return transformers.CLIPModel(config), called_with(input_ids=_ids(), pixel_values=_image())


def _torchvision(name: str, size: int = 64) -> Model:
    def make() -> tuple[nn.Module, Calls]:
        models: Any = import_module("torchvision.models")
        return getattr(models, name)(weights=None), called_with(_image(size))

    return Model(make, package="torchvision")


def _timm(name: str, size: int = 64) -> Model:
    def make() -> tuple[nn.Module, Calls]:
        timm: Any = import_module("timm")
        return timm.create_model(name, pretrained=False), called_with(_image(size))

    return Model(make, package="timm")


def _unet() -> tuple[nn.Module, Calls]:
    diffusers: Any = import_module("diffusers")
    module = diffusers.UNet2DModel(
        sample_size=16,
        block_out_channels=(32, 64),
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        norm_num_groups=8,
        layers_per_block=1,
    )
    return module, called_with(torch.randn(2, 3, 16, 16), torch.tensor([3, 5]))


def _dit() -> tuple[nn.Module, Calls]:
    diffusers: Any = import_module("diffusers")
    module = diffusers.DiTTransformer2DModel(
        num_attention_heads=4,
        attention_head_dim=16,
        num_layers=2,
        sample_size=8,
        num_embeds_ada_norm=10,
        norm_num_groups=4,
    )
    steps, labels = torch.tensor([1, 2]), torch.tensor([3, 4])
    return module, called_with(hidden_states=torch.randn(2, 4, 8, 8), timestep=steps, class_labels=labels)


def _mask() -> torch.Tensor:
    return torch.ones(2, 16, dtype=torch.long)


_GPT2 = {"n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 128, "use_cache": False}
_T5 = {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4, "vocab_size": 128}
_WHISPER = {**_PAIR, "max_source_positions": 50, "pad_token_id": 0, "decoder_start_token_id": 1}
_NO_CACHE = {**_DECODER, "use_cache": False}

MODELS: dict[str, Model] = {
    "transformers GPT-2": _transformers("GPT2", "LMHeadModel", _GPT2, input_ids=_ids),
    "transformers Llama": _transformers("Llama", "ForCausalLM", _NO_CACHE, input_ids=_ids),
    "transformers Llama, static cache": _decoding("static"),
    "transformers Llama, dynamic cache": _decoding("dynamic"),
    "transformers Qwen2": _transformers("Qwen2", "ForCausalLM", _NO_CACHE, input_ids=_ids),
    "transformers Gemma": _transformers(
        "Gemma", "ForCausalLM", {**_NO_CACHE, "head_dim": 16}, input_ids=_ids
    ),
    "transformers Mixtral": _transformers(
        "Mixtral", "ForCausalLM", {**_NO_CACHE, "num_local_experts": 4}, input_ids=_ids
    ),
    "transformers Mamba": _transformers(
        "Mamba",
        "ForCausalLM",
        {"vocab_size": 128, "hidden_size": 64, "num_hidden_layers": 2, "use_cache": False},
        input_ids=_ids,
    ),
    "transformers BERT": _transformers("Bert", "Model", _TEXT, input_ids=_ids, attention_mask=_mask),
    "transformers RoBERTa": _transformers("Roberta", "Model", _TEXT, input_ids=_ids, attention_mask=_mask),
    "transformers DeBERTa-v2": _transformers("DebertaV2", "Model", _TEXT, input_ids=_ids),
    "transformers T5": _transformers(
        "T5",
        "ForConditionalGeneration",
        {**_T5, "use_cache": False},
        input_ids=_ids,
        decoder_input_ids=lambda: _ids(2, 8),
    ),
    "transformers BART": _transformers(
        "Bart", "Model", _PAIR, input_ids=_ids, decoder_input_ids=lambda: _ids(2, 8)
    ),
    "transformers Whisper": _transformers(
        "Whisper",
        "Model",
        _WHISPER,
        input_features=lambda: torch.randn(2, 80, 100),
        decoder_input_ids=lambda: _ids(2, 8),
    ),
    "transformers ViT": _transformers("ViT", "Model", {**_VISION, "patch_size": 16}, pixel_values=_image),
    "transformers CLIP": Model(_clip, package="transformers"),
    "torchvision ResNet-50": _torchvision("resnet50", 96),
    "torchvision MobileNet-v3": _torchvision("mobilenet_v3_small", 96),
    "torchvision DenseNet-121": _torchvision("densenet121", 96),
    "timm EfficientNet-B0": _timm("efficientnet_b0", 96),
    "timm ConvNeXt": _timm("convnext_atto", 96),
    "timm Swin": _timm("swin_tiny_patch4_window7_224", 224),
    "timm MLP-Mixer": _timm("mixer_s32_224", 224),
    "diffusers U-Net": Model(_unet, package="diffusers"),
    "diffusers DiT": Model(_dit, package="diffusers"),
}
