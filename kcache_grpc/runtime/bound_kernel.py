"""Kernels some of whose arguments are bound: a caller gives the others."""

from __future__ import annotations

import contextlib
import sys
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from kcache_grpc.errors import ArgumentError, KcacheError
from kcache_grpc.model.target import CpuTarget
from kcache_grpc.runtime.arrays import is_torch
from kcache_grpc.runtime.kernel import Kernel, in_order
from kcache_grpc.runtime.prepared.prepared_kernel import PreparedKernel
from kcache_grpc.runtime.updated_arguments import addresses, not_writable, overlap, write


@dataclass(frozen=True)
class Late:
    """A value that is made at the first call, by ``load``."""

    load: Callable[[], Any] = field(repr=False)


class WrittenArgument(NamedTuple):
    """Where the new value of an update in place goes: one of the last results of a program."""

    name: str
    #: Its position among all arguments; ``None`` where the program only writes it.
    position: int | None
    #: Of what is bound the caller's PyTorch tensor, and the contiguous copy where there is one.
    tensors: tuple[Any, ...] = ()


@dataclass(frozen=True)
class BoundArguments:
    """The last arguments of a program, known where it was made: weights, buffers, constants.

    They are never part of the program, nor sent to a service. ``names`` are those of all arguments, or empty
    where the kernel knows them.
    """

    names: tuple[str, ...]
    #: By reference: a weight that is changed in place is changed for the kernel. ``Late`` ones, and those
    #: that are not aligned to their elements, are made, or copied, at the first call.
    values: tuple[Any, ...] = field(repr=False)
    #: What a caller gives to the list of arrays that the program takes; ``None`` where that is the same.
    flatten: Callable[[tuple[Any, ...]], Sequence[Any]] | None = field(default=None, repr=False)
    #: Names of what ``flatten`` takes by name, in its order, after what it takes by position; perhaps nested.
    nested: tuple[str, ...] | None = None
    #: Raises ``ArgumentError`` for arrays whose sizes the program was not made for.
    check: Callable[[Sequence[Any]], None] | None = field(default=None, repr=False)
    #: Name -> PyTorch tensor of the caller whose memory a value has, and which may require grad.
    weights: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    #: What the last results are written to after a call, in their order.
    written: tuple[WrittenArgument, ...] = field(default=(), repr=False)

    @property
    def given(self) -> tuple[str, ...]:
        """Names of the arguments that a caller gives."""
        return self.names[: len(self.names) - len(self.values)]

    def difference(self, other: BoundArguments) -> str:
        """What tells the bound values from those of another program; empty where they are the same."""
        if len(self.values) != len(other.values) or self.given != other.given:
            return "other arguments of it are bound"
        names = self.names[len(self.given) :]
        for index, (ours, theirs) in enumerate(zip(self.readable, other.readable, strict=True)):
            if not _same_bytes(ours, theirs):
                return f"its bound argument {names[index] if names else index} has other values"
        return ""

    def complete(
        self, arrays: tuple[Any, ...], named: Mapping[str, Any] = MappingProxyType({})
    ) -> tuple[Any, ...]:
        """All arguments, some of them passed by name.

        Raises ``ArgumentError`` for a wrong number of those that are not bound, and where a weight requires
        grad and the results would be tensors in grad mode, without a graph.
        """
        names = self.given
        if named and self.nested is not None and set(named) == set(self.nested):
            arrays = (*arrays, *(named[name] for name in self.nested))
        elif named:
            arrays = in_order(arrays, named, names)
        if self.flatten is not None:
            arrays = tuple(self.flatten(arrays))
        if len(arrays) != len(names):
            expected = f" ({', '.join(names)})" if names else ""
            raise ArgumentError(
                f"the kernel takes {len(names)} arguments{expected}, got {len(arrays)}; the other "
                f"{len(self.values)} of its program are bound"
            )
        if self.check is not None:
            self.check(arrays)
        if self.weights:
            self._reject_training(arrays)
        return (*arrays, *(self._tensors if arrays and is_torch(arrays[0]) else self.readable))

    @cached_property
    def readable(self) -> tuple[Any, ...]:
        """The values as kernels read them."""
        return tuple(map(_readable, self.values))

    @cached_property
    def _tensors(self) -> tuple[Any, ...]:
        """The values as tensors over the same memory where PyTorch has their type: calls with tensors alone
        are the fast ones.
        """
        return tuple(map(_tensor, self.readable))

    def _reject_training(self, arrays: tuple[Any, ...]) -> None:
        torch: Any = sys.modules["torch"]
        if not torch.is_grad_enabled():
            return
        trained = [name for name, weight in self.weights.items() if weight.requires_grad]
        if trained and (not arrays or is_torch(arrays[0])):
            others = f" and {len(trained) - 1} more" if len(trained) > 1 else ""
            raise ArgumentError(
                f"weight {trained[0]}{others} of the program requires grad and grad mode is on, and kernels "
                "have no gradients: call under torch.no_grad(), or freeze the module "
                "(module.requires_grad_(False)); train with the module itself",
                argument=trained[0],
            )


def _readable(value: Any) -> Any:
    if isinstance(value, Late):
        value = value.load()
    array: Any = value
    return array.copy() if isinstance(value, np.ndarray) and not array.flags.aligned else array


def _tensor(value: Any) -> Any:
    torch: Any = sys.modules["torch"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nobody writes to a kernel's argument
        try:
            return torch.from_numpy(value)
        except TypeError:  # not a NumPy array, or of a type that PyTorch does not have
            return value


def _same_bytes(ours: Any, theirs: Any) -> bool:
    """Whether two arrays or tensors are equal, bit by bit."""
    if ours is theirs:
        return True
    if type(ours) is not type(theirs) or ours.dtype != theirs.dtype or ours.shape != theirs.shape:
        return False
    if is_torch(ours):
        torch: Any = sys.modules["torch"]
        if ours.device != theirs.device:
            return False
        ours, theirs = (each.detach().contiguous().reshape(-1) for each in (ours, theirs))
        if ours.data_ptr() == theirs.data_ptr():
            return True
        return bool(torch.equal(ours.view(torch.uint8), theirs.view(torch.uint8)))
    return bool(np.array_equal(_bytes(ours), _bytes(theirs)))


def _bytes(array: Any) -> Any:
    """The memory of an array, as one axis of bytes."""
    flat: Any = np.ascontiguousarray(array).ravel()
    return flat.view(np.uint8)


class BoundKernel(Kernel):
    """A kernel with the weights of its program as arguments, which it supplies on every call.

    Callers pass the other arguments. All else is shared with ``kernel``. See also ``PreparedKernel``, whose
    values are prepared once.
    """

    def __init__(self, kernel: Kernel, arguments: BoundArguments) -> None:
        # Loaded before it is shared, so that it is loaded once. A kernel for another machine cannot be, and
        # says so when it is called.
        if isinstance(kernel.manifest.target, CpuTarget):
            with contextlib.suppress(KcacheError):
                kernel.load()
        self.__dict__.update(kernel.__dict__)
        if not arguments.names:
            names = [super(BoundKernel, self)._name(index) for index in range(len(self.manifest.inputs))]
            arguments = replace(arguments, names=tuple(names))
        self.arguments = arguments
        self._kernel = kernel
        self._bindings = threading.Lock()
        self._prepared: PreparedKernel[Kernel] | None = None
        self._require_bindable()

    def __call__(self, *arrays: Any, **named: Any) -> tuple[Any, ...]:
        complete = self.arguments.complete(arrays, named)
        written = self.arguments.written
        if not written:
            return self._run(complete)
        targets = [w.tensors or (complete[w.position or 0],) for w in written]
        supplied = len(complete) - len(self.arguments.values)
        self._require_writable(complete[:supplied], [target[0] for target in targets])
        results = self._run(complete)
        count = len(results) - len(written)
        for target, result in zip(targets, results[count:], strict=True):
            for array in target:
                write(array, result)
        return results[:count]

    def rebind(self) -> None:
        """Prepare the values that the bound arguments have now, of a kernel that was compiled to have them
        bound; later calls read them. A kernel without such arguments reads weights at each call.
        """
        if self.manifest.preparation is not None:
            self._prepared = self._bound_now()

    def resolve(self, arrays: Sequence[Any]) -> tuple[Kernel, tuple[Any, ...]]:
        """The kernel that a call with ``arrays`` runs, and all arguments that it takes; prepares the weights.

        Raises ``ArgumentError`` for a wrong number of them.
        """
        complete = self.arguments.complete(tuple(arrays))
        if self.manifest.preparation is None:
            return self._kernel, complete
        values = {index: complete[index] for index in self.manifest.options.bound}
        return self._kernel.prepare(values), self._unprepared(complete)

    def _run(self, complete: tuple[Any, ...]) -> tuple[Any, ...]:
        """The results for all arguments; those that are prepared are bound at the first call."""
        if self.manifest.preparation is None:
            return super().__call__(*complete)
        prepared = self._prepared
        if prepared is None:
            with self._bindings:
                prepared = self._prepared = self._prepared or self._bound_now()
        return prepared(*self._unprepared(complete))

    def _unprepared(self, complete: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments that are not prepared."""
        bound = set(self.manifest.options.bound)
        return tuple(array for index, array in enumerate(complete) if index not in bound)

    def _bound_now(self) -> PreparedKernel[Kernel]:
        values, first = self.arguments.readable, len(self.arguments.given)
        return self._kernel.bind({index: values[index - first] for index in self.manifest.options.bound})

    def _require_bindable(self) -> None:
        """Raise ``ArgumentError`` where the caller of the kernel gives or reads a bound argument."""
        first = len(self.arguments.given)
        updated = {written.position for written in self.arguments.written}
        for index in self.manifest.options.bound:
            if index < first or index in updated:
                reason = "is given at each call" if index < first else "is updated by calls"
                raise ArgumentError(f"argument {index} ({self._name(index)}) is bound, and {reason}")

    def _require_writable(self, operands: tuple[Any, ...], targets: Sequence[Any]) -> None:
        """Raise ``ArgumentError`` where an update cannot be written, or would change another argument too."""
        places = [addresses(array) for array in operands]
        bound = [addresses(value) for value in self.arguments.values]
        for argument, target in zip(self.arguments.written, targets, strict=True):
            reason = not_writable(target)
            is_given = argument.position is not None and argument.position < len(operands)
            place = addresses(target)
            others = [*places, *(bound if is_given else ())]
            if is_given:
                del others[argument.position or 0]
            if not reason and any(overlap(place, other) for other in others):
                reason = "it shares memory with another argument: pass a copy"
            if reason:
                raise ArgumentError(
                    f"argument {argument.name} is updated in place by the program, and {reason}",
                    argument=argument.name,
                )

    def _name(self, index: int) -> str:
        names = self.arguments.names
        return names[index] if index < len(names) else super()._name(index)
