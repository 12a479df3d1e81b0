"""Make the example programs and their expected results again, with JAX 0.10 (`make examples`).

For each graph, examples/<name>/ gets

    graph.mlir    the program in f32 as StableHLO text, without locations
    tiny.mlir     the same function at sizes that the StableHLO reference interpreter can run
    expected.npz  what JAX computes in f64 from the f32 inputs
    graph.json    shapes, ranges, seed and digest of the inputs; tolerance and its reason

Inputs are not stored: ``inputs.py`` makes them from graph.json.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import graphs
import inputs as example_inputs
import jax
import numpy as np

SEED = 20260
Description = dict[str, Any]


@dataclass(frozen=True)
class Recipe:
    """A function over flat inputs, the descriptions of those inputs in two sizes, and a tolerance."""

    name: str
    functions: dict[str, Callable[..., Any]]
    inputs: dict[str, list[Description]]
    rtol: float
    atol: float
    reason: str


def uniform(name: str, shape: Sequence[int], half_width: float = 0.0, middle: float = 0.0) -> Description:
    """A float input, uniform around ``middle``; a half width of 0 means unit variance over the fan-in."""
    half_width = half_width or float(np.sqrt(3.0 / np.prod(shape[:-1])))
    low, high = middle - half_width, middle + half_width
    return {"name": name, "shape": list(shape), "dtype": "float32", "low": low, "high": high}


def integers(name: str, shape: Sequence[int], low: int, high: int) -> Description:
    """An i32 input, uniform over low <= value < high."""
    return {"name": name, "shape": list(shape), "dtype": "int32", "low": low, "high": high}


def gpt2_inputs(batch: int, time: int, channels: int, vocabulary: int) -> list[Description]:
    """Inputs of ``graphs.gpt2_block``."""
    c = channels
    return [
        integers("tokens", [batch, time], 0, vocabulary),
        uniform("token_table", [vocabulary, c], 1.0),
        uniform("position_table", [time, c], 0.5),
        *(uniform("gain_1", [c], 0.5, 1.0), uniform("bias_1", [c], 0.1)),
        *(uniform("w_qkv", [c, 3 * c]), uniform("b_qkv", [3 * c], 0.1)),
        *(uniform("w_attn", [c, c]), uniform("b_attn", [c], 0.1)),
        *(uniform("gain_2", [c], 0.5, 1.0), uniform("bias_2", [c], 0.1)),
        *(uniform("w_up", [c, 4 * c]), uniform("b_up", [4 * c], 0.1)),
        *(uniform("w_down", [4 * c, c]), uniform("b_down", [c], 0.1)),
    ]


def norm_statistics(name: str, channels: int) -> Description:
    """Rows mean, variance, gain and bias: around 1, so that variances are positive."""
    return uniform(name, [4, channels], 0.5, 1.0)


def resnet_inputs(batch: int, side: int, channels: int, classes: int) -> list[Description]:
    """Inputs of ``graphs.resnet_block``."""
    c = channels
    return [
        uniform("image", [batch, side, side, 3], 2.0),
        *(uniform("stem", [3, 3, 3, c]), norm_statistics("stem_norm", c)),
        *(uniform("kernel_1", [3, 3, c, c]), norm_statistics("norm_1", c)),
        *(uniform("kernel_2", [3, 3, c, c]), norm_statistics("norm_2", c)),
        *(uniform("w_class", [c, classes]), uniform("b_class", [classes], 0.1)),
    ]


def mlp_inputs(batch: int, widths: Sequence[int]) -> list[Description]:
    """Inputs of ``graphs.mlp_train_step``: batch, labels, step, then parameters and both moments."""
    described = [
        uniform("inputs", [batch, widths[0]], 1.7),
        integers("labels", [batch], 0, widths[-1]),
        integers("step", [], 3, 4),
    ]
    ranges = {"": (0.0, 0.0), "first_": (0.01, 0.0), "second_": (4e-4, 5e-4)}
    for prefix, (half_width, middle) in ranges.items():
        for layer, (fan_in, fan_out) in enumerate(itertools.pairwise(widths)):
            described.append(uniform(f"{prefix}w{layer}", [fan_in, fan_out], half_width, middle))
            described.append(uniform(f"{prefix}b{layer}", [fan_out], half_width or 0.1, middle))
    return described


def flat_train_step(count: int, *arrays: jax.Array) -> Any:
    """``graphs.mlp_train_step`` over ``count`` parameters, taken one by one."""
    batch, labels, step, *state = arrays
    groups = (tuple(state[start : start + count]) for start in range(0, 3 * count, count))
    return graphs.mlp_train_step(batch, labels, step, *groups)


SUMS = "f32, whose unit roundoff is 6e-8: sums of up to {0} products, in any order, of values of order one"
RECIPES = (
    Recipe(
        "gpt2_block",
        {"graph": partial(graphs.gpt2_block, heads=4), "tiny": partial(graphs.gpt2_block, heads=2)},
        {"graph": gpt2_inputs(2, 64, 256, 512), "tiny": gpt2_inputs(2, 4, 16, 11)},
        rtol=2e-5,
        atol=2e-5,
        reason=SUMS.format(1024) + ", after two layer norms and a softmax",
    ),
    Recipe(
        "resnet_block",
        {"graph": graphs.resnet_block, "tiny": graphs.resnet_block},
        {"graph": resnet_inputs(2, 32, 32, 10), "tiny": resnet_inputs(1, 6, 4, 3)},
        rtol=2e-5,
        atol=2e-5,
        reason=SUMS.format(288) + ", through three convolutions",
    ),
    Recipe(
        "mlp_train_step",
        {"graph": partial(flat_train_step, 6), "tiny": partial(flat_train_step, 4)},
        {"graph": mlp_inputs(32, [64, 128, 64, 10]), "tiny": mlp_inputs(3, [5, 7, 4])},
        rtol=2e-5,
        atol=2e-6,
        reason=SUMS.format(128) + "; 1 - 0.999^4 in Adam's second moment loses eight bits, but moves a"
        " parameter by the learning rate 1e-2 times that loss only",
    ),
)


def program(function: Callable[..., Any], arrays: Sequence[np.ndarray]) -> str:
    """The StableHLO text of ``function`` at the shapes of ``arrays``, without locations."""
    shapes = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in arrays]
    text = jax.jit(function).lower(*shapes).as_text(dialect="stablehlo", debug_info=False)
    if re.search(r"\bloc\(|#loc|dense_resource", text):
        raise ValueError("the program carries locations or large constants")
    return text.rstrip() + "\n"


def reference(function: Callable[..., Any], arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results of ``function`` in f64, from inputs that were rounded to f32."""
    with jax.enable_x64(True):
        wide = [array.astype(np.float64) if array.dtype.kind == "f" else array for array in arrays]
        return [np.asarray(leaf) for leaf in jax.tree.leaves(jax.jit(function)(*wide))]


def share_of_tolerance(recipe: Recipe, got: Sequence[Any], expected: Sequence[np.ndarray]) -> float:
    """The largest error of ``got`` as a part of what the tolerance allows; above 1 is a failure."""
    shares = [
        np.max(np.abs(np.asarray(a, np.float64) - b) / (recipe.atol + recipe.rtol * np.abs(b)))
        for a, b in zip(got, expected, strict=True)
    ]
    return float(max(shares))


def make(recipe: Recipe) -> None:
    """Write the directory of one example."""
    directory = example_inputs.HERE / recipe.name
    directory.mkdir(exist_ok=True)
    description: Description = {"name": recipe.name, "seed": SEED, "made_by": f"jax {jax.__version__}"}
    for variant, described in recipe.inputs.items():
        arrays = example_inputs.make(described, SEED)
        (directory / f"{variant}.mlir").write_text(program(recipe.functions[variant], arrays))
        description[variant] = {"inputs": described, "inputs_sha256": example_inputs.digest(arrays)}

    arrays = example_inputs.make(recipe.inputs["graph"], SEED)
    function = recipe.functions["graph"]
    expected = reference(function, arrays)
    share = share_of_tolerance(recipe, jax.tree.leaves(jax.jit(function)(*arrays)), expected)
    if share > 0.5:
        raise ValueError(f"{recipe.name}: JAX in f32 already takes {share:.2f} of the tolerance")
    named: dict[str, Any] = {f"output_{index}": array for index, array in enumerate(expected)}
    np.savez_compressed(directory / "expected.npz", **named)
    description["outputs"] = [{"shape": list(a.shape), "dtype": str(a.dtype)} for a in expected]
    description["tolerance"] = {"rtol": recipe.rtol, "atol": recipe.atol, "reason": recipe.reason}
    (directory / "graph.json").write_text(json.dumps(description, indent=1) + "\n")
    print(f"{recipe.name}: {len(expected)} outputs, JAX in f32 takes {share:.3f} of the tolerance")


def main() -> None:
    """Make every example."""
    for recipe in RECIPES:
        make(recipe)


if __name__ == "__main__":
    main()
