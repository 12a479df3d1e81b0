"""Holders in front of operators in PyTorch's dispatcher."""

from __future__ import annotations

import threading
import warnings
from importlib import import_module
from types import TracebackType
from typing import Any

from kcache_grpc.client.client import Client
from kcache_grpc.errors import ArgumentError
from kcache_grpc.integrations.torch.holder import BUSY, KernelHolder
from kcache_grpc.integrations.torch.operators import composite, overload_of, unsupported_reason

torch: Any = import_module("torch")


class _Slot:
    """The place in front of one operator's CPU kernel. The holder that was registered last is called."""

    def __init__(self, op: Any) -> None:
        self.op = op
        self.holders: list[KernelHolder] = []
        self._original: Any = torch.library.get_kernel(op, "CPU")
        self._tensors = [
            str(argument.type) in ("Tensor", "Optional[Tensor]") for argument in op._schema.arguments
        ]
        self._library: Any = torch.library.Library(op.namespace, "IMPL")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # overriding is what is wanted
            self._library.impl(op, self._call, "CPU", with_keyset=True)

    def remove(self) -> None:
        """Restore PyTorch's own kernel."""
        self._library._destroy()

    def _call(self, keyset: Any, *args: Any, **kwargs: Any) -> Any:
        holders = self.holders
        if not holders or BUSY.active:
            return self._run(keyset, args, kwargs)
        return holders[-1].dispatched(args, kwargs, lambda: self._run(keyset, args, kwargs))

    def _run(self, keyset: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        for value, is_tensor in zip(args, self._tensors, strict=False):
            if is_tensor and isinstance(value, (bool, int, float, complex)):
                return self._run_with_number(keyset, args, kwargs)
        return self._original.call_boxed(keyset, *args, **kwargs)

    def _run_with_number(self, keyset: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A Python number in a tensor's place. It takes part in type promotion as a number, which a tensor of
        rank 0 does not: the out variant takes it as it is.
        """
        out = _out_variant(self.op)
        if out is None:
            args = tuple(
                torch.scalar_tensor(value, dtype=_number_dtype(value))
                if is_tensor and isinstance(value, (bool, int, float, complex))
                else value
                for value, is_tensor in zip(args, self._tensors, strict=False)
            )
            return self._original.call_boxed(keyset, *args, **kwargs)
        metas = [value.to("meta") if isinstance(value, torch.Tensor) else value for value in args]
        result = torch.empty(0, dtype=self.op(*metas, **kwargs).dtype)
        return out(*args, **kwargs, out=result)


def _out_variant(op: Any) -> Any | None:
    """The overload that writes the same result to ``out`` with its own CPU kernel."""
    packet = op.overloadpacket
    own = [(argument.name, str(argument.type)) for argument in op._schema.arguments]
    for name in packet.overloads():
        other = getattr(packet, name)
        arguments = [(argument.name, str(argument.type)) for argument in other._schema.arguments]
        if arguments == [*own, ("out", "Tensor")]:
            has_own = torch._C._dispatch_has_kernel_for_dispatch_key(other._name, "CPU")
            return other if has_own else None
    return None


def _number_dtype(value: Any) -> Any:
    return torch.result_type(torch.empty((), dtype=torch.bool), value)


class Registration:
    """Holders in front of one or more overloads, until ``unregister`` or the end of a ``with`` block."""

    def __init__(self, holders: tuple[KernelHolder, ...]) -> None:
        self.holders = holders
        self._active = True

    def unregister(self) -> None:
        """Take the holders away, and restore PyTorch's kernels where no other holder is left. Idempotent."""
        with _LOCK:
            if not self._active:
                return
            self._active = False
            for holder in self.holders:
                slot = _SLOTS[holder.op._name]
                slot.holders = [other for other in slot.holders if other is not holder]
                if not slot.holders:
                    del _SLOTS[holder.op._name]
                    slot.remove()
            _REGISTRATIONS.remove(self)

    def stats(self) -> dict[str, dict[str, int]]:
        """``KernelHolder.stats`` by operator."""
        return {holder.op._name: holder.stats() for holder in self.holders}

    def __enter__(self) -> Registration:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.unregister()


#: What is registered, like PyTorch's dispatcher itself, holds for the whole process.
_LOCK = threading.RLock()
_SLOTS: dict[str, _Slot] = {}
_REGISTRATIONS: list[Registration] = []


def register(
    op: Any,
    *,
    device: Any = "cpu",
    client: Client | None = None,
    dynamic: bool = False,
    strict: bool = False,
) -> Registration:
    """Install a ``KernelHolder`` in front of an ATen operator, below autograd.

    ``op``: an overload, its name, or a packet such as ``torch.ops.aten.add`` for all of its overloads that
    kernels can stand for. The other arguments are those of ``KernelHolder``. Gradients are computed as
    before. A later registration of the same operator takes its calls until it is taken away.

    Raises ``ArgumentError`` for operators that no kernel can stand for (views, updates in place, random
    numbers), and for composite ones, which autograd differentiates through their parts: register these.
    """
    if isinstance(op, torch._ops.OpOverloadPacket):
        overloads = [getattr(op, name) for name in op.overloads()]
        overloads = [each for each in overloads if not _why_not(each)]
        if not overloads:
            raise ArgumentError(f"no overload of {op} can be served by kernels; call it eagerly")
    else:
        overloads = [overload_of(op)]
        reason = _why_not(overloads[0])
        if reason:
            raise ArgumentError(f"{overloads[0]._name} cannot be registered: {reason}")
    settings: dict[str, Any] = {"device": device, "client": client, "dynamic": dynamic, "strict": strict}
    registration = Registration(tuple(KernelHolder(each, **settings) for each in overloads))
    with _LOCK:
        for holder in registration.holders:
            slot = _SLOTS.get(holder.op._name)
            if slot is None:
                slot = _SLOTS[holder.op._name] = _Slot(holder.op)
            slot.holders = [*slot.holders, holder]
        _REGISTRATIONS.append(registration)
    return registration


def unregister(op: Any = None) -> int:
    """Take away all registrations, or those that hold an overload of ``op``; how many these were."""
    names: set[str] | None = None
    if isinstance(op, torch._ops.OpOverloadPacket):
        names = {getattr(op, name)._name for name in op.overloads()}
    elif op is not None:
        names = {overload_of(op)._name}
    with _LOCK:
        chosen = [
            each
            for each in _REGISTRATIONS
            if names is None or any(holder.op._name in names for holder in each.holders)
        ]
        for registration in chosen:
            registration.unregister()
    return len(chosen)


def _why_not(op: Any) -> str:
    reason = unsupported_reason(op)
    if reason:
        return f"kernels give new tensors that depend only on the arguments ({reason})"
    if composite(op):
        return "it is composite, and autograd differentiates its parts; register the operators that it calls"
    return ""
