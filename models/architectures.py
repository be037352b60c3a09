"""The torch modules whose graphs the zoo ships: name -> (module in eval mode, example input, how to export it).

Full-size models are the stock ones of torchvision and transformers.  Twins keep the architecture and shrink channels,
layers and images, so that a test or CI compiles and runs them in seconds.  Needs torch; nothing else in `models/` does.
"""

# pyright: basic, reportMissingImports=false
# (torch is not among the development dependencies)

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torchvision
import transformers
from torchvision.models.inception import BasicConv2d, InceptionA, InceptionB, InceptionC, InceptionD, InceptionE
from torchvision.models.resnet import Bottleneck, ResNet


class FirstOutput(torch.nn.Module):
    """A transformers model as a function ids -> last hidden state."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=ids, return_dict=False)[0]


@dataclass(frozen=True)
class Source:
    """What the exporter needs: the module, one example input, its name in the graph and its symbolic axes."""

    module: torch.nn.Module
    example: torch.Tensor
    input_name: str
    output_name: str
    dynamic: dict[int, str] = field(default_factory=dict[int, str])


class _NarrowResNet(ResNet):
    """ResNet with every width divided by 8; two blocks in the first stage, so that an identity shortcut occurs."""

    NARROW = 8

    def __init__(self, classes: int) -> None:
        super().__init__(Bottleneck, [2, 1, 1, 1], num_classes=classes)
        self.fc = torch.nn.Linear(512 // self.NARROW * Bottleneck.expansion, classes)

    def _make_layer(self, block: Any, planes: int, blocks: int, stride: int = 1, dilate: bool = False) -> Any:
        if self.inplanes == 64 and planes == 64:
            self.inplanes = 64 // self.NARROW
            self.conv1 = torch.nn.Conv2d(3, self.inplanes, kernel_size=7, stride=2, padding=3, bias=False)
            self.bn1 = torch.nn.BatchNorm2d(self.inplanes)
        return super()._make_layer(block, planes // self.NARROW, blocks, stride, dilate)


class _NarrowConv(BasicConv2d):
    """Inception's conv + BatchNorm + ReLU with channels divided by 16 (every channel count of the net allows it)."""

    NARROW = 16

    def __init__(self, in_channels: int, out_channels: int, **kwargs: Any) -> None:
        narrow_in = in_channels if in_channels == 3 else in_channels // self.NARROW
        super().__init__(narrow_in, out_channels // self.NARROW, **kwargs)


def _narrow(block: Callable[..., torch.nn.Module]) -> Callable[..., torch.nn.Module]:
    return lambda *args, **kwargs: block(*args, **{**kwargs, "conv_block": _NarrowConv})


def _inception_tiny() -> torch.nn.Module:
    blocks: list[Any] = [_NarrowConv, *map(_narrow, (InceptionA, InceptionB, InceptionC, InceptionD, InceptionE)), None]
    net = torchvision.models.Inception3(aux_logits=False, init_weights=False, inception_blocks=blocks)
    net.fc = torch.nn.Linear(2048 // _NarrowConv.NARROW, 10)
    return net


def _image(net: torch.nn.Module, size: int) -> Source:
    return Source(net.eval(), torch.randn(1, 3, size, size), "image", "logits")


def _text(net: torch.nn.Module, length: int, vocabulary: int, dynamic: dict[int, str] | None = None) -> Source:
    batch = 2 if dynamic else 1  # an example of batch 1 would be specialised away
    ids = torch.randint(0, vocabulary, (batch, length))
    return Source(FirstOutput(net.eval()), ids, "ids", "hidden", dynamic or {})


def _bert_tiny(dynamic: dict[int, str] | None = None) -> Source:
    config = transformers.BertConfig(
        vocab_size=1000,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=256,
        max_position_embeddings=160 if dynamic else 64,
        attn_implementation="sdpa",
    )
    return _text(transformers.BertModel(config), 16, config.vocab_size, dynamic)


def _gpt2_tiny() -> Source:
    config = transformers.GPT2Config(
        vocab_size=1000, n_embd=64, n_layer=2, n_head=2, n_positions=64, use_cache=False, attn_implementation="sdpa"
    )
    return _text(transformers.GPT2Model(config), 16, config.vocab_size)


def _bert() -> Source:
    config = transformers.BertConfig(attn_implementation="sdpa")
    return _text(transformers.BertModel(config), 128, config.vocab_size)


def _gpt2() -> Source:
    config = transformers.GPT2Config(use_cache=False, attn_implementation="sdpa")
    return _text(transformers.GPT2Model(config), 128, config.vocab_size)


SOURCES: dict[str, Callable[[], Source]] = {
    "resnet50": lambda: _image(torchvision.models.resnet50(), 224),
    "mobilenet_v2": lambda: _image(torchvision.models.mobilenet_v2(), 224),
    "inception_v3": lambda: _image(torchvision.models.inception_v3(init_weights=False, aux_logits=True), 299),
    "bert": _bert,
    "gpt2": _gpt2,
    "resnet_tiny": lambda: _image(_NarrowResNet(10), 64),
    "mobilenet_tiny": lambda: _image(torchvision.models.mobilenet_v2(width_mult=0.25, num_classes=10), 64),
    "inception_tiny": lambda: _image(_inception_tiny(), 75),
    "bert_tiny": _bert_tiny,
    "bert_tiny_dyn": lambda: _bert_tiny({0: "batch", 1: "sequence"}),
    "gpt2_tiny": _gpt2_tiny,
}
