"""The models: random weights, reduced size, nothing downloaded.

Each entry builds a model and its inputs from a seed. A model returns one tensor for the loss, the mean of its squares
unless it computes a loss itself.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Inputs = dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class Entry:
    """One model: how it is made, and what it is given."""

    name: str
    source: str
    """Where its code comes from: ``transformers``, ``diffusers`` or ``here``."""
    build: Callable[[], tuple[nn.Module, Inputs]]
    autoregressive: bool = False
    """Whether ``generate()`` with a static cache is tried as well."""


def tokens(*shape: int, vocabulary: int = 128) -> Tensor:
    """Return token numbers."""
    return torch.randint(3, vocabulary, shape)


class Loss(nn.Module):
    """A model of a library, reduced to one number: its own loss, or the mean square of its first tensor."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, **inputs: Tensor) -> Tensor:
        """Run the model."""
        result: Any = self.model(**inputs)
        loss = getattr(result, "loss", None)
        if isinstance(loss, Tensor):
            return loss
        first: Tensor = next(value for value in result.to_tuple() if isinstance(value, Tensor))
        return first.float().square().mean()


def _small(**more: Any) -> dict[str, Any]:
    return {
        "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128,
        "vocab_size": 128, **more,
    }  # fmt: skip


def bert() -> tuple[nn.Module, Inputs]:
    """Masked language model with padding."""
    from transformers import BertConfig, BertForMaskedLM

    model = BertForMaskedLM(BertConfig(**_small(max_position_embeddings=64)))
    mask = torch.ones(2, 16, dtype=torch.long)
    mask[1, 12:] = 0
    ids = tokens(2, 16)
    return model, {"input_ids": ids, "attention_mask": mask, "labels": ids}


def gpt2() -> tuple[nn.Module, Inputs]:
    """Causal language model with tied embeddings."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_embd=64, n_layer=2, n_head=4, vocab_size=128, n_positions=64, bos_token_id=1, eos_token_id=2)
    ids = tokens(2, 16)
    return GPT2LMHeadModel(config), {"input_ids": ids, "labels": ids}


def llama() -> tuple[nn.Module, Inputs]:
    """Rotary positions, RMS norm, grouped-query attention."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(**_small(num_key_value_heads=2, max_position_embeddings=64))
    ids = tokens(2, 16)
    return LlamaForCausalLM(config), {"input_ids": ids, "labels": ids}


def qwen3() -> tuple[nn.Module, Inputs]:
    """As Llama, with norms of queries and keys."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(**_small(num_key_value_heads=2, head_dim=16, max_position_embeddings=64))
    ids = tokens(2, 16)
    return Qwen3ForCausalLM(config), {"input_ids": ids, "labels": ids}


def mixtral() -> tuple[nn.Module, Inputs]:
    """Mixture of experts."""
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(
        **_small(num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2, max_position_embeddings=64)
    )
    ids = tokens(2, 16)
    return MixtralForCausalLM(config), {"input_ids": ids, "labels": ids}


def t5() -> tuple[nn.Module, Inputs]:
    """Encoder and decoder with relative positions."""
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        d_model=64,
        d_kv=16,
        d_ff=128,
        num_layers=2,
        num_heads=4,
        vocab_size=128,
        decoder_start_token_id=0,
        dropout_rate=0.0,
    )
    return T5ForConditionalGeneration(config), {"input_ids": tokens(2, 12), "labels": tokens(2, 8)}


def vit() -> tuple[nn.Module, Inputs]:
    """Image classifier of patches."""
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, image_size=32, patch_size=8,
        num_labels=10,
    )  # fmt: skip
    return ViTForImageClassification(config), {"pixel_values": torch.randn(2, 3, 32, 32), "labels": tokens(2) % 10}


def clip() -> tuple[nn.Module, Inputs]:
    """Text and image encoders with a contrastive loss."""
    from transformers import CLIPConfig, CLIPModel, CLIPTextConfig, CLIPVisionConfig

    text = CLIPTextConfig(**_small(max_position_embeddings=32, eos_token_id=2, projection_dim=32))
    vision = CLIPVisionConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, image_size=32, patch_size=8,
        projection_dim=32,
    )  # fmt: skip
    model = CLIPModel(CLIPConfig(text_config=text.to_dict(), vision_config=vision.to_dict(), projection_dim=32))

    class Contrastive(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Tensor, pixel_values: Tensor) -> Any:
            return self.model(input_ids=input_ids, pixel_values=pixel_values, return_loss=True)

    return Contrastive(), {"input_ids": tokens(2, 16), "pixel_values": torch.randn(2, 3, 32, 32)}


def whisper() -> tuple[nn.Module, Inputs]:
    """Speech encoder with convolutions, and a text decoder."""
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig(
        d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=128, decoder_ffn_dim=128, vocab_size=128, max_source_positions=32, max_target_positions=32,
        num_mel_bins=16, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
        suppress_tokens=None, begin_suppress_tokens=None,
    )  # fmt: skip
    model = WhisperForConditionalGeneration(config)
    return model, {"input_features": torch.randn(2, 16, 64), "labels": tokens(2, 8)}


def unet() -> tuple[nn.Module, Inputs]:
    """The denoiser of a latent diffusion model, conditioned by cross attention."""
    from diffusers import UNet2DConditionModel

    model = UNet2DConditionModel(
        sample_size=16, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(32, 64),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=32, attention_head_dim=8, norm_num_groups=8,
    )  # fmt: skip
    inputs = {
        "sample": torch.randn(2, 4, 16, 16), "timestep": torch.tensor([3, 7]),
        "encoder_hidden_states": torch.randn(2, 6, 32),
    }  # fmt: skip
    return model, inputs


def autoencoder() -> tuple[nn.Module, Inputs]:
    """The autoencoder of a latent diffusion model."""
    from diffusers import AutoencoderKL

    model = AutoencoderKL(
        in_channels=3, out_channels=3, block_out_channels=(16, 32), latent_channels=4, norm_num_groups=8,
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2, sample_size=32,
    )  # fmt: skip
    return model, {"sample": torch.randn(2, 3, 32, 32)}


def dit() -> tuple[nn.Module, Inputs]:
    """Diffusion transformer with class conditions."""
    from diffusers import DiTTransformer2DModel

    model = DiTTransformer2DModel(
        num_attention_heads=4, attention_head_dim=16, in_channels=4, out_channels=8, num_layers=2, sample_size=16,
        patch_size=2, num_embeds_ada_norm=100, norm_num_groups=8,
    )  # fmt: skip
    inputs = {
        "hidden_states": torch.randn(2, 4, 16, 16), "timestep": torch.tensor([3, 7]),
        "class_labels": torch.tensor([1, 5]),
    }  # fmt: skip
    return model, inputs


class Residual(nn.Module):
    """Two convolutions with batch norms around a shortcut."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(out)
        self.second = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(out)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != out:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: Tensor) -> Tensor:
        """Run the block."""
        y = F.relu(self.norm1(self.first(x)))
        shortcut: Tensor = self.shortcut(x)
        return F.relu(self.norm2(self.second(y)) + shortcut)


class ResNet(nn.Module):
    """A stem with max pooling, four residual blocks, a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 7, 2, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.blocks = nn.Sequential(Residual(16, 16, 1), Residual(16, 32, 2), Residual(32, 32, 1), Residual(32, 64, 2))
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of the classification."""
        features = F.adaptive_avg_pool2d(self.blocks(self.pool(self.stem(x))), 1).flatten(1)
        return F.cross_entropy(self.head(features), labels)


def resnet() -> tuple[nn.Module, Inputs]:
    """Residual convolutions with batch norms, whose running statistics the graph updates."""
    return ResNet(), {"x": torch.randn(4, 3, 64, 64), "labels": torch.randint(0, 10, (4,))}


class ConvNeXtBlock(nn.Module):
    """Depthwise convolution, layer norm over channels, an MLP, a scaled shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.wide = nn.Linear(channels, 4 * channels)
        self.narrow = nn.Linear(4 * channels, channels)
        self.scale = nn.Parameter(torch.full((channels,), 1e-2))

    def forward(self, x: Tensor) -> Tensor:
        """Run the block."""
        y: Tensor = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.narrow(F.gelu(self.wide(y)))
        y = y * self.scale
        return x + y.permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    """Patches, two stages of blocks, a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 24, 4, 4)
        self.first = nn.Sequential(ConvNeXtBlock(24), ConvNeXtBlock(24))
        self.down = nn.Conv2d(24, 48, 2, 2)
        self.second = nn.Sequential(ConvNeXtBlock(48), ConvNeXtBlock(48))
        self.head = nn.Linear(48, 10)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of the classification."""
        features = self.second(self.down(self.first(self.stem(x)))).mean((2, 3))
        return F.cross_entropy(self.head(features), labels)


def convnext() -> tuple[nn.Module, Inputs]:
    """Depthwise convolutions and channel-wise norms."""
    return ConvNeXt(), {"x": torch.randn(4, 3, 64, 64), "labels": torch.randint(0, 10, (4,))}


ENTRIES = {
    entry.name: entry
    for entry in (
        Entry("bert", "transformers", bert),
        Entry("gpt2", "transformers", gpt2, autoregressive=True),
        Entry("llama", "transformers", llama, autoregressive=True),
        Entry("qwen3", "transformers", qwen3, autoregressive=True),
        Entry("mixtral", "transformers", mixtral),
        Entry("t5", "transformers", t5),
        Entry("vit", "transformers", vit),
        Entry("clip", "transformers", clip),
        Entry("whisper", "transformers", whisper),
        Entry("unet", "diffusers", unet),
        Entry("autoencoder", "diffusers", autoencoder),
        Entry("dit", "diffusers", dit),
        Entry("resnet", "here", resnet),
        Entry("convnext", "here", convnext),
    )
}


def make(name: str) -> tuple[nn.Module, Inputs]:
    """Return the model ``name``, wrapped so that it returns its loss, and its inputs, always the same."""
    torch.manual_seed(0)
    model, inputs = ENTRIES[name].build()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0  # the CPU and the device draw different numbers
    if ENTRIES[name].source == "here":
        return model, inputs
    return Loss(model), inputs
