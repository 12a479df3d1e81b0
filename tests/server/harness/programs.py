"""Small StableHLO programs and requests for them."""

from __future__ import annotations

from typing import Any

from kcache_grpc._proto.kcache.v1 import common_pb2, kernel_cache_pb2
from kcache_grpc.model.program import ProgramFormat, program_digest

ISA = "x86-64-v3"
TARGET = common_pb2.Target(cpu=common_pb2.CpuTarget(isa=ISA))
SO = 1


def add(rows: int, columns: int = 8, names: tuple[str, str] = ("a", "b"), op: str = "add") -> bytes:
    """``a + b`` for f32[rows,columns], or another operation of two: another size is another kernel."""
    a, b = names
    kind = f"tensor<{rows}x{columns}xf32>"
    return (
        f"module {{ func.func @main(%{a}: {kind}, %{b}: {kind}) -> {kind} {{\n"
        f"  %r = stablehlo.{op} %{a}, %{b} : {kind}\n  return %r : {kind}\n}} }}\n"
    ).encode()


def header(namespace: str = "", request_id: str = "") -> common_pb2.RequestHeader:
    return common_pb2.RequestHeader(namespace=namespace, client_version="test/1", request_id=request_id)


def inline(body: bytes) -> common_pb2.GraphSource:
    program = common_pb2.Program(format=common_pb2.PROGRAM_FORMAT_STABLEHLO, body=body)
    return common_pb2.GraphSource(program=program)


def digest(body: bytes) -> bytes:
    return program_digest(ProgramFormat.STABLEHLO, body)


def by_digest(body: bytes) -> common_pb2.GraphSource:
    return common_pb2.GraphSource(program_digest=digest(body))


def compile_request(graph: common_pb2.GraphSource, namespace: str = "", **rest: Any) -> Any:
    rest.setdefault("target", TARGET)
    return kernel_cache_pb2.CompileKernelRequest(header=header(namespace), graph=graph, **rest)


def kernels_request(bodies: list[bytes], namespace: str = "", **rest: Any) -> Any:
    queries = [kernel_cache_pb2.KernelQuery(program_digest=digest(body)) for body in bodies]
    rest.setdefault("target", TARGET)
    return kernel_cache_pb2.GetKernelsRequest(header=header(namespace), queries=queries, **rest)


def result_of(replies: Any) -> Any:
    """The result among the replies of CompileKernel."""
    return next(reply.result for reply in replies if reply.WhichOneof("event") == "result")


def stages_of(replies: Any) -> list[str]:
    """All stages that the replies of CompileKernel tell."""
    told: list[str] = []
    for reply in replies:
        told += [*reply.stage.earlier_stages, *reply.result.earlier_stages]
        told += [reply.stage.stage] if reply.HasField("stage") else []
    return told
