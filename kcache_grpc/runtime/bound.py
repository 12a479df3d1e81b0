"""Kernels some of whose arguments are bound: a caller gives the others."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kcache_grpc.errors import ArgumentError, KcacheError
from kcache_grpc.model.target import CpuTarget
from kcache_grpc.runtime.kernel import Kernel


@dataclass(frozen=True)
class BoundArguments:
    """The last arguments of a program, known where it was made: weights, buffers, constants.

    They are never part of the program, nor sent to a service. ``names`` are those of all arguments.
    """

    names: tuple[str, ...]
    #: By reference: a weight that is changed in place is changed for the kernel.
    values: tuple[Any, ...] = field(repr=False)
    #: What a caller gives to the list of arrays that the program takes; ``None`` where that is the same.
    flatten: Callable[[tuple[Any, ...]], Sequence[Any]] | None = field(default=None, repr=False)
    #: Raises ``ArgumentError`` for arrays whose sizes the program was not made for.
    check: Callable[[Sequence[Any]], None] | None = field(default=None, repr=False)

    @property
    def given(self) -> tuple[str, ...]:
        """Names of the arguments that a caller gives."""
        return self.names[: len(self.names) - len(self.values)]

    def complete(self, arrays: tuple[Any, ...]) -> tuple[Any, ...]:
        """All arguments. Raises ``ArgumentError`` for a wrong number of those that are not bound."""
        if self.flatten is not None:
            arrays = tuple(self.flatten(arrays))
        given = self.given
        if len(arrays) != len(given):
            expected = f" ({', '.join(given)})" if given else ""
            raise ArgumentError(
                f"the kernel takes {len(given)} arguments{expected}, got {len(arrays)}; the other "
                f"{len(self.values)} of its program are bound"
            )
        if self.check is not None:
            self.check(arrays)
        return (*arrays, *self.values)


class BoundKernel(Kernel):
    """A kernel that is called with the arguments that are not bound. Shares all else with ``kernel``."""

    def __init__(self, kernel: Kernel, arguments: BoundArguments) -> None:
        # Loaded before it is shared, so that it is loaded once. A kernel for another machine cannot be, and
        # says so when it is called.
        if isinstance(kernel.manifest.target, CpuTarget):
            with contextlib.suppress(KcacheError):
                kernel.load()
        self.__dict__.update(kernel.__dict__)
        self.arguments = arguments

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        return super().__call__(*self.arguments.complete(arrays))

    def _name(self, index: int) -> str:
        names = self.arguments.names
        return names[index] if index < len(names) else super()._name(index)
