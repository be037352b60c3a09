"""Name and seed -> a complete ONNX model, from committed skeletons; needs numpy and onnx only.

    python models/zoo.py NAME [--half] [--seed 0] [--size n=2 --size h=7 ...] -o FILE

The same name, seed and sizes give the same bytes.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx

if not __package__:  # run as a file: the repository's root is not on the path yet
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from models import handmade
from models.half import to_half
from models.recipes import Calibrated, FloatArray, fill, recipe_of

SKELETONS = Path(__file__).resolve().parent / "skeletons"

FULL = ("resnet50", "mobilenet_v2", "inception_v3", "bert", "gpt2")
TWINS = ("resnet_tiny", "mobilenet_tiny", "inception_tiny", "bert_tiny", "bert_tiny_dyn", "gpt2_tiny")
_HANDMADE: dict[str, Callable[..., onnx.ModelProto]] = {
    "cnn_tiny": handmade.cnn_tiny,
    "conv_residual": handmade.conv_residual,
    "matmul_gelu": handmade.matmul_gelu,
}
HANDMADE = tuple(_HANDMADE)


def names() -> tuple[str, ...]:
    """All model names: the five full-size models, their small twins, the hand-made ones."""
    return FULL + TWINS + HANDMADE


def build(name: str, half: bool = False, seed: int = 0, **sizes: int) -> onnx.ModelProto:
    """The model `name` with weights from `seed`, in float32, or float16 when `half`.

    `sizes` are the extents of `conv_residual` (n, h, w, c, co, k, stride, pad) and `matmul_gelu` (m, n, k).
    Raises KeyError for an unknown name, TypeError for a size that the model does not have, ValueError for a bad one.
    """
    model = fill(skeleton(name, **sizes), seed, statistics(name))
    return to_half(model) if half else model


def skeleton(name: str, **sizes: int) -> onnx.ModelProto:
    """The graph of `name` with recipes in place of weights.  Raises as `build`."""
    if name in _HANDMADE:
        return _HANDMADE[name](**sizes)
    if name not in names():
        raise KeyError(f"no model {name!r}; there are {', '.join(names())}")
    if sizes:
        raise TypeError(f"{name} has fixed sizes; it takes no {', '.join(sizes)}")
    return onnx.ModelProto.FromString((SKELETONS / f"{name}.onnx").read_bytes())


def statistics_path(name: str) -> Path:
    """Where the BatchNorm statistics of `name` are kept: one float16 array, tensors in initializer order."""
    return SKELETONS / f"{name}.npz"


def calibrated_sizes(model: onnx.ModelProto) -> dict[str, int]:
    """Names and lengths of the calibrated vectors of a skeleton, in the order in which they are stored."""
    return {t.name: t.dims[0] for t in model.graph.initializer if isinstance(recipe_of(t), Calibrated)}


def statistics(name: str) -> dict[str, FloatArray] | None:
    """The measured BatchNorm means and variances of `name` by tensor name; None for a model without BatchNorm."""
    path = statistics_path(name)
    if not path.exists():
        return None
    with np.load(path, allow_pickle=False) as file:
        flat = file["values"].astype(np.float32)
    sizes = calibrated_sizes(skeleton(name))
    ends = np.cumsum(list(sizes.values()))
    if ends[-1] != len(flat):
        raise ValueError(f"{path.name} does not fit its skeleton: run models/calibrate.py {name}")
    return dict(zip(sizes, np.split(flat, ends[:-1]), strict=True))


def _size(text: str) -> tuple[str, int]:
    key, _, value = text.partition("=")
    return key, int(value)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a model of the zoo to an .onnx file.")
    parser.add_argument("name", choices=names(), metavar="NAME", help=", ".join(names()))
    parser.add_argument("--half", action="store_true", help="float16 instead of float32")
    parser.add_argument("--seed", type=int, default=0, help="seed of the weights")
    parser.add_argument("--size", type=_size, action="append", default=[], metavar="KEY=N", help="of a hand-made model")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE")
    args = parser.parse_args()
    try:
        model = build(args.name, args.half, args.seed, **dict(args.size))
    except (TypeError, ValueError) as error:
        parser.error(str(error))
    args.output.write_bytes(model.SerializeToString())


if __name__ == "__main__":
    main()
