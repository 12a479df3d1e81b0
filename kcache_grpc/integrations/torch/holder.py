"""A callable that runs kernels instead of an ATen operator, looked up by the metadata of its arguments."""

from __future__ import annotations

import hashlib
import itertools
import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from kcache_grpc.client.client import Client
from kcache_grpc.client.config import package_version
from kcache_grpc.errors import ArgumentError, CompileFailed, KcacheError, Unavailable, UnsupportedOp
from kcache_grpc.integrations.torch.build import NotSupported, in_clean_thread
from kcache_grpc.integrations.torch.eager_kernel_table import TableDirectory
from kcache_grpc.integrations.torch.lookup import Lookup
from kcache_grpc.integrations.torch.metadata import NotKeyed, call_key, tensors_of
from kcache_grpc.integrations.torch.operators import may_divide_by_zero, overload_of, unsupported_reason
from kcache_grpc.local_files import KcacheWarning

torch: Any = import_module("torch")

#: Version of the table's entries and of how calls become programs.
_FORMAT = 1
_MOST_CALLS = 1 << 16
#: Seconds until a call whose service was away is tried again.
_RETRY = 30.0
#: Reasons that are a failure of kcache, and not a property of the call.
_FAILURES = frozenset(
    ("compile_failed", "export_failed", "unavailable", "unsupported_op", "mismatch", "error")
)

Original = Callable[[], Any]


class _Busy(threading.local):
    """Whether this thread works for a holder: operators run eagerly meanwhile."""

    active = False


BUSY = _Busy()


class _Count:
    """A counter without a lock: each ``next`` is one step of the interpreter."""

    def __init__(self) -> None:
        self._steps = itertools.count()
        self.add = self._steps.__next__

    @property
    def value(self) -> int:
        return int(self._steps.__reduce__()[1][0])


class _Hit:
    """A kernel for calls of one key."""

    def __init__(self, kernel: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        tensors = tensors_of([*args, *kwargs.values()])
        places = tuple(index for index, value in enumerate(args) if isinstance(value, torch.Tensor))
        self.kernel = kernel
        #: Whether all tensors are positional, in this order, and the kernel reads them as they are.
        self.direct = len(places) == len(tensors) == len(args)
        self.places = places if len(places) == len(tensors) else None
        self.plain = all(tensor.is_contiguous() and not tensor.requires_grad for tensor in tensors)
        self.single = len(kernel.manifest.outputs) == 1

    def run(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if self.direct:
            tensors: Sequence[Any] = args
        elif self.places is not None:
            tensors = [args[place] for place in self.places]
        else:
            tensors = tensors_of([*args, *kwargs.values()])
        if not self.plain:
            before, BUSY.active = BUSY.active, True
            try:
                tensors = [tensor.detach().contiguous() for tensor in tensors]
            finally:
                BUSY.active = before
        results = self.kernel(*tensors)
        return results[0] if self.single else results


class _Eager:
    """Calls of one key that run the operator itself, until ``until`` (monotonic seconds)."""

    def __init__(self, reason: str, until: float = float("inf")) -> None:
        self.reason = reason
        self.until = until


class KernelHolder:
    """Calls an ATen operator through kernels of kcache, one for each metadata of arguments.

    A call is looked up by dtype, sizes, strides, device, layout, dispatch keys and requires_grad of each
    tensor, and by type and value of every other argument. The first call with new metadata takes a kernel
    from the operator's table on disk, or exports and compiles the operator, compares the kernel with eager
    mode and appends it to the table. Other calls run the kernel. Results are those that eager mode gives: new
    tensors, same dtypes, shapes and strides, and the same numbers within rounding.

    A call that kernels cannot serve runs the operator, counted by reason in ``stats``: with gradients,
    subclasses, views, random numbers and others (docs/guide/eager-kernels.md). So does a call for which
    kcache fails; the first failure of each reason warns. With ``strict=True`` failures raise ``KcacheError``.

    ``op``: ``torch.ops.aten.add.Tensor`` or ``"aten::add.Tensor"``. ``device``: ``"cpu"``.
    ``client``: the client that compiles; by default one of the environment, made at the first miss.
    ``dynamic``: kernels for all sizes of the dynamic axes of the export, selected by guards. The first
    call at new sizes also runs the operator and compares dtypes, shapes and strides.

    Safe from many threads, usable after ``os.fork``. Raises ``ArgumentError`` for an unknown operator or
    another device.
    """

    def __init__(
        self,
        op: Any,
        *,
        device: Any = "cpu",
        client: Client | None = None,
        dynamic: bool = False,
        strict: bool = False,
    ) -> None:
        self.op = overload_of(op)
        self.device = torch.device(device)
        if self.device.type != "cpu":
            raise ArgumentError(
                f"device is {str(self.device)!r}; eager kernels run on 'cpu' only: make the holder with "
                "device='cpu' and call it with tensors in host memory, or compile for a GPU with "
                "Client.compile(torch.export.export(...), target='sm_90')"
            )
        self.dynamic = dynamic
        self.strict = strict
        self._client = client
        self._unsupported_reason = unsupported_reason(self.op)
        self._calls: dict[Any, _Hit | _Eager] = {}
        self._counts: dict[str, _Count] = {"hits": _Count(), "misses": _Count()}
        self._hit = self._counts["hits"].add
        self._lookup: Lookup | None = None
        self._warned: set[str] = set()
        self._lock = threading.RLock()
        _LIVE.add(self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return self.op(*args, **kwargs)
        if BUSY.active or torch._C._len_torch_dispatch_stack() or torch._C._is_any_autocast_enabled():
            return self._uncached("mode", lambda: self.op(*args, **kwargs))
        try:
            key = (call_key(args, kwargs), torch.is_grad_enabled(), torch.get_default_dtype())
        except NotKeyed as error:
            return self._uncached(error.reason, lambda: self.op(*args, **kwargs))
        known = self._calls.get(key)
        if isinstance(known, _Hit):
            self._hit()
            return known.run(args, kwargs)
        return self._slow(key, known, args, kwargs, lambda: self.op(*args, **kwargs))

    def dispatched(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], original: Original) -> Any:
        """A call that the dispatcher made below autograd; ``original`` runs the kernel of PyTorch."""
        if BUSY.active:
            return original()
        try:
            key = (call_key(args, kwargs), None, torch.get_default_dtype())
        except NotKeyed as error:
            return self._uncached(error.reason, original)
        known = self._calls.get(key)
        if isinstance(known, _Hit):
            self._hit()
            return known.run(args, kwargs)
        return self._slow(key, known, args, kwargs, original)

    def stats(self) -> dict[str, int]:
        """Calls and events since the holder was made.

        ``hits``: calls that a kernel served. ``misses``: keys that were new. ``loaded``: kernels from the
        table. ``built``: kernels that were exported and compiled. ``table_skipped``: entries of other
        versions of PyTorch or kcache, and of another toolchain of the service. ``table_corrupt``: damaged
        lines. ``eager_<reason>``: calls that ran the operator.
        """
        counts = {name: count.value for name, count in self._counts.items()}
        return counts | (self._lookup.stats() if self._lookup is not None else {})

    def __repr__(self) -> str:
        return f"<KernelHolder {self.op._name} {self.device}{' dynamic' if self.dynamic else ''}>"

    def _slow(
        self, key: Any, known: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], original: Original
    ) -> Any:
        if known is None or (isinstance(known, _Eager) and time.monotonic() >= known.until):
            known = self._resolved(key, args, kwargs)
        if isinstance(known, _Hit):
            self._hit()
            return known.run(args, kwargs)
        return self._uncached(known.reason, original)

    def _uncached(self, reason: str, original: Original) -> Any:
        self._count(f"eager_{reason}")
        return original()

    def _count(self, name: str) -> None:
        count = self._counts.get(name)
        if count is None:
            count = self._counts.setdefault(name, _Count())
        count.add()

    def _resolved(self, key: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> _Hit | _Eager:
        """What calls of ``key`` do from now on; one thread at a time finds it out."""
        with self._lock:
            known = self._calls.get(key)
            if isinstance(known, _Hit) or (known is not None and time.monotonic() < known.until):
                return known
            self._count("misses")
            outcome = self._outcome(args, kwargs, grad=bool(key[1]))
            if len(self._calls) >= _MOST_CALLS:
                self._calls.pop(next(iter(self._calls)))
            self._calls[key] = outcome
            return outcome

    def _outcome(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], grad: bool) -> _Hit | _Eager:
        """Return a kernel for the arguments, or the reason for which eager mode computes them."""
        tensors = tensors_of([*args, *kwargs.values()])
        reason = self._unsupported_reason or _unsupported(tensors, grad)
        if not reason and may_divide_by_zero(self.op, tensors):
            reason = "element_checks"
        if reason:
            return _Eager(reason)
        try:
            return _Hit(in_clean_thread(lambda: self._kernel(args, kwargs)), args, kwargs)
        except (NotSupported, NotKeyed) as error:
            if error.reason in _FAILURES:
                self._failed(error.reason, error)
            return _Eager(error.reason)
        except UnsupportedOp as error:
            self._failed("unsupported_op", error)
            return _Eager("unsupported_op")
        except Unavailable as error:
            self._failed("unavailable", error)
            return _Eager("unavailable", time.monotonic() + _RETRY)
        except (CompileFailed, ArgumentError) as error:
            self._failed("compile_failed", error)
            return _Eager("compile_failed")
        except Exception as error:  # noqa: BLE001 - the program goes on with eager mode
            self._failed("error", error)
            return _Eager("error", time.monotonic() + _RETRY)

    def _kernel(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        BUSY.active = True
        if self._lookup is None:
            self._lookup = self._opened()
        return self._lookup.kernel(args, kwargs)

    def _opened(self) -> Lookup:
        if self._client is None:
            self._client = Client()
        toolchain = hashlib.sha256(f"{_FORMAT} {torch.__version__} {package_version()}".encode())
        try:
            directory: TableDirectory | None = TableDirectory(self._client.cache_dir)
        except OSError as error:
            self._warn("table", f"the table of {self.op._name} cannot be kept: {error}")
            directory = None
        return Lookup(self.op, self._client, directory, toolchain.hexdigest()[:16], self.dynamic, self._warn)

    def _failed(self, reason: str, error: Exception) -> None:
        if not self.strict:
            text = f"{self.op._name} runs eagerly ({reason}): {error}"
            self._warn(reason, text)
            return
        if isinstance(error, KcacheError):
            raise error
        raise CompileFailed(f"{self.op._name} has no kernel: {error}") from error

    def _warn(self, reason: str, text: str) -> None:
        if reason not in self._warned:
            self._warned.add(reason)
            warnings.warn(text, KcacheWarning, stacklevel=2)

    def after_fork(self) -> None:
        """A lock that another thread held at the fork is never released in the child."""
        self._lock = threading.RLock()


def _unsupported(tensors: Sequence[Any], grad: bool) -> str:
    """Why tensors stay eager, as the name of a counter; empty where kernels take them."""
    if not tensors:
        return "no_tensor"
    for tensor in tensors:
        if tensor.device.type != "cpu":
            return "device"
        if torch._C._dispatch_keys(tensor).raw_repr() not in _plain_keys():
            return "dispatch_keys"
        if grad and tensor.requires_grad:
            return "requires_grad"
    return ""


def _plain_keys() -> frozenset[int]:
    """Dispatch keys of dense CPU tensors without conjugate or negative bit, wrapper or subclass."""
    if not _PLAIN_KEYS:
        with torch.inference_mode():
            inference = torch._C._dispatch_keys(torch.empty(0)).raw_repr()
        ordinary = torch._C._dispatch_keys(torch.frombuffer(bytearray(8), dtype=torch.uint8)).raw_repr()
        _PLAIN_KEYS.extend((inference, ordinary))
    return frozenset(_PLAIN_KEYS)


_PLAIN_KEYS: list[int] = []
_LIVE: weakref.WeakSet[KernelHolder] = weakref.WeakSet()


def _after_fork() -> None:
    for holder in _LIVE:
        holder.after_fork()


os.register_at_fork(after_in_child=_after_fork)
