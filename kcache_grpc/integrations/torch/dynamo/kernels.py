"""Kernels of islands: compiled through a client, called with tensors."""

from __future__ import annotations

import threading
import warnings
from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from kcache_grpc.client.client import Client
from kcache_grpc.errors import KcacheError
from kcache_grpc.integrations.torch.dynamo.decisions import log
from kcache_grpc.integrations.torch.dynamo.plan import Program
from kcache_grpc.integrations.torch.dynamo.settings import Settings
from kcache_grpc.local_files import KcacheWarning
from kcache_grpc.runtime.torch_call import TorchCall

torch: Any = import_module("torch")


class Failures:
    """Counts failures by reason, and warns of each reason once in a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()

    def add(self, reason: str, error: Exception, consequence: str) -> None:
        """Count one; ``consequence`` says what runs instead."""
        with self._lock:
            self.counts[reason] += 1
            first = self.counts[reason] == 1
        utils: Any = import_module("torch._dynamo.utils")
        utils.counters["kcache"][reason] += 1
        log.info("%s: %s: %s", consequence, reason, error)
        if first:
            warnings.warn(f"kcache: {consequence} ({reason}): {error}", KcacheWarning, stacklevel=2)


FAILURES = Failures()


class IslandKernel:
    """A kernel that takes a list of row-major tensors. Where a call fails, the island's operators run."""

    def __init__(self, call: TorchCall, strict: bool) -> None:
        self._call = call
        self._strict = strict
        self.__call__ = call.__call__

    def __call__(self, tensors: list[Any]) -> tuple[Any, ...]:
        return self._call(tensors)

    def failed(self, error: Exception) -> None:
        """Raise what is no failure of kcache, or all with ``strict``; else count it."""
        if self._strict or not isinstance(error, KcacheError):
            raise error
        FAILURES.add(f"call: {type(error).__name__}", error, "operators of PyTorch ran in place of a kernel")


class KernelSource:
    """Compiles programs for one set of settings."""

    def __init__(self, settings: Settings, client: Client | None = None) -> None:
        """``client``: in place of that of the settings."""
        self._settings = settings
        self._client = client

    @property
    def client(self) -> Client:
        """The client of the settings, shared by all graphs of this process, if no other one was passed."""
        return self._client or client_of(self._settings)

    def compile(self, programs: Sequence[Program]) -> list[IslandKernel]:
        """A kernel for each program. Raises ``KcacheError``."""
        settings = self._settings
        kernels = [
            self.client.compile(
                program.text,
                "torch",
                settings.target,
                dynamic=program.dynamic,
                options=settings.options,
            )
            for program in programs
        ]
        return [IslandKernel(TorchCall(kernel), settings.strict) for kernel in kernels]

    def rejected(self, program: Program) -> list[str]:
        """Operators of a program that the service rejects, such as ``aten.nonzero.default``."""
        settings = self._settings
        support = self.client.support(program.text, "torch", settings.target, settings.numerics)
        return [each.op.removeprefix("torch.") for each in support.refusals]


_CLIENTS: dict[tuple[str | None, str | None], Client] = {}
_LOCK = threading.Lock()


def client_of(settings: Settings) -> Client:
    """The process's client for an address and a namespace."""
    place = (settings.address, settings.namespace)
    with _LOCK:
        client = _CLIENTS.get(place)
        if client is None:
            client = _CLIENTS[place] = Client(settings.address, namespace=settings.namespace)
        return client
