"""Kernels of islands: compiled through a client, called with tensors."""

from __future__ import annotations

import os
import re
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

from kcache_grpc.client import decision_log
from kcache_grpc.client.client import Client
from kcache_grpc.client.requests.support import Refusal
from kcache_grpc.integrations.torch.dynamo.lowering.decisions import Decision, log, record
from kcache_grpc.integrations.torch.dynamo.lowering.plan import Program
from kcache_grpc.integrations.torch.dynamo.lowering.rejections import Rejection
from kcache_grpc.integrations.torch.dynamo.settings import Settings
from kcache_grpc.local_files import KcacheWarning
from kcache_grpc.runtime.cpu.library import bf16_target
from kcache_grpc.runtime.kernel import Kernel
from kcache_grpc.runtime.torch.bound_call import BoundTorchCall
from kcache_grpc.runtime.torch.call import TorchCall

torch: Any = import_module("torch")
forward_ad: Any = import_module("torch.autograd.forward_ad")

#: A location in the text of a program, whose parser calls its buffer ``-``.
_LOCATION = re.compile(r"-:(\d+):\d+")
#: A product of bf16 in the text of a program.
_BF16_PRODUCT = re.compile(rb'"torch\.aten\.(?:mm|bmm|addmm|baddbmm|linear|matmul|convolution)"[^\n]*bf16')


class Failures:
    """Counts failures by reason, and warns of each reason once in a process.

    A warning that a filter turns into an error is logged instead: filters are for the program's own warnings,
    and ``options={"strict": True}`` is the way to fail.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    @property
    def counts(self) -> dict[str, int]:
        """Reason -> failures in this process."""
        with self._lock:
            return dict(self._counts)

    def add(self, reason: str, error: Exception, consequence: str) -> None:
        """Count a failure; ``consequence`` says what runs instead. Raises nothing."""
        with self._lock:
            self._counts[reason] += 1
            first = self._counts[reason] == 1
        utils: Any = import_module("torch._dynamo.utils")
        utils.counters["kcache"][reason] += 1
        log.info("%s: %s: %s", consequence, reason, error)
        if first:
            _warn(f"kcache: {consequence} ({reason}): {error}")

    def forget(self) -> None:
        """Forget the counts, and which reasons were warned of."""
        with self._lock:
            self._counts.clear()

    def after_fork(self) -> None:
        """In a child: another thread of the parent may have held the lock."""
        self._lock = threading.Lock()


def _warn(text: str) -> None:
    try:
        warnings.warn(text, KcacheWarning, stacklevel=4)
    except KcacheWarning:
        log.warning("%s", text)


FAILURES = Failures()
os.register_at_fork(after_in_child=FAILURES.after_fork)


def failures() -> dict[str, int]:
    """How often the backend left work to PyTorch because of a failure in this process, by reason.

    Reasons name the stage and the error: ``"compile: Unavailable"``, ``"call: ArgumentError"``,
    ``"record: InvalidRecord"``. ``torch._dynamo.utils.counters["kcache"]`` has the same counts, until Dynamo
    clears them.
    """
    return FAILURES.counts


#: The number of active modes of ``__torch_dispatch__``, such as ``FakeTensorMode`` and ``FlopCounterMode``.
_count_modes = torch._C._len_torch_dispatch_stack


def _sees_operators() -> bool:
    """Whether an active mode has to see the operators of compiled code.

    Modes of tracing, such as ``FakeTensorMode``, and those that do not ignore compiled code have to.
    AOTAutograd's own mode, which is active in the first call of a graph, has not.
    """
    modes: Any = import_module("torch.utils._python_dispatch")
    return any(
        mode.is_infra_mode() or not mode.ignore_compile_internals()
        for mode in modes._get_current_dispatch_mode_stack()
    )


class ModeActive(Exception):
    """A mode of dispatch or of differentiation is active: the operators run, which is no failure."""


class IslandKernel:
    """A kernel that takes a list of row-major tensors. Where a call fails, the island's operators run.

    One with bound inputs takes what ``BoundTorchCall`` does.
    """

    def __init__(self, call: TorchCall | BoundTorchCall, strict: bool) -> None:
        self._call = call
        self._run: Callable[..., tuple[Any, ...]] = call
        self._strict = strict

    @classmethod
    def of(cls, program: Program, kernel: Kernel, strict: bool, frozen: bool = False) -> IslandKernel:
        """The kernel of a program. ``frozen``: that of ``BoundTorchCall``, for its bound inputs."""
        call = BoundTorchCall(kernel, frozen=frozen) if program.bound else TorchCall(kernel)
        return cls(call, strict)

    def __call__(self, *arguments: Any) -> tuple[Any, ...]:
        """The outputs.

        Raises ``ModeActive`` where a mode of dispatch has to see the operators, or tensors may have tangents.
        """
        if forward_ad._current_level >= 0 or (_count_modes() and _sees_operators()):
            raise ModeActive
        return self._run(*arguments)

    def load(self) -> None:
        """Raises what ``Kernel.load`` raises."""
        self._call.kernel.load()

    def use_own_threads(self) -> None:
        """Run launches on the kernel's own pool, not on the threads of PyTorch's operators."""
        self._call.use_own_threads()

    @property
    def toolchain(self) -> str:
        """The digest of the toolchain that compiled the kernel, in hex."""
        return self._call.kernel.manifest.toolchain_digest.hex()

    def failed(self, error: Exception) -> None:
        """Count a failed call; raise its error with ``strict``.

        The operators run after every error: one that is not kcache's, such as that of a full memory, they
        raise again.
        """
        if isinstance(error, ModeActive):
            return
        if self._strict:
            raise error
        FAILURES.add(f"call: {type(error).__name__}", error, "operators of PyTorch ran in place of a kernel")


class KernelSource:
    """Compiles programs for one set of settings."""

    def __init__(
        self,
        settings: Settings,
        client: Client | None = None,
        on_progress: Callable[[str, float], None] | None = None,
    ) -> None:
        """``client``: in place of that of the settings. ``on_progress``: as that of ``Client.compile``."""
        self._settings = settings
        self._client = client
        self._on_progress = on_progress

    @property
    def client(self) -> Client:
        """The client of the settings, shared by all graphs of this process, if no other one was passed."""
        return self._client or _CLIENTS.of(self._settings)

    def decided(self, decision: Decision) -> None:
        """Record a decision in this process, and in the log of the client's cache directory."""
        record(decision)
        decision_log.append(self.client.cache_dir, decision.to_json())

    def compile(self, programs: Sequence[Program]) -> list[IslandKernel]:
        """A kernel for each program. Raises ``KcacheError``."""
        settings = self._settings
        kernels = [
            self.client.compile(
                program.text,
                "torch",
                self._target(program),
                dynamic=program.dynamic,
                options=replace(settings.options, bound=program.bound),
                on_progress=self._on_progress,
            )
            for program in programs
        ]
        return [
            IslandKernel.of(program, kernel, settings.strict, settings.bound == "frozen")
            for program, kernel in zip(programs, kernels, strict=True)
        ]

    def load(self, programs: Sequence[Program]) -> list[IslandKernel]:
        """The kernels of ``compile``; those of tensors on the CPU are loaded before they are called.

        Raises ``ArgumentError`` where this machine cannot run one, else as ``compile``.
        """
        kernels = self.compile(programs)
        for program, kernel in zip(programs, kernels, strict=True):
            if program.device == "cpu":
                kernel.load()
        return kernels

    def _target(self, program: Program) -> str:
        """That of the settings; for "host" a GPU's own, where the program's tensors are on one, or the CPU
        with this machine's instructions for products of bf16, where the program has some.
        """
        if self._settings.target != "host":
            return self._settings.target
        if program.device == "cpu":
            return bf16_target() if _BF16_PRODUCT.search(program.text) else "host"
        major, minor = torch.cuda.get_device_capability()
        return f"sm_{major}{minor}"

    def rejected(self, program: Program) -> list[Rejection]:
        """What of a program the service rejects. Raises ``KcacheError``."""
        settings = self._settings
        support = self.client.support(
            program.text, "torch", self._target(program), numerics=settings.numerics
        )
        return [
            Rejection(each.op.removeprefix("torch."), each.reason, _lines(each)) for each in support.refusals
        ]


def _lines(refusal: Refusal) -> tuple[int, ...]:
    """The lines of a program's text where an operation is rejected; none where only some are known."""
    locations = [match for each in refusal.locations if (match := _LOCATION.fullmatch(each)) is not None]
    return tuple(int(match[1]) for match in locations) if len(locations) == refusal.count else ()


class _Clients:
    """The clients of this process, by their settings."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._clients: dict[tuple[str | None, str | None, float | None], Client] = {}

    def of(self, settings: Settings) -> Client:
        """The client for an address, a namespace and a timeout. Raises ``KcacheError``."""
        key = (settings.address, settings.namespace, settings.timeout)
        with self._lock:
            client = self._clients.get(key)
            if client is None:
                client = Client(settings.address, namespace=settings.namespace, timeout=settings.timeout)
                self._clients[key] = client
            return client

    def after_fork(self) -> None:
        """In a child: another thread of the parent may have held the lock."""
        self._lock = threading.Lock()


_CLIENTS = _Clients()
os.register_at_fork(after_in_child=_CLIENTS.after_fork)
