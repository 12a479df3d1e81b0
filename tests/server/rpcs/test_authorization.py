"""Who may call which RPC: every method of every service in the protos, enumerated from their descriptors."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor

from kcache_grpc.server.servicers.admin import ADMIN_ROLE
from tests.repository.sources import ROOT
from tests.server.harness import idle_jobs
from tests.server.harness.running import Running, config_in, running

#: Start of the message that ``kcache_grpc/server/rpc_handlers.py`` answers such calls with.
NO_TOKEN = "the call carries no valid token"
#: Methods outside the service Admin that need the same role.
ALSO_ADMINISTRATION = {"Bundles/ImportBundle"}


def methods() -> dict[str, MethodDescriptor]:
    """All methods by ``SERVICE/METHOD``, from the descriptors of all protos."""
    modules = [
        importlib.import_module(f"kcache_grpc._proto.kcache.v1.{path.stem}_pb2")
        for path in sorted((ROOT / "protos" / "kcache" / "v1").glob("*.proto"))
    ]
    return {
        f"{service.name}/{method.name}": method
        for module in modules
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }


METHODS = methods()
ADMINISTRATION = {name for name in METHODS if name.startswith("Admin/")} | ALSO_ADMINISTRATION


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server with two principals: ``root`` may administer it, ``trainer`` may not."""
    folder: Path = tmp_path_factory.mktemp("server")
    lines = [
        f"{name} {role} {hashlib.sha256(name.encode()).hexdigest()}"
        for name, role in (("root", ADMIN_ROLE), ("trainer", "writer"))
    ]
    principals = folder / "principals"
    principals.write_text("\n".join(lines))
    with running(config_in(folder, worker=idle_jobs.settings(), principals=principals)) as server:
        yield server


def status(server: Running, method: MethodDescriptor, token: str | None) -> tuple[str, str]:
    """Code and message of a call with an empty request; code ``OK`` without an error."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    metadata = () if token is None else (("authorization", f"Bearer {token}"),)
    try:
        if method.client_streaming:
            replies: Any = server.channel.stream_stream(path)(iter([b""]), metadata=metadata, timeout=60)
        else:
            replies = server.channel.unary_stream(path)(b"", metadata=metadata, timeout=60)
        list(replies)
    except grpc.RpcError as error:
        failed: Any = error
        return failed.code().name, failed.details()
    return "OK", ""


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("token", [None, "of nobody"])
def test_no_method_answers_a_call_without_a_valid_token(
    server: Running, name: str, token: str | None
) -> None:
    code, message = status(server, METHODS[name], token)
    assert code == "PERMISSION_DENIED"
    assert message.startswith(NO_TOKEN)


@pytest.mark.parametrize("name", METHODS)
def test_only_administration_needs_the_role_admin(server: Running, name: str) -> None:
    code, message = status(server, METHODS[name], "trainer")
    assert code != "UNIMPLEMENTED"
    denied = code == "PERMISSION_DENIED" and f"the role {ADMIN_ROLE!r}" in message
    assert denied is (name in ADMINISTRATION)


@pytest.mark.parametrize("name", sorted(ADMINISTRATION))
def test_the_role_admin_may_administer(server: Running, name: str) -> None:
    code, _ = status(server, METHODS[name], "root")
    assert code not in ("PERMISSION_DENIED", "UNIMPLEMENTED")
