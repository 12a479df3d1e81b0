"""kcache in PyTorch programs: a backend of ``torch.compile``, exported programs, kernels for calls in eager
mode, timeouts of process groups.

    model = torch.compile(model, backend="kcache")

    from kcache_grpc.torch import load, package

    module = load(torch.export.export(model, (x,)))
    package(model, "model.kcpkg", (x,))

    from kcache_grpc.torch import KernelHolder, register

    softmax = KernelHolder("aten::_softmax")
    y = softmax(x, -1, False)

    with register("aten::_softmax"):
        y = torch.softmax(x, -1)

Needs ``pip install 'kcache-grpc[torch]'``. PyTorch is imported when a name of this module is first used.
docs/guide/torch-compile.md describes the backend, docs/guide/eager-kernels.md the kernels of single calls.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kcache_grpc.integrations.torch.distributed import extend_process_group_timeout
    from kcache_grpc.integrations.torch.dynamo.backend import kcache as backend
    from kcache_grpc.integrations.torch.dynamo.kernels import failures
    from kcache_grpc.integrations.torch.dynamo.lowering.decisions import Decision, decisions
    from kcache_grpc.integrations.torch.exported.load import load
    from kcache_grpc.integrations.torch.exported.package import Packaged, package
    from kcache_grpc.integrations.torch.holder import KernelHolder
    from kcache_grpc.integrations.torch.registration import Registration, register, unregister

__all__ = [
    "Decision",
    "KernelHolder",
    "Packaged",
    "Registration",
    "backend",
    "decisions",
    "extend_process_group_timeout",
    "failures",
    "load",
    "package",
    "register",
    "unregister",
]

_PACKAGE = "kcache_grpc.integrations.torch"
#: Name -> module, and its name there.
_HOMES = {
    "Decision": (f"{_PACKAGE}.dynamo.lowering.decisions", "Decision"),
    "KernelHolder": (f"{_PACKAGE}.holder", "KernelHolder"),
    "Packaged": (f"{_PACKAGE}.exported.package", "Packaged"),
    "Registration": (f"{_PACKAGE}.registration", "Registration"),
    "backend": (f"{_PACKAGE}.dynamo.backend", "kcache"),
    "decisions": (f"{_PACKAGE}.dynamo.lowering.decisions", "decisions"),
    "extend_process_group_timeout": (f"{_PACKAGE}.distributed", "extend_process_group_timeout"),
    "failures": (f"{_PACKAGE}.dynamo.kernels", "failures"),
    "load": (f"{_PACKAGE}.exported.load", "load"),
    "package": (f"{_PACKAGE}.exported.package", "package"),
    "register": (f"{_PACKAGE}.registration", "register"),
    "unregister": (f"{_PACKAGE}.registration", "unregister"),
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
    module, attribute = _HOMES[name]
    value = getattr(import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
