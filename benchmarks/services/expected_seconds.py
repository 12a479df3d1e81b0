"""How well the service predicts compile times: programs of many sizes, each against its neighbors.

    python -m benchmarks.services.expected_seconds [--address HOST:PORT] [--json]

Compiles programs of five kinds (chains of elementwise operations, perceptrons, normalizations, attention,
convolutions) at growing depths, in an order that mixes them. Before each compile the service is asked for its
estimate; the report compares it with what the compile then took, for the second half of the programs, whose
neighbors are known. "Typical factor" is the median of max(predicted / actual, actual / predicted).
Needs JAX, which writes the programs. Without an address the embedded service is used, with an empty store.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp

import kcache_grpc as kcache

_DEPTHS = (1, 2, 3, 4, 6, 8, 12, 16)


@dataclass(frozen=True)
class Prediction:
    """One program: expected and actual seconds of its compile, and those of the question."""

    program: str
    predicted: float | None
    actual: float
    asking: float

    @property
    def ratio(self) -> float:
        """Predicted over actual."""
        assert self.predicted is not None
        return self.predicted / self.actual


def _array(*sizes: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(sizes, jnp.float32)


def _chain(depth: int) -> tuple[Callable[..., Any], list[Any]]:
    steps = (jnp.tanh, jnp.exp, jnp.abs, jnp.sin, lambda x: x * 1.5, jnp.cos)

    def apply(x: Any) -> Any:
        for step in range(4 * depth):
            x = steps[step % len(steps)](x) + x
        return x

    return apply, [_array(64, 96)]


def _perceptron(depth: int) -> tuple[Callable[..., Any], list[Any]]:
    def apply(x: Any, *weights: Any) -> Any:
        for weight in weights:
            x = jnp.maximum(x @ weight, 0)
        return x

    return apply, [_array(32, 64), *[_array(64, 64)] * depth]


def _normalization(depth: int) -> tuple[Callable[..., Any], list[Any]]:
    def apply(x: Any) -> Any:
        for _ in range(depth):
            mean = x.mean(-1, keepdims=True)
            x = (x - mean) * jax.lax.rsqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5)
        return x

    return apply, [_array(32, 128)]


def _attention(depth: int) -> tuple[Callable[..., Any], list[Any]]:
    blocks = max(1, depth // 4)

    def apply(x: Any, *weights: Any) -> Any:
        for block in range(blocks):
            q, k, v, o = weights[4 * block : 4 * block + 4]
            x = x + jax.nn.softmax((x @ q) @ (x @ k).T / 8.0, -1) @ (x @ v) @ o
        return x

    return apply, [_array(32, 64), *[_array(64, 64)] * (4 * blocks)]


def _convolution(depth: int) -> tuple[Callable[..., Any], list[Any]]:
    def apply(x: Any, *weights: Any) -> Any:
        for weight in weights:
            x = jnp.maximum(jax.lax.conv(x, weight, (1, 1), "SAME"), 0)
        return x

    return apply, [_array(1, 16, 16, 16), *[_array(16, 16, 3, 3)] * depth]


_KINDS = {
    "chain": _chain,
    "perceptron": _perceptron,
    "normalization": _normalization,
    "attention": _attention,
    "convolution": _convolution,
}


def programs(seed: int = 0) -> Iterator[tuple[str, str]]:
    """Names and StableHLO texts, in an order that mixes kinds and depths. No two have the same spec."""
    texts: dict[str, str] = {}
    for name, make in _KINDS.items():
        for depth in _DEPTHS:
            function, arguments = make(depth)
            text = jax.jit(function).lower(*arguments).as_text()
            if text not in texts.values():
                texts[f"{name} {depth}"] = text
    names = list(texts)
    random.Random(seed).shuffle(names)
    return ((name, texts[name]) for name in names)


def measure(client: kcache.Client) -> list[Prediction]:
    """Asks, then compiles, each program in turn."""
    predictions: list[Prediction] = []
    for name, text in programs():
        began = time.perf_counter()
        predicted = client.expected_seconds(text, format="stablehlo")
        asking = time.perf_counter() - began
        kernel = client.compile(text, format="stablehlo")
        if kernel.origin != "compiled":
            raise SystemExit(f"{name} was not compiled: use an empty namespace")
        predictions.append(Prediction(name, predicted, kernel.manifest.compile_seconds, asking))
    return predictions


def summary(predictions: list[Prediction]) -> dict[str, float]:
    """Of the second half, whose neighbors are known."""
    later = predictions[len(predictions) // 2 :]
    factors = [max(each.ratio, 1 / each.ratio) for each in later]
    return {
        "programs": len(later),
        "median_ratio": median(each.ratio for each in later),
        "typical_factor": median(factors),
        "within_factor_2": sum(factor <= 2 for factor in factors) / len(factors),
        "median_asking_seconds": median(each.asking for each in later),
        "shortest_compile": min(each.actual for each in later),
        "longest_compile": max(each.actual for each in later),
    }


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--address", default=None)
    parser.add_argument("--namespace", default="expected-seconds")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        kcache.Client(
            arguments.address, namespace=arguments.namespace, cache_dir=Path(folder) / "cache"
        ) as client,
    ):
        predictions = measure(client)
    figures = summary(predictions)
    if arguments.json:
        print(json.dumps({"summary": figures, "programs": [asdict(each) for each in predictions]}))
        return
    for each in predictions:
        predicted = "no history" if each.predicted is None else f"{each.predicted:7.3f} s"
        print(f"{each.program:18} predicted {predicted:>10}  actual {each.actual:7.3f} s")
    for name, value in figures.items():
        print(f"{name:22} {value:.3f}")


if __name__ == "__main__":
    main()
