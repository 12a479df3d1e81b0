"""kcache in PyTorch programs: kernels for calls in eager mode, and timeouts of process groups.

    from kcache_grpc.torch import KernelHolder, register

    softmax = KernelHolder("aten::_softmax")
    y = softmax(x, -1, False)

    with register("aten::_softmax"):
        y = torch.softmax(x, -1)

Needs ``pip install 'kcache-grpc[torch]'``. PyTorch is imported when a name of this module is first used.
docs/guide/eager-kernels.md describes the behaviour.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kcache_grpc.integrations.torch.distributed import extend_process_group_timeout
    from kcache_grpc.integrations.torch.holder import KernelHolder
    from kcache_grpc.integrations.torch.registration import Registration, register, unregister

__all__ = ["KernelHolder", "Registration", "extend_process_group_timeout", "register", "unregister"]

_PACKAGE = "kcache_grpc.integrations.torch"
_HOMES = {
    "KernelHolder": f"{_PACKAGE}.holder",
    "Registration": f"{_PACKAGE}.registration",
    "extend_process_group_timeout": f"{_PACKAGE}.distributed",
    "register": f"{_PACKAGE}.registration",
    "unregister": f"{_PACKAGE}.registration",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        import_module("torch")
    except ImportError as error:
        raise ImportError(
            f"kcache_grpc.torch.{name} needs PyTorch, which cannot be imported ({error}): "
            "pip install 'kcache-grpc[torch]'",
            name="torch",
        ) from error
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
