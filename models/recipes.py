"""Weight recipes: a skeleton's empty initializers + a seed -> a complete model.

A *skeleton* is an ordinary ModelProto in which an initializer without data carries, in its `doc_string`, the rule that
makes its values.  The values of a tensor depend on the seed, its name and its shape only, never on its neighbours, so
that adding a tensor leaves the others unchanged.
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper

FloatArray: TypeAlias = npt.NDArray[np.float32]

# How far the weights of another seed move away from seed 0 when BatchNorm statistics were measured with seed 0.
CALIBRATED_DRIFT = 0.1


@dataclass(frozen=True)
class Normal:
    """Independent normal values."""

    mean: float
    std: float

    def text(self) -> str:
        return f"normal {self.mean!r} {self.std!r}"


@dataclass(frozen=True)
class Uniform:
    """Independent values, uniform in [low, high)."""

    low: float
    high: float

    def text(self) -> str:
        return f"uniform {self.low!r} {self.high!r}"


@dataclass(frozen=True)
class Calibrated:
    """Values measured by `models/calibrate.py`; `initial` is what a model holds before it was calibrated."""

    initial: float

    def text(self) -> str:
        return f"calibrated {self.initial!r}"


Recipe: TypeAlias = Normal | Uniform | Calibrated


def parse(text: str) -> Recipe:
    """The recipe written by `text()`.  Raises ValueError for anything else."""
    match text.split():
        case ["normal", mean, std]:
            return Normal(float(mean), float(std))
        case ["uniform", low, high]:
            return Uniform(float(low), float(high))
        case ["calibrated", initial]:
            return Calibrated(float(initial))
        case _:
            raise ValueError(f"not a weight recipe: {text!r}")


def placeholder(name: str, shape: tuple[int, ...], recipe: Recipe) -> onnx.TensorProto:
    """A float32 initializer without data, to be filled by `fill`."""
    return onnx.TensorProto(name=name, dims=shape, data_type=onnx.TensorProto.FLOAT, doc_string=recipe.text())


def recipe_of(tensor: onnx.TensorProto) -> Recipe | None:
    """The recipe of a placeholder; None for an initializer that has its data."""
    return parse(tensor.doc_string) if tensor.doc_string and not tensor.HasField("raw_data") else None


def fill(skeleton: onnx.ModelProto, seed: int, statistics: Mapping[str, FloatArray] | None) -> onnx.ModelProto:
    """Fill every placeholder of `skeleton`, in place, and return it.

    `statistics` maps the names of calibrated tensors to their values, measured with seed 0; None leaves the initial
    values there (before calibration).  A model with statistics moves only a little for another seed, because
    statistics that do not belong to the weights would make a deep network explode or go flat.
    """
    recipes = {t.name: recipe_of(t) for t in skeleton.graph.initializer}
    drift = CALIBRATED_DRIFT if any(isinstance(r, Calibrated) for r in recipes.values()) else 1.0
    for tensor in skeleton.graph.initializer:
        recipe = recipes[tensor.name]
        if recipe is None:
            continue
        shape = tuple(tensor.dims)
        if isinstance(recipe, Calibrated):
            values = _measured(tensor.name, shape, recipe, statistics)
        else:
            values = _random(recipe, tensor.name, shape, seed, drift)
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    return skeleton


def _measured(
    name: str, shape: tuple[int, ...], recipe: Calibrated, statistics: Mapping[str, FloatArray] | None
) -> FloatArray:
    if statistics is None:
        return np.full(shape, recipe.initial, np.float32)
    if name not in statistics or statistics[name].shape != shape:
        raise ValueError(f"no calibrated values of shape {shape} for {name!r}: run models/calibrate.py for this model")
    return statistics[name]


def _random(recipe: Normal | Uniform, name: str, shape: tuple[int, ...], seed: int, drift: float) -> FloatArray:
    """Values of one tensor; with drift < 1 they keep the recipe's variance and stay close to those of seed 0."""
    own = _draw(recipe, name, shape, seed)
    if seed == 0 or drift == 1.0:
        return own
    mean = recipe.mean if isinstance(recipe, Normal) else (recipe.low + recipe.high) / 2
    base = _draw(recipe, name, shape, 0)
    return (mean + np.sqrt(1 - drift**2) * (base - mean) + drift * (own - mean)).astype(np.float32)


def _draw(recipe: Normal | Uniform, name: str, shape: tuple[int, ...], seed: int) -> FloatArray:
    rng = np.random.Generator(np.random.PCG64([seed, zlib.crc32(name.encode())]))
    match recipe:
        case Normal(mean, std):
            values = rng.standard_normal(shape, dtype=np.float32)
            values *= np.float32(std)
            values += np.float32(mean)
        case Uniform(low, high):
            values = rng.random(shape, dtype=np.float32)
            values *= np.float32(high - low)
            values += np.float32(low)
    return values
