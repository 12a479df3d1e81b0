"""One function, exported by each framework, has one key: some under ``strict`` too."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from kcache_compiler.spec import canonicalize
from kcache_compiler.spec.instantiate import instantiate
from kcache_compiler.spec.text import parse_spec, write_spec

EXPORTED = Path(__file__).parents[2] / "functions" / "exported"
FILES = sorted(EXPORTED.glob("*.mlir"))

#: Functions that are the same bits however a framework writes them.
EXACT = {
    "attention_scores",
    "bias_relu",
    "log_softmax",
    "matmul_bias_relu",
    "mean_squared_error",
    "residual_add",
    "rms_norm",
    "sigmoid_gate",
    "silu",
    "softmax",
}
#: Functions that frameworks round differently: one key where values may change within a tolerance.
TOLERANT = {
    "adam",
    "batch_norm",
    "cross_entropy",
    "gelu_erf",
    "gelu_tanh",
    "layer_norm",
    "standardize",
    "variance",
    "variance_unbiased",
}
#: Functions of which the frameworks have different ideas.
APART = {"cross_entropy_labels"}


#: PyTorch sums over batch and classes at once, and divides by the batch: it stays a constant.
SIZED = {"cross_entropy"}


def key(path: Path, numerics: str) -> str:
    erasing = path.name.partition(".")[0] not in SIZED
    return canonicalize(path.read_bytes(), "stablehlo", numerics, erasing=erasing).spec_text


def keys(function: str, numerics: str) -> dict[str, list[str]]:
    """The files of a function by the key that they have."""
    by_key: defaultdict[str, list[str]] = defaultdict(list)
    for path in FILES:
        if path.name.partition(".")[0] == function:
            by_key[key(path, numerics)].append(path.name)
    return by_key


@pytest.mark.sampled(3)
@pytest.mark.parametrize("numerics", ["strict", "default", "fast"])
@pytest.mark.parametrize("function", sorted(EXACT))
def test_exact_functions_have_one_key_under_every_class(function: str, numerics: str) -> None:
    files = keys(function, numerics).values()
    assert len(files) == 1, list(files)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("numerics", ["default", "fast"])
@pytest.mark.parametrize("function", sorted(TOLERANT))
def test_functions_that_round_differently_have_one_key_by_default(function: str, numerics: str) -> None:
    files = keys(function, numerics).values()
    assert len(files) == 1, list(files)


@pytest.mark.parametrize("function", sorted(TOLERANT))
def test_functions_that_round_differently_stay_apart_under_strict(function: str) -> None:
    assert len(keys(function, "strict")) > 1


@pytest.mark.parametrize("function", sorted(EXACT | TOLERANT))
def test_each_function_comes_from_several_frameworks(function: str) -> None:
    names = {path.name.split(".")[1] for path in FILES if path.name.partition(".")[0] == function}
    assert names >= {"jax", "torch"}


def test_functions_that_mean_different_things_stay_apart() -> None:
    for function in APART:
        assert len(keys(function, "default")) > 1


def test_different_functions_have_different_keys() -> None:
    owners: defaultdict[str, set[str]] = defaultdict(set)
    for path in FILES:
        # By the root and its reciprocal, as ONNX writes it, is another function under ``strict`` only.
        owners[key(path, "default")].add(path.name.partition(".")[0].removesuffix("_root"))
    assert [functions for functions in owners.values() if len(functions) > 1] == []


@pytest.mark.sampled(3)
@pytest.mark.parametrize("numerics", ["strict", "default"])
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_is_rewritten_stays_as_it_is(path: Path, numerics: str) -> None:
    spec = canonicalize(path.read_bytes(), "stablehlo", numerics)
    assert write_spec(instantiate(parse_spec(spec.spec_text), {})) == spec.spec_text
