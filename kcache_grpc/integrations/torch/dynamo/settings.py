"""Settings of the backend, from ``mode=`` and ``options=`` of ``torch.compile``."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from kcache_grpc.client.config import package_version
from kcache_grpc.errors import ArgumentError
from kcache_grpc.integrations.torch.dynamo.lowering.partition import LEAST_OPERATORS
from kcache_grpc.model.options import Options
from kcache_grpc.model.schedule import RECORDED

#: ``mode`` -> schedule choices. CUDA graphs are the caller's: kernels are launched on the current stream.
_SCHEDULES = {
    "default": "",
    "reduce-overhead": "",
    "max-autotune": RECORDED,
    "max-autotune-no-cudagraphs": RECORDED,
}
_FALLBACKS = ("eager", "inductor")
#: Neither, prepared again after each change, or once.
_BOUND = (None, "weights", "frozen")


@dataclass(frozen=True)
class Settings:
    """What ``torch.compile(..., options={...})`` takes.

    ``numerics``, ``opt_level``, ``tuning``, ``schedule`` are those of ``kcache_grpc.Options``; ``target`` is
    a target's name. ``address`` and ``namespace`` choose the service, as for ``kcache_grpc.Client``;
    ``timeout`` is the number of seconds after which a request to it fails, retries included (600).
    ``fallback``: what runs a graph that has no kernel, "eager" or "inductor". ``strict``: raise instead.
    ``warm_start``: use and write records of source graphs. ``rederive``: the share of warm starts, 0 to 1,
    chosen at random, that trace the graph all the same and compare the result with the record.
    ``least_operators``: a kernel with fewer operators that compute is left to PyTorch, as it has nothing to
    fuse, unless it has a recurrent layer; 0 for all that can be kernels, for tests.
    ``bound``: "weights" to bind parameters and buffers in inference graphs, and to prepare them again when
    they change; "frozen" to prepare them once, whatever becomes of them later; ``None`` to read them at each
    call.
    """

    numerics: str = "default"
    opt_level: int = 3
    tuning: str = "generic"
    schedule: str = ""
    target: str = "host"
    address: str | None = None
    namespace: str | None = None
    timeout: float | None = None
    fallback: str = "eager"
    strict: bool = False
    warm_start: bool = True
    rederive: float = 0.01
    least_operators: int = LEAST_OPERATORS
    bound: str | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.rederive <= 1:
            raise ArgumentError(f"rederive is {self.rederive!r}; use a share from 0 to 1")
        if self.fallback not in _FALLBACKS:
            raise ArgumentError(f"fallback is {self.fallback!r}; use one of {', '.join(_FALLBACKS)}")
        if self.bound not in _BOUND:
            raise ArgumentError(f"bound is {self.bound!r}; use 'weights', 'frozen' or None")

    @property
    def options(self) -> Options:
        """Those of the compile, without the bound inputs of each program."""
        return Options(self.numerics, self.opt_level, self.tuning, self.schedule)

    @property
    def ingredients(self) -> dict[str, str]:
        """What changes the record of a source graph."""
        return {
            "options": str(self.options),
            "target": self.target,
            "least_operators": str(self.least_operators),
            "bound": str(self.bound is not None),
            "lowering": _lowering_digest(),
        }


@functools.cache
def _lowering_digest() -> str:
    """A digest of the code that lowers graphs: a record of other code may differ."""
    here = Path(__file__).parent
    packages = (here, here.parent / "exported", here.parents[2] / "programs" / "torch")
    files = sorted(path for package in packages for path in package.rglob("*.py"))
    content = hashlib.sha256(package_version().encode())
    for path in files:
        content.update(hashlib.sha256(path.read_bytes()).digest())
    return content.hexdigest()


def settings_from(mode: str | None, options: Mapping[str, Any] | None) -> Settings:
    """Raises ``ArgumentError`` for a mode or an option that the backend does not have."""
    if mode is not None and mode not in _SCHEDULES:
        raise ArgumentError(f"mode is {mode!r}; backend 'kcache' has {', '.join(_SCHEDULES)}")
    known = [field.name for field in fields(Settings)]
    unknown = [name for name in options or {} if name not in known]
    if unknown:
        raise ArgumentError(f"backend 'kcache' has no option {unknown[0]!r}; it has {', '.join(known)}")
    settings = Settings(**dict(options or {}))
    if mode is not None and not settings.schedule:
        settings = replace(settings, schedule=_SCHEDULES[mode])
    return settings
