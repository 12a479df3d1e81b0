"""The programs by name: functions, and what draws their arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from benchmarks.jax_programs import diffusion, gpt2, resnet

Arguments = tuple[Any, ...]


@dataclass(frozen=True)
class Program:
    """``function`` of trees of arrays; ``arguments`` draws them, f32.

    ``updates``: its first argument is a state, whose next value is its first result. Otherwise the first
    argument are weights.
    """

    function: Callable[..., Any]
    arguments: Callable[[np.random.Generator], Arguments]
    updates: bool = False


def _training(draw: np.random.Generator) -> Arguments:
    return gpt2.weights(draw), gpt2.tokens(draw, 2), gpt2.tokens(draw, 2)


def _optimizer(draw: np.random.Generator) -> Arguments:
    p, m, gradients = (gpt2.weights(draw) for _ in range(3))
    v = jax.tree.map(np.square, m)
    return {"p": p, "m": m, "v": v}, gradients, np.int32(10)


def _denoising(draw: np.random.Generator) -> Arguments:
    shape = (1, diffusion.SIZE, diffusion.SIZE, 3)
    image, drawn = (draw.standard_normal(shape, np.float32) for _ in range(2))
    return diffusion.weights(draw), image, np.asarray([500], np.int32), drawn


def _smoke(draw: np.random.Generator) -> Arguments:
    return draw.standard_normal((16, 16), np.float32), draw.standard_normal((4, 16), np.float32)


def _resnet(layout: str) -> Program:
    net = resnet.ResNet50(layout)
    return Program(net, lambda draw: (net.weights(draw), net.image(draw)))


PROGRAMS: dict[str, Program] = {
    "gpt2-forward": Program(gpt2.forward, lambda draw: (gpt2.weights(draw), gpt2.tokens(draw, 1))),
    "gpt2-training": Program(gpt2.training_step, _training, updates=True),
    "resnet50": _resnet("NHWC"),
    "resnet50-nchw": _resnet("NCHW"),
    "diffusion": Program(diffusion.denoising_step, _denoising),
    "adamw": Program(gpt2.adamw, _optimizer, updates=True),
}
#: Not a program of the benchmark: tries the command in seconds.
SMOKE = "smoke"
ALL = {**PROGRAMS, SMOKE: Program(lambda w, x: (w + x.T @ x, (x @ w).sum()), _smoke, updates=True)}


def drawn(name: str) -> Arguments:
    """The arguments of a program, the same in every process."""
    return ALL[name].arguments(np.random.default_rng(0))
