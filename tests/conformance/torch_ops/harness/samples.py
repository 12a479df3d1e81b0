"""Operations by name and the samples of their arguments, from PyTorch's own tests."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import itertools
import sys
import types
import unittest
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch.utils import _pytree as pytree

#: dtypes that are drawn, by the names of this project.
DTYPES = {"f32": torch.float32, "i64": torch.int64, "i1": torch.bool, "bf16": torch.bfloat16}
#: Operations whose results are random or not initialized, or that are made for other devices.
_LEFT_OUT = (
    *("bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "normal", "uniform"),
    *("rand", "empty", "new_empty", "jiterator", "dropout", "rrelu", "fractional_max_pool", "sparse", "hash"),
    *("_flash_attention", "_efficient_attention", "_scaled_mm", "to_sparse", "lowrank", "resize_"),
)
#: Samples of an operation that are drawn from.
_MOST = 40


class Sample(NamedTuple):
    """A function of tensors only, and the tensors."""

    function: Any
    tensors: tuple[Any, ...]

    @classmethod
    def of(cls, function: Any, arguments: Sequence[Any], named: Mapping[str, Any]) -> Sample:
        """A call as a function of the tensors among its arguments."""
        leaves, spec = pytree.tree_flatten((tuple(arguments), dict(named)))
        places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

        def called(*tensors: Any) -> Any:
            filled = list(leaves)
            for place, tensor in zip(places, tensors, strict=True):
                filled[place] = tensor
            positional, others = pytree.tree_unflatten(filled, spec)
            return function(*positional, **others)

        return cls(called, tuple(leaves[place].detach().clone() for place in places))


class Unfit(Exception):
    """No such sample: too few of them, or arguments that are no tensors."""


@functools.cache
def _database() -> dict[str, Any]:
    # PyTorch's tests import a package for expected texts, of which its samples need nothing.
    if importlib.util.find_spec("expecttest") is None:
        stub = types.ModuleType("expecttest")
        stub.TestCase = unittest.TestCase  # pyright: ignore[reportAttributeAccessIssue]
        sys.modules["expecttest"] = stub
    # The import would forbid assignments to flags such as torch.backends.cudnn.enabled in this process.
    with mock.patch.object(torch.backends, "disable_global_flags"):
        module: Any = importlib.import_module("torch.testing._internal.common_methods_invocations")
    return {
        info.name + (f" ({info.variant_test_name})" if info.variant_test_name else ""): info
        for info in module.op_db
    }


def info(name: str) -> Any:
    """PyTorch's description of an operation."""
    return _database()[name]


def pairs() -> list[tuple[str, str]]:
    """Operation and dtype, of all that PyTorch says it has on a CPU."""
    return [
        (name, dtype)
        for name, info in sorted(_database().items())
        if not any(part in name for part in _LEFT_OUT)
        for dtype, kind in DTYPES.items()
        if kind in info.supported_dtypes("cpu")
    ]


def sample(name: str, dtype: str, seed: int, number: int) -> Sample:
    """One of the first samples; the tensors among its arguments are what the function takes."""
    info = _database()[name]
    torch.manual_seed(seed)
    samples = list(itertools.islice(info.sample_inputs("cpu", DTYPES[dtype], requires_grad=False), _MOST))
    if not samples:
        raise Unfit("it has no sample")
    chosen = samples[(seed * 7 + number) % len(samples)]
    drawn = Sample.of(info.get_op(), (chosen.input, *chosen.args), chosen.kwargs)
    if any(tensor.layout != torch.strided for tensor in drawn.tensors):
        raise Unfit("a tensor that is not strided")
    return drawn


#: What is put between the numbers of a sample: nothing that cancels or overflows.
_PLANTED = (float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 1e-40, 100.0)


def planted_pairs() -> list[tuple[str, str]]:
    """Without Fourier transforms: which sums of infinities are NaN is a matter of their order; and without
    conversions to integers, of NaN not defined.
    """
    left_out = ("fft.", "byte", "char", "short", "int", "long")
    return [
        (name, dtype)
        for name, dtype in pairs()
        if dtype in ("f32", "bf16") and (not name.startswith(left_out) or name == "inner")
    ]


def planted(original: Sample, seed: int) -> Sample:
    """The sample with an eighth of the elements of its floating tensors replaced by edge values."""
    torch.manual_seed(seed + 1)
    if not any(x.is_floating_point() and x.numel() for x in original.tensors):
        raise Unfit("no floating tensor with elements")
    values = torch.tensor(_PLANTED)

    def with_edges(x: Any) -> Any:
        if not x.is_floating_point():
            return x
        chosen = values[torch.randint(0, len(values), x.shape)].to(x.dtype)
        return torch.where(torch.rand(x.shape) < 0.125, chosen, x)

    return Sample(original.function, tuple(with_edges(x) for x in original.tensors))
