"""Kernels of one operator: from its table on disk, else exported, compiled and added to the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from kcache_grpc.client.client import Client
from kcache_grpc.integrations.torch.build import (
    AcceptedSizes,
    NotSupported,
    exported_call,
    require_equal,
    require_replaceable,
)
from kcache_grpc.integrations.torch.eager_kernel_table import EagerKernelTable, TableDirectory
from kcache_grpc.integrations.torch.metadata import describe, digest, parameters, tensors_of

torch: Any = import_module("torch")

Warn = Callable[[str, str], None]


class Lookup:
    """See the module. Not thread-safe: its holder calls it under a lock, without gradients or modes."""

    def __init__(
        self,
        op: Any,
        client: Client,
        directory: TableDirectory | None,
        toolchain: str,
        dynamic: bool,
        warn: Warn,
    ) -> None:
        """``warn(reason, text)`` is called once for each reason. Without a directory nothing is stored."""
        self._op = op
        self._client = client
        self._directory = directory
        self._dynamic = dynamic
        self._warn = warn
        self._table: EagerKernelTable | None = (
            None if directory is None else directory.table(op._name, "cpu", toolchain)
        )
        self._kernels: dict[str, Any] = {}
        self._accepted: dict[str, list[tuple[AcceptedSizes, Any]]] = {}
        self._loaded = self._built = 0
        #: Entries whose kernel was compiled by another toolchain than the service has now.
        self._skipped: set[tuple[str, str]] = set()
        self._refresh()

    def stats(self) -> dict[str, int]:
        """Counters: see ``KernelHolder.stats``."""
        counts = {"loaded": self._loaded, "built": self._built}
        if self._table is not None:
            skipped = self._table.skipped + len(self._skipped)
            counts |= {"table_skipped": skipped, "table_corrupt": self._table.corrupt}
        return counts

    def kernel(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """A kernel for a call, which remembers no other call.

        Raises ``NotSupported`` or ``NotKeyed`` for a call that stays eager, ``KcacheError``.
        """
        params = parameters(self._op._schema, args, kwargs)
        tensors = tensors_of([*args, *kwargs.values()])
        dynamic = self._dynamic and all(tensor.is_contiguous() for tensor in tensors)
        dynamic = dynamic and any(size > 1 for tensor in tensors for size in tensor.shape)
        description = describe(params, dynamic=dynamic)
        context = {"default_dtype": str(torch.get_default_dtype()), "dynamic": dynamic}
        key = digest(description, context)
        kernel = self._kernel_for_sizes(key, tensors) if dynamic else None
        if kernel is None:
            kernel = self._of_table(key, tensors, dynamic)
        if kernel is None:
            return self._build(key, {"metadata": description, **context}, args, kwargs, tensors, dynamic)
        if dynamic:
            self._compare(kernel, args, kwargs, tensors, values=False)
        return kernel.apart()

    def _kernel_for_sizes(self, key: str, tensors: Sequence[Any]) -> Any | None:
        pairs = self._accepted.get(key, ())
        return next((kernel for accepted, kernel in pairs if accepted.include(tensors)), None)

    def _of_table(self, key: str, tensors: Sequence[Any], dynamic: bool) -> Any | None:
        """Return the kernel of a table entry that accepts the sizes of the tensors, if there is one.

        Entries of another toolchain are skipped.
        """
        self._refresh()
        for entry in () if self._table is None else self._table.find(key):
            try:
                accepted = AcceptedSizes.from_json(entry["guard"]) if dynamic else None
                program = str(entry["program"])
            except (KeyError, TypeError, ValueError):
                self._warn("entry", f"the table of {self._op._name} has an entry that cannot be read")
                continue
            if accepted is not None and not accepted.include(tensors):
                continue
            kernel = self._of_program(program)
            if kernel is None:
                continue
            toolchain = str(entry.get("toolchain"))
            if toolchain != kernel.manifest.toolchain_digest.hex():
                # This kernel was never compared with eager mode: ``_build`` does, and adds an entry for it.
                self._skipped.add((key, toolchain))
                continue
            if program not in self._kernels:
                self._kernels[program] = kernel
                self._loaded += 1
            if accepted is not None:
                self._accepted.setdefault(key, []).append((accepted, kernel))
            return kernel
        return None

    def _of_program(self, program: str) -> Any | None:
        if program in self._kernels:
            return self._kernels[program]
        text = None if self._directory is None else self._directory.program(program)
        return None if text is None else self._client.compile(text, format="torch")

    def _build(
        self,
        key: str,
        entry: dict[str, Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        tensors: Sequence[Any],
        dynamic: bool,
    ) -> Any:
        eager = require_replaceable(_eager(self._op, args, kwargs), tensors)
        text, accepted = exported_call(self._op, args, kwargs, tensors, dynamic)
        if accepted is not None and not accepted.include(tensors):
            raise NotSupported("guard")
        kernel = self._client.compile(text, format="torch")
        self._built += 1
        require_equal(_results(kernel, tensors), eager, values=True)
        if accepted is not None:
            entry["guard"] = accepted.to_json()
            self._accepted.setdefault(key, []).append((accepted, kernel))
        self._save(key, entry, text, kernel)
        return kernel.apart()

    def _save(self, key: str, entry: dict[str, Any], text: bytes, kernel: Any) -> None:
        if self._directory is None or self._table is None:
            return
        manifest = kernel.manifest
        entry |= {"operator": self._op._name, "kernel": manifest.kernel_digest.hex()}
        entry |= {"torch": torch.__version__, "toolchain": manifest.toolchain_digest.hex()}
        try:
            entry["program"] = self._directory.save_program(text)
            self._table.add(key, entry)
        except OSError as error:
            self._warn("table", f"the table of {self._op._name} cannot be written: {error}")

    def _refresh(self) -> None:
        if self._table is None:
            return
        try:
            self._table.refresh()
        except OSError as error:
            self._warn("table", f"the table of {self._op._name} cannot be read: {error}")

    def _compare(
        self,
        kernel: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        tensors: Sequence[Any],
        *,
        values: bool,
    ) -> None:
        eager = require_replaceable(self._op(*args, **kwargs), tensors)
        require_equal(_results(kernel, tensors), eager, values=values)


def _results(kernel: Any, tensors: Sequence[Any]) -> tuple[Any, ...]:
    """The results of a kernel that is called once with contiguous tensors."""
    return tuple(kernel(*(tensor.detach().contiguous() for tensor in tensors)))


def _eager(op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The results of eager mode. Raises ``NotSupported`` where the operator rejects the call."""
    try:
        return op(*args, **kwargs)
    except Exception as error:
        raise NotSupported("operator_error", str(error)) from error
