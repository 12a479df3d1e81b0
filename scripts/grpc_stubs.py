"""Types of the generated ``*_pb2_grpc`` modules, which gRPC's own generator leaves out.

A stub made over a ``grpc.aio`` channel is typed as ``<Service>AsyncStub``, a class that exists in the
type stub only. Servicers may be written with plain or with async methods.
"""

from __future__ import annotations

from google.protobuf.descriptor_pb2 import (
    FileDescriptorProto,
    FileDescriptorSet,
    MethodDescriptorProto,
    ServiceDescriptorProto,
)

HEADER = '''"""Generated from {name} by `make proto`; not edited by hand."""

from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import Any, overload

import grpc
import grpc.aio

'''


def stub_text(file: FileDescriptorProto, described: FileDescriptorSet, package: str) -> str:
    """The text of the ``.pyi`` for the services of ``file``; messages come from modules under ``package``."""
    names = _python_names(described)
    used = sorted({module for method in _methods(file) for module in _modules(method, names)})
    lines = [HEADER.format(name=file.name)]
    lines += [_import_line(module, package) for module in used]
    for service in file.service:
        lines.append(_service_text(service, names))
    return "".join(lines)


def _methods(file: FileDescriptorProto) -> list[MethodDescriptorProto]:
    return [method for service in file.service for method in service.method]


def _python_names(described: FileDescriptorSet) -> dict[str, tuple[str, str]]:
    """Full message name, with its leading dot -> (module of its file, name in that module)."""
    names: dict[str, tuple[str, str]] = {}
    for file in described.file:
        module = file.name.removesuffix(".proto").replace("/", ".") + "_pb2"
        for message in file.message_type:
            names[f".{file.package}.{message.name}"] = (module, message.name)
    return names


def _modules(method: MethodDescriptorProto, names: dict[str, tuple[str, str]]) -> tuple[str, str]:
    return names[method.input_type][0], names[method.output_type][0]


def _import_line(module: str, package: str) -> str:
    parent, _, name = module.rpartition(".")
    prefix = f"{package}." if parent.startswith("kcache") else ""
    return f"from {prefix}{parent} import {name}\n"


def _service_text(service: ServiceDescriptorProto, names: dict[str, tuple[str, str]]) -> str:
    sync = "".join(_attribute(method, names, "grpc") for method in service.method)
    asynchronous = "".join(_attribute(method, names, "grpc.aio") for method in service.method)
    handlers = "".join(_handler(method, names) for method in service.method)
    name = service.name
    return f"""
class {name}Stub:
    @overload
    def __new__(cls, channel: grpc.Channel) -> {name}Stub: ...
    @overload
    def __new__(cls, channel: grpc.aio.Channel) -> {name}AsyncStub: ...
{sync}
class {name}AsyncStub:
{asynchronous}
class {name}Servicer:
{handlers}
def add_{name}Servicer_to_server(servicer: {name}Servicer, server: grpc.Server | grpc.aio.Server) -> None: ...
"""


def _attribute(method: MethodDescriptorProto, names: dict[str, tuple[str, str]], api: str) -> str:
    asks, answers = method.client_streaming, method.server_streaming
    kind = ("Stream" if asks else "Unary") + ("Stream" if answers else "Unary")
    request, response = _types(method, names)
    return f"    {method.name}: {api}.{kind}MultiCallable[{request}, {response}]\n"


def _handler(method: MethodDescriptorProto, names: dict[str, tuple[str, str]]) -> str:
    """A method that plain and async implementations may both override."""
    request, response = _types(method, names)
    taken = "request_iterator: Any" if method.client_streaming else f"request: {request}"
    if method.server_streaming:
        returned = f"Iterator[{response}] | AsyncIterator[{response}]"
    else:
        returned = f"{response} | Awaitable[{response}]"
    return f"    def {method.name}(self, {taken}, context: Any) -> {returned}: ...\n"


def _types(method: MethodDescriptorProto, names: dict[str, tuple[str, str]]) -> tuple[str, str]:
    def dotted(full_name: str) -> str:
        module, name = names[full_name]
        return f"{module.rpartition('.')[2]}.{name}"

    return dotted(method.input_type), dotted(method.output_type)
