"""What an export takes for granted of its open sizes holds at each call, or the call is rejected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

import torch
from torch.export import Dim

from kcache_grpc.errors import ArgumentError
from kcache_grpc.programs.torch.export import torch_program
from kcache_grpc.programs.torch.guards import check_of
from tests.compiler.torch_modules import Function

_B = Dim("b", min=4, max=64)
_ANY = Dim.AUTO
_Shape = tuple[int, ...]


def _sums(x: Any, y: Any) -> Any:
    return x.sum() + y.sum()


def _sampled(x: Any, grid: Any) -> Any:
    return torch.nn.functional.grid_sample(x, grid, align_corners=False)


#: A function, its sizes at the export, the open first axes, then the sizes of calls: taken, and rejected.
CASES: dict[
    str, tuple[Callable[..., Any], list[_Shape], list[Any], list[list[_Shape]], list[list[_Shape]]]
] = {
    "bounds": (
        *(lambda x: x + 1, [(5, 4)], [_B]),
        *([[(4, 4)], [(64, 4)]], [[(3, 4)], [(65, 4)]]),
    ),
    "one Dim of two inputs": (
        *(_sums, [(5, 4), (5, 3)], [_B, _B]),
        *([[(9, 4), (9, 3)]], [[(9, 4), (8, 3)]]),
    ),
    "one Dim of an image and its grid": (
        *(_sampled, [(5, 2, 4, 4), (5, 3, 3, 2)], [_B, _B]),
        *([[(9, 2, 4, 4), (9, 3, 3, 2)]], [[(9, 2, 4, 4), (4, 3, 3, 2)]]),
    ),
    "a derived Dim": (
        *(_sums, [(5, 4), (10, 3)], [_B, 2 * _B]),
        *([[(6, 4), (12, 3)]], [[(6, 4), (11, 3)], [(3, 4), (6, 3)]]),
    ),
    "derived Dims alone": (
        *(_sums, [(10, 4), (10, 3)], [2 * _B, 2 * _B]),
        *([[(12, 4), (12, 3)]], [[(12, 4), (10, 3)], [(6, 4), (6, 3)]]),
    ),
    "one more": (
        *(_sums, [(5, 4), (6, 3)], [_B, _B + 1]),
        *([[(7, 4), (8, 3)]], [[(7, 4), (7, 3)]]),
    ),
    "a branch by size": (
        *(lambda x: x + 1 if x.shape[0] < 100 else x, [(5, 4)], [_ANY]),
        *([[(99, 4)]], [[(100, 4)]]),
    ),
    "a branch by a rest": (
        *(lambda x: x + 1 if x.shape[0] % 2 == 0 else x, [(6, 4)], [_ANY]),
        *([[(8, 4)]], [[(7, 4)]]),
    ),
    "a branch by two sizes": (
        *(lambda x, y: x.sum() if x.shape[0] > y.shape[0] else y.sum(), [(6, 4), (5, 4)], [_ANY, _ANY]),
        *([[(9, 4), (8, 4)]], [[(8, 4), (9, 4)]]),
    ),
}


@pytest.mark.sampled(6)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_calls_are_rejected_where_the_exported_module_rejects_them(name: str) -> None:
    function, sizes, opened, taken, rejected = CASES[name]
    exported = _exported(function, sizes, opened)
    _, bound = torch_program(exported)
    module = exported.module()
    for shapes in taken:
        arrays = _arrays(shapes)
        assert bound.complete(arrays) == arrays
        module(*arrays)
    for shapes in rejected:
        with pytest.raises(ArgumentError, match=r"shape\[0\] is \d+.* exported for"):
            bound.complete(_arrays(shapes))
        with pytest.raises(AssertionError, match="Guard failed"):
            module(*_arrays(shapes))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("function", [lambda x: x.squeeze(0) + 1, lambda x: x.squeeze() + 1])
def test_an_open_axis_that_is_squeezed_is_not_one(function: Callable[..., Any]) -> None:
    """Eager mode drops the axis there, and the kernel would keep it."""
    _, bound = torch_program(_exported(function, [(5, 4)], [Dim("n")]))
    bound.complete(_arrays([(2, 4)]))
    with pytest.raises(ArgumentError, match=r"shape\[0\] is 1"):
        bound.complete(_arrays([(1, 4)]))


@pytest.mark.filterwarnings("ignore")
def test_other_sizes_are_taken() -> None:
    _, bound = torch_program(_exported(_sums, [(5, 4), (6, 3)], [Dim("n"), Dim("m")]))
    for first, second in ((1, 1), (0, 7), (1000, 3)):
        bound.complete(_arrays([(first, 4), (second, 3)]))
    _, fixed = torch_program(torch.export.export(Function(_sums), tuple(_arrays([(5, 4), (6, 3)]))))
    assert fixed.check is None


@pytest.mark.filterwarnings("ignore")
def test_inputs_of_any_name_and_nesting() -> None:
    class Nested(torch.nn.Module):
        def forward(self, input: Any, size: dict[str, list[Any]], *, other: Any) -> Any:
            return input.sum() + size["k"][0].sum() + other.sum() * int(other.shape[0] % 2)

    inputs = (torch.zeros(4, 2), {"k": [torch.zeros(4, 3)]})
    shapes = {"input": {0: _B}, "size": {"k": [{0: _B}]}, "other": {0: Dim.AUTO}}
    exported = torch.export.export(Nested(), inputs, {"other": torch.zeros(6, 2)}, dynamic_shapes=shapes)
    _, bound = torch_program(exported)
    first, second = inputs[0], torch.zeros(5, 3)
    bound.complete((first, inputs[1], torch.zeros(8, 2)))
    with pytest.raises(ArgumentError, match=r"input\.shape\[0\] is 4"):
        bound.complete((first, {"k": [second]}, torch.zeros(8, 2)))
    with pytest.raises(ArgumentError, match=r"other\.shape\[0\] % 2 == 0 only"):
        bound.complete((first, inputs[1], torch.zeros(7, 2)))


class _Named(torch.nn.Module):
    """Inputs whose names are not those of placeholders, or those of others."""

    def forward(self, x: list[Any], x_1: Any, Q: Any, d: dict[str, Any], *rest: Any) -> Any:
        taken = x[1].shape[0] % 2 == 0 and Q.shape[0] > x_1.shape[0] and d["a-b"].shape[0] % 3 == 0
        taken = taken and rest[1].shape[0] % 5 == 0 and torch.sym_max(x[0].shape[0], rest[0].shape[0]) > 6
        return sum(tensor.sum() for tensor in (*x, x_1, Q, *d.values(), *rest)) + (1 if taken else 2)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("strict", [False, True])
def test_conditions_are_of_the_inputs_that_they_were_observed_of(strict: bool) -> None:
    opened = {0: _ANY}
    shapes = {"x": [opened] * 2, "x_1": opened, "Q": opened, "d": {"a-b": opened}, "rest": (opened,) * 2}

    def sized(*sizes: int) -> tuple[Any, ...]:
        zeros = [torch.zeros(size, 3) for size in sizes]
        return zeros[:2], zeros[2], zeros[3], {"a-b": zeros[4]}, *zeros[5:]

    exported = torch.export.export(
        _Named(), sized(3, 4, 6, 8, 6, 7, 10), dynamic_shapes=shapes, strict=strict
    )
    _, bound = torch_program(exported)
    for sizes in ((3, 8, 7, 9, 6, 11, 15), (7, 2, 8, 9, 3, 2, 5)):
        bound.complete(sized(*sizes))
    for place, size, named in (
        *((1, 5, r"x_1\.shape\[0\] % 2"), (3, 5, r"q\.shape\[0\] > x_1_1\.shape\[0\]")),
        *((4, 7, r"d_a_b\.shape\[0\] % 3"), (6, 7, r"rest_1\.shape\[0\] % 5")),
        (5, 5, r"max\("),
    ):
        sizes = [3, 4, 6, 8, 6, 7, 10]
        sizes[place] = size
        with pytest.raises(ArgumentError, match=named):
            bound.complete(sized(*sizes))


@pytest.mark.filterwarnings("ignore")
def test_a_tensor_of_rank_0_is_squeezed() -> None:
    _, bound = torch_program(_exported(lambda x: x.sum().squeeze(0) + x.sum().squeeze(-1), [(5, 4)], [_ANY]))
    bound.complete(_arrays([(1, 4)]))


_SIZE = "L['flat_args'][0].size()[0]"


@pytest.mark.issue(number=19, point=29)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "condition",
    [
        f"{_SIZE} ** 9 ** 9 ** 9 >= 0",
        f"({_SIZE} ** 8) ** 8 >= 0",
        f"{_SIZE} << 10 ** 11 >= 0",
        f"'x' * 10 ** 12 * {_SIZE} != ''",
        f"torch.sym_of_a_later_release({_SIZE}) > 2",
        "L['unknown'].size()[0] > 2",
        f"{_SIZE} >",
    ],
)
def test_a_condition_that_cannot_be_checked_rejects_the_program(condition: str) -> None:
    exported = _exported(lambda x: x + 1, [(5, 4)], [_ANY])
    exported._guards_code = [condition]
    with pytest.raises(ArgumentError, match="cannot check: export it with static sizes"):
        check_of(exported, exported)


@pytest.mark.issue(number=19, point=29)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "condition",
    [
        f"{_SIZE} ** 2 <= 100",
        f"torch.sym_max({_SIZE}, 7) <= 10",
        f"max({_SIZE}, 7) <= 10",
        f"torch.sym_not({_SIZE} > 10)",
        f"torch.sym_ite({_SIZE} > 10, 0, 1) == 1",
    ],
)
def test_conditions_in_the_words_of_every_release_are_checked(condition: str) -> None:
    exported = _exported(lambda x: x + 1, [(5, 4)], [_ANY])
    exported._guards_code = [condition]
    check = check_of(exported, exported)
    assert check is not None
    check(_arrays([(10, 4)]))
    with pytest.raises(ArgumentError, match=r"shape\[0\]"):
        check(_arrays([(11, 4)]))


def _exported(function: Callable[..., Any], sizes: list[_Shape], opened: list[Any]) -> Any:
    axes = tuple({0: dim} for dim in opened)
    return torch.export.export(Function(function), _arrays(sizes), dynamic_shapes=(axes,))


def _arrays(shapes: list[_Shape]) -> tuple[Any, ...]:
    return tuple(torch.zeros(shape) for shape in shapes)
