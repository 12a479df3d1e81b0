"""A compiled kernel's interface in the names of its arg spec.

The compiler names the sizes that it reads; a manifest, its guard and its caller use the names of the spec.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from kcache_compiler.types import GpuLaunch, KernelInterface, Symbol, TensorType
from kcache_grpc.errors import CompileFailed
from kcache_grpc.model.manifest import TensorSpec
from kcache_grpc.model.variants import parse_arg_spec

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def interface_of(interface: KernelInterface, arg_spec: str) -> KernelInterface:
    """``interface`` with the symbols of ``arg_spec``: those it reads for the first time under its name.

    Sizes that the kernel reads in addition, of axes that equal others or are products, are called ``d0``,
    ``d1`` and so on by their place. Raises ``CompileFailed`` for an interface that is not of this arg spec.
    """
    inputs = parse_arg_spec(arg_spec)
    _require_fit(interface, inputs)
    names: dict[str, str] = {}
    for position, symbol in enumerate(interface.symbols):
        label = inputs[symbol.arg].dims[symbol.axis]
        known = label.isidentifier() and label not in names.values()
        names[symbol.name] = label if known else f"d{position}"
    if all(name == label for name, label in names.items()):
        return interface

    def renamed(formula: str) -> str:
        return _NAME.sub(lambda match: names.get(match[0], match[0]), formula)

    return replace(
        interface,
        outputs=tuple(
            TensorType(t.dtype, tuple(renamed(dim) if isinstance(dim, str) else dim for dim in t.dims))
            for t in interface.outputs
        ),
        symbols=tuple(Symbol(names[s.name], s.arg, s.axis) for s in interface.symbols),
        workspace=renamed(interface.workspace),
        launches=tuple(
            replace(
                launch,
                extent=renamed(launch.extent),
                grain=renamed(launch.grain),
                flops=renamed(launch.flops),
                bytes=renamed(launch.bytes),
            )
            for launch in interface.launches
        ),
        gpu_launches=tuple(_renamed(launch, renamed) for launch in interface.gpu_launches),
        checks=tuple(map(renamed, interface.checks)),
    )


def _renamed(launch: GpuLaunch, renamed: Callable[[str], str]) -> GpuLaunch:
    x, y, z = map(renamed, launch.grid)
    kinds = (param.partition(":") for param in launch.params)
    return replace(
        launch,
        when=renamed(launch.when),
        grid=(x, y, z),
        shared_bytes=renamed(launch.shared_bytes),
        params=tuple(f"{kind}:{renamed(value)}" for kind, _, value in kinds),
    )


def _require_fit(interface: KernelInterface, inputs: tuple[TensorSpec, ...]) -> None:
    """Dtypes and ranks agree, and every size that is a number in the arg spec is that number or read."""
    actual = [(tensor.dtype, len(tensor.dims)) for tensor in interface.inputs]
    if actual != [(tensor.dtype, len(tensor.dims)) for tensor in inputs]:
        raise _wrong(interface, inputs)
    read: Mapping[tuple[int, int], str] = {(s.arg, s.axis): s.name for s in interface.symbols}
    for arg, (compiled, requested) in enumerate(zip(interface.inputs, inputs, strict=True)):
        for axis, (size, expected) in enumerate(zip(compiled.dims, requested.dims, strict=True)):
            if (arg, axis) not in read and str(size) != expected and not _reads_others(size, read):
                raise _wrong(interface, inputs)


def _reads_others(size: int | str, read: Mapping[tuple[int, int], str]) -> bool:
    return isinstance(size, str) and set(_NAME.findall(size)) <= set(read.values())


def _wrong(interface: KernelInterface, inputs: tuple[TensorSpec, ...]) -> CompileFailed:
    actual, expected = ";".join(map(str, interface.inputs)), ";".join(map(str, inputs))
    return CompileFailed(
        f"the compiler made a kernel for {actual}, not for {expected}: this is a bug in kcache",
        stage="interface",
        diagnostic=f"inputs {actual}",
    )
