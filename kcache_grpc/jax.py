"""kcache in JAX programs: ``jit``, which runs kernels of kcache.

    from kcache_grpc.jax import jit

    @jit
    def step(parameters, x):
        ...

Needs ``pip install 'kcache-grpc[jax]'``. JAX is imported when a name of this module is first used.
docs/guide/jax.md describes it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kcache_grpc.integrations.jax.jit import Jitted, jit

__all__ = ["Jitted", "jit"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        import_module("jax")
    except ImportError as error:
        raise ImportError(
            f"kcache_grpc.jax.{name} needs JAX, which cannot be imported ({error}): "
            "pip install 'kcache-grpc[jax]'",
            name="jax",
        ) from error
    value = getattr(import_module("kcache_grpc.integrations.jax.jit"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
