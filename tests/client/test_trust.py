"""Nothing is trusted that is not signed by the pinned key and is not what was asked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kcache_grpc as kcache
from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as pb
from kcache_grpc.model.manifest import Binding, Manifest
from kcache_grpc.model.signing import Signed, Signer, server_id
from kcache_grpc.model.target import CpuTarget
from tests.client.conftest import PROGRAM, NewClient
from tests.client.fake import FakeServer, FakeService


def pin_of(cache_dir: Path) -> Path:
    [path] = (cache_dir / "pins").iterdir()
    return path


def test_the_key_is_pinned_at_first_contact(
    fake: FakeServer, client: kcache.Client, service: FakeService, cache_dir: Path
) -> None:
    client.compile(PROGRAM)
    pin = pin_of(cache_dir)
    assert pin.stat().st_mode & 0o777 == 0o600
    record = json.loads(pin.read_text())
    assert record["address"] == fake.address
    assert record["server_id"] == server_id(service.signer.public_key)


def test_another_key_later_is_rejected_with_advice(
    fake: FakeServer, service: FakeService, new_client: NewClient, cache_dir: Path
) -> None:
    new_client(fake.address).compile(PROGRAM)
    service.signer = Signer.generate()
    (cache_dir / "servers").rename(cache_dir / "servers-elsewhere")
    with pytest.raises(
        kcache.IntegrityError, match=r"was pinned there in .*kcache pins forget .*KCACHE_SERVER_ID"
    ):
        new_client(fake.address).compile(PROGRAM + "\n")
    pin_of(cache_dir).unlink()
    new_client(fake.address).compile(PROGRAM + "\n\n")


@pytest.mark.issue(number=19, point=22)
def test_a_server_replaced_under_a_client_names_the_pin(
    fake: FakeServer, service: FakeService, new_client: NewClient, cache_dir: Path
) -> None:
    """The client holds what the first server said of itself, and does not ask again before it looks up."""
    client = new_client(fake.address)
    client.compile(PROGRAM)
    service.signer = Signer.generate()
    for change in (client.compile, new_client(fake.address).compile, client.store):
        with pytest.raises(kcache.IntegrityError, match="kcache pins forget") as caught:
            change(PROGRAM + "\n")
        assert str(pin_of(cache_dir)) in str(caught.value)
        assert str(cache_dir) in caught.value.message.partition("pins forget")[2]


@pytest.mark.issue(number=19, point=22)
def test_replicas_of_other_keys_name_the_pin(
    fake: FakeServer, service: FakeService, new_client: NewClient, cache_dir: Path
) -> None:
    """One answers who it is, the other one signs."""
    client = new_client(fake.address)
    client.compile(PROGRAM)
    other = Signer.generate()
    service.change_signed = lambda signed: other.sign(b"", signed.payload)
    with pytest.raises(kcache.IntegrityError, match=r"of another key .*kcache pins forget") as caught:
        client.compile(PROGRAM + "\n")
    assert str(pin_of(cache_dir)) in str(caught.value)


def test_a_server_id_overrides_the_pin(
    fake: FakeServer, service: FakeService, new_client: NewClient, cache_dir: Path
) -> None:
    mine = server_id(service.signer.public_key)
    new_client(fake.address, server_id=mine).compile(PROGRAM)
    assert not (cache_dir / "pins").exists()
    with pytest.raises(kcache.IntegrityError, match="not " + "a" * 64):
        new_client(fake.address, server_id="a" * 64).compile(PROGRAM + "\n")


def test_a_damaged_pin_is_told(
    fake: FakeServer, client: kcache.Client, new_client: NewClient, cache_dir: Path
) -> None:
    client.compile(PROGRAM)
    pin_of(cache_dir).write_text("{}")
    with pytest.raises(kcache.IntegrityError, match=r"is damaged.*kcache pins forget"):
        new_client(fake.address).compile(PROGRAM)


def test_an_identity_that_is_not_the_keys_digest_is_rejected(
    client: kcache.Client, service: FakeService
) -> None:
    def bend(reply: Any) -> Any:
        reply.server_id = "b" * 64
        return reply

    service.bend["GetCapabilities"] = bend
    with pytest.raises(kcache.IntegrityError, match="identity is not the digest"):
        client.compile(PROGRAM)


def flip(data: bytes, index: int = -1) -> bytes:
    changed = bytearray(data)
    changed[index] ^= 1
    return bytes(changed)


SIGNED: dict[str, Callable[[Signed], Signed]] = {
    "payload": lambda signed: replace(signed, payload=flip(signed.payload)),
    "signature": lambda signed: replace(signed, signature=flip(signed.signature)),
    "no signature": lambda signed: replace(signed, signature=b""),
    "another signer": lambda signed: Signer.generate().sign(b"kcache.binding.v1\0", signed.payload),
}


@pytest.mark.parametrize("change", SIGNED.values(), ids=SIGNED.keys())
def test_a_bad_signature_is_rejected(
    client: kcache.Client, service: FakeService, change: Callable[[Signed], Signed]
) -> None:
    service.change_signed = change
    with pytest.raises(kcache.IntegrityError, match="signature"):
        client.compile(PROGRAM)


BINDINGS: dict[str, Callable[[Binding], Binding]] = {
    "program digest": lambda value: replace(value, program_digest=bytes(32)),
    "numerics": lambda value: replace(value, numerics="fast"),
    "namespace": lambda value: replace(value, namespace="other"),
    "epoch": lambda value: replace(value, epoch=7),
    "inputs": lambda value: replace(value, inputs=()),
}
MANIFESTS: dict[str, Callable[[Manifest], Manifest]] = {
    "spec digest": lambda value: replace(value, spec_digest=bytes(32)),
    "key": lambda value: replace(value, key=77),
    "namespace": lambda value: replace(value, namespace="other"),
    "epoch": lambda value: replace(value, epoch=0),
    "target": lambda value: replace(value, target=CpuTarget("aarch64")),
    "options": lambda value: replace(value, options=kcache.Options(opt_level=0)),
    "arg spec": lambda value: replace(value, arg_spec="f64[4]"),
    "inputs": lambda value: replace(value, inputs=value.outputs + value.outputs),
    "constants": lambda value: replace(value, constants=value.outputs),
    "guard": lambda value: replace(value, guard="s0 > 3"),
    "kernel digest": lambda value: replace(value, kernel_digest=bytes(32)),
    "toolchain digest": lambda value: replace(value, toolchain_digest=bytes(32)),
    "shared object": lambda value: replace(value, artifacts=()),
}


@pytest.mark.parametrize("name", BINDINGS)
def test_a_binding_of_something_else_is_rejected(
    client: kcache.Client, service: FakeService, name: str
) -> None:
    service.change_binding = BINDINGS[name]
    with pytest.raises(kcache.IntegrityError, match=name.partition(" ")[0]):
        client.compile(PROGRAM, target="x86-64-v2")


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_manifest_of_something_else_is_rejected(
    client: kcache.Client, service: FakeService, name: str
) -> None:
    service.change_manifest = MANIFESTS[name]
    with pytest.raises(kcache.IntegrityError, match=name):
        client.compile(PROGRAM, target="x86-64-v2")


def test_a_signed_value_that_cannot_be_read_is_rejected(client: kcache.Client, service: FakeService) -> None:
    service.change_signed = lambda signed: service.signer.sign(b"kcache.binding.v1\0", b"\xff\xff\xff")
    with pytest.raises(kcache.IntegrityError, match="not a binding"):
        client.compile(PROGRAM)


def test_a_foreign_key_is_not_stored_under_a_known_graph(client: kcache.Client, service: FakeService) -> None:
    def bend(reply: Any) -> Any:
        reply.key = 5
        return reply

    service.bend["StoreGraph"] = bend
    with pytest.raises(kcache.IntegrityError, match="signed key 1"):
        client.store(PROGRAM)


def spoil(reply: pb.CompileKernelResponse) -> pb.CompileKernelResponse:
    if reply.WhichOneof("event") == "chunk":
        reply.chunk.data = flip(reply.chunk.data)
    return reply


def test_artifact_bytes_are_checked_when_they_come_with_the_compile(
    client: kcache.Client, service: FakeService, cache_dir: Path
) -> None:
    service.bend["CompileKernel"] = spoil
    with pytest.raises(kcache.IntegrityError, match="do not match their digest"):
        client.compile(PROGRAM)
    assert not (cache_dir / "blobs").exists()
    assert not (cache_dir / "kernels").exists()


def test_artifact_bytes_are_checked_when_they_come_inline(
    fake: FakeServer, client: kcache.Client, new_client: NewClient, tmp_path: Path, service: FakeService
) -> None:
    client.compile(PROGRAM)

    def bend(reply: pb.GetKernelsResponse) -> pb.GetKernelsResponse:
        reply.results[0].artifacts[0].data = flip(reply.results[0].artifacts[0].data)
        return reply

    service.bend["GetKernels"] = bend
    with pytest.raises(kcache.IntegrityError, match="do not match their digest"):
        new_client(fake.address, cache_dir=tmp_path / "other").compile(PROGRAM)


def test_artifact_bytes_are_checked_when_they_are_read(client: kcache.Client, service: FakeService) -> None:
    def bend(reply: pb.ReadArtifactResponse) -> pb.ReadArtifactResponse:
        reply.data = flip(reply.data)
        return reply

    service.constants = (b"c" * 100,)
    service.bend["ReadArtifact"] = bend
    with pytest.raises(kcache.IntegrityError, match="do not match their digest"):
        client.compile(PROGRAM)


def test_more_bytes_than_signed_are_rejected(client: kcache.Client, service: FakeService) -> None:
    def bend(reply: pb.ReadArtifactResponse) -> pb.ReadArtifactResponse:
        reply.data += b"more"
        return reply

    service.constants = (b"c" * 100,)
    service.bend["ReadArtifact"] = bend
    with pytest.raises(kcache.IntegrityError, match="more than the 100 bytes"):
        client.compile(PROGRAM)


def test_a_text_that_is_not_its_digest_is_rejected(client: kcache.Client, service: FakeService) -> None:
    def bend(reply: Any) -> Any:
        reply.text_chunk += b" "
        return reply

    service.bend["NormalizeGraph"] = service.bend["GetSpec"] = bend
    with pytest.raises(kcache.IntegrityError, match="text of a spec"):
        client.normalize(PROGRAM)
    with pytest.raises(kcache.IntegrityError, match="text of a spec"):
        client.retrieve(1)


def test_a_raised_epoch_reaches_the_client_with_the_next_answer(
    fake: FakeServer, client: kcache.Client, service: FakeService
) -> None:
    client.compile(PROGRAM)
    service.epoch = 2
    service.compiled.clear()
    assert client.compile(PROGRAM + "\n").manifest.epoch == 2
    # The kernel of the old epoch is disowned, in memory and on disk.
    again = client.compile(PROGRAM)
    assert (again.origin, again.manifest.epoch) == ("compiled", 2)


def test_native_code_over_plaintext_from_another_host_is_rejected(new_client: NewClient) -> None:
    client = new_client("cache.invalid:7420")
    with pytest.raises(kcache.PermissionDenied, match="tls="):
        client.compile(PROGRAM)
