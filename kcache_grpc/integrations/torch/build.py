"""A kernel for one call of an operator: exported, compiled, and compared with eager mode."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeVar, cast

from kcache_grpc.errors import ArgumentError
from kcache_grpc.programs.torch.export import torch_program
from kcache_grpc.programs.torch.guards import SizeCheck, check_from

torch: Any = import_module("torch")

T = TypeVar("T")
_PLACE = object()
#: Relative to the number, and to the largest number of the result, by the bytes of a real number.
_TOLERANCES = {2: (2e-2, 1e-2), 4: (5e-5, 2e-5), 8: (1e-7, 1e-8)}
#: The least size of a dynamic axis of an export; 0 and 1 have their own programs.
_LEAST_OPEN = 2
#: Export uses state that all threads of PyTorch share.
_EXPORTS = threading.Lock()


class NotSupported(Exception):
    """The call stays eager; ``reason`` is the counter's name."""

    def __init__(self, reason: str, text: str = "") -> None:
        super().__init__(text or reason)
        self.reason = reason


@dataclass(frozen=True)
class AcceptedSizes:
    """The sizes of tensors that a program with dynamic axes accepts."""

    #: Each ``(tensor, axis, size)``.
    fixed: tuple[tuple[int, int, int], ...]
    #: Each ``(tensor, axis)``.
    open: tuple[tuple[int, int], ...]
    conditions: tuple[str, ...]
    names: tuple[str, ...]

    def include(self, tensors: Sequence[Any]) -> bool:
        """Whether tensors, whose ranks are those of the program, have accepted sizes."""
        if any(tensors[index].shape[axis] != size for index, axis, size in self.fixed):
            return False
        if any(tensors[index].shape[axis] < _LEAST_OPEN for index, axis in self.open):
            return False
        try:
            check_from(self.conditions, self.names)(tensors)
        except ArgumentError:
            return False
        return True

    def to_json(self) -> dict[str, Any]:
        """For the table."""
        return {
            "fixed": self.fixed,
            "open": self.open,
            "conditions": self.conditions,
            "names": self.names,
        }

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> AcceptedSizes:
        """Raises ``KeyError``, ``TypeError`` or ``ValueError`` for another form."""
        fixed = tuple((int(i), int(axis), int(size)) for i, axis, size in value["fixed"])
        axes = tuple((int(i), int(axis)) for i, axis in value["open"])
        return AcceptedSizes(fixed, axes, tuple(value["conditions"]), tuple(value["names"]))


class _Call(torch.nn.Module):
    """One call as a module of its tensors."""

    def __init__(self, op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        self._op = op
        self._arguments = _emptied(list(args))
        self._named = {name: _emptied(value) for name, value in kwargs.items()}

    def forward(self, *tensors: Any) -> Any:
        rest = iter(tensors)
        args = _filled(self._arguments, rest)
        return self._op(*args, **{name: _filled(value, rest) for name, value in self._named.items()})


def _emptied(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return _PLACE
    if not isinstance(value, (list, tuple)):
        return value
    return [_emptied(element) for element in cast("Sequence[Any]", value)]


def _filled(value: Any, tensors: Iterator[Any]) -> Any:
    if value is _PLACE:
        return next(tensors)
    if not isinstance(value, list):
        return value
    return [_filled(element, tensors) for element in cast("list[Any]", value)]


def exported_call(
    op: Any, args: Sequence[Any], kwargs: Mapping[str, Any], tensors: Sequence[Any], dynamic: bool
) -> tuple[bytes, AcceptedSizes | None]:
    """The text of a call's program, whose inputs are its tensors, row-major; with ``dynamic`` also its guard.

    Raises ``NotSupported`` where ``torch.export`` rejects it or it brings constants, ``KcacheError`` where it
    cannot be written.
    """
    inputs = tuple(torch.empty(tensor.shape, dtype=tensor.dtype) for tensor in tensors)
    shapes = None
    if dynamic:
        auto = torch.export.Dim.AUTO
        shapes = {
            "tensors": tuple(
                {axis: auto for axis, size in enumerate(each.shape) if size >= _LEAST_OPEN} for each in inputs
            )
        }
    with _EXPORTS, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            exported = torch.export.export(_Call(op, args, kwargs), inputs, dynamic_shapes=shapes)
        except Exception as error:  # code of another project
            raise NotSupported("export_failed", f"{type(error).__name__}: {error}") from error
        text, arguments = torch_program(exported)
    if arguments.values or arguments.written or len(arguments.given) != len(inputs):
        raise NotSupported("constants")
    return text, _accepted_sizes(exported, arguments.check) if dynamic else None


def _accepted_sizes(exported: Any, check: Any) -> AcceptedSizes:
    fixed: list[tuple[int, int, int]] = []
    axes: list[tuple[int, int]] = []
    places = [node for node in exported.graph.nodes if node.op == "placeholder"]
    for index, node in enumerate(places):
        for axis, size in enumerate(node.meta["val"].shape):
            if isinstance(size, int):
                fixed.append((index, axis, size))
            else:
                axes.append((index, axis))
    if isinstance(check, SizeCheck):
        return AcceptedSizes(tuple(fixed), tuple(axes), check.conditions, check.names)
    return AcceptedSizes(tuple(fixed), tuple(axes), (), ())


def require_replaceable(results: Any, tensors: Sequence[Any]) -> tuple[Any, ...]:
    """Eager results as a tuple, where new row-major tensors can stand for them. Raises ``NotSupported``."""
    several = isinstance(results, (list, tuple))
    flat = tuple(cast("Sequence[Any]", results)) if several else (results,)
    memory = {tensor.untyped_storage().data_ptr() for tensor in tensors if tensor.numel()}
    for result in flat:
        if type(result) is not torch.Tensor or result.layout is not torch.strided:
            raise NotSupported("results")
        if result.numel() and result.untyped_storage().data_ptr() in memory:
            raise NotSupported("view")
        if result.is_conj() or result.is_neg():
            raise NotSupported("results")
        if result.stride() != torch.empty(result.shape, device="meta").stride():
            raise NotSupported("strides")
    return flat


def require_equal(ours: Sequence[Any], eager: Sequence[Any], *, values: bool) -> None:
    """Raises ``NotSupported`` where kernels give other dtypes, shapes or (with ``values``) numbers."""
    if len(ours) != len(eager):
        raise NotSupported("mismatch", f"{len(ours)} results instead of {len(eager)}")
    for index, (mine, theirs) in enumerate(zip(ours, eager, strict=True)):
        if (mine.dtype, mine.shape, mine.stride()) != (theirs.dtype, theirs.shape, theirs.stride()):
            raise NotSupported("mismatch", f"result {index} has another dtype, shape or strides")
        if values and not _close(mine, theirs):
            raise NotSupported("mismatch", f"result {index} has other numbers than eager mode")


def _close(mine: Any, theirs: Any) -> bool:
    if not (mine.is_floating_point() or mine.is_complex()):
        return bool(torch.equal(mine, theirs))
    relative, scaled = _TOLERANCES[torch.finfo(mine.dtype).bits // 8]
    wide = torch.complex128 if mine.is_complex() else torch.float64
    mine, theirs = mine.to(wide), theirs.to(wide)
    finite = theirs[theirs.isfinite()].abs()
    largest = float(finite.max()) if finite.numel() else 0.0
    return bool(torch.allclose(mine, theirs, rtol=relative, atol=scaled * largest, equal_nan=True))


def in_clean_thread(work: Callable[[], T]) -> T:
    """The result of ``work`` in a thread without the caller's dispatcher state, modes and grad mode."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            with torch.no_grad():
                results.append(work())
        except BaseException as error:  # noqa: BLE001 - raised again by the caller
            errors.append(error)

    thread = threading.Thread(target=run, name="kcache-eager-kernel")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
