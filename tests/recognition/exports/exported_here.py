"""One function as each framework's client makes a program of it: bytes to send, and their format."""

from __future__ import annotations

from collections.abc import Iterator

Program = tuple[str, bytes]


def from_jax(name: str) -> Iterator[tuple[str, Program]]:
    """``jax.export``, serialized as the client takes it."""
    from tests.compiler.functions import in_jax

    for case, (function, arguments) in in_jax.CASES.items():
        if case.partition(".")[0] == name:
            yield f"{case}.jax", ("stablehlo", in_jax.exported(function, arguments).mlir_module_serialized)


def from_torch(name: str) -> Iterator[tuple[str, Program]]:
    """``torch.export``, as the client writes it."""
    import torch

    from kcache_grpc.programs.torch.export import torch_program
    from tests.compiler.functions import in_torch

    for case, (function, shapes) in in_torch.CASES.items():
        if case.partition(".")[0] == name:
            arguments = tuple(
                torch.randint(0, 10, (-shape[0],)) if shape and shape[0] < 0 else torch.rand(shape)
                for shape in shapes
            )
            exported = torch.export.export(in_torch.Function(function), arguments)
            yield f"{case}.torch", ("torch", torch_program(exported)[0])


def from_onnx(name: str) -> Iterator[tuple[str, Program]]:
    """A model of ONNX operators."""
    from tests.compiler.functions import in_onnx

    for case in in_onnx.CASES:
        if case.partition(".")[0] == name:
            yield f"{case}.onnx", ("onnx", in_onnx.model(case).SerializeToString())


FRAMEWORKS = {"jax": from_jax, "torch": from_torch, "onnx": from_onnx}
