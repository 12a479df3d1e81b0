"""A toolchain that the namespace has disowned: what a client holds of it is of no generation any more."""

from __future__ import annotations

from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as pb
from kcache_grpc._proto.kcache.v1 import manifest_pb2
from kcache_grpc.client.state import Snapshots, read_state
from kcache_grpc.model.identity import toolchain_digest
from kcache_grpc.model.signing import Signer, server_id


def reply(disowned: bool, key: bytes) -> pb.GetCapabilitiesResponse:
    return pb.GetCapabilitiesResponse(
        server_id=server_id(key),
        public_key=key,
        epoch=1,
        toolchain=[manifest_pb2.Ingredient(name="llvm", value="22")],
        toolchain_digest=toolchain_digest((("llvm", "22"),)),
        toolchain_disowned=disowned,
    )


def test_memory_and_disk_are_of_another_generation(tmp_path):
    key = Signer.generate().public_key
    before, after = read_state(reply(False, key), 0.0), read_state(reply(True, key), 0.0)
    assert before.generation != after.generation
    assert after.toolchain_digest != before.toolchain_digest
    snapshots = Snapshots(tmp_path)
    snapshots.save("server", after)
    loaded = snapshots.load("server")
    assert loaded is not None
    assert loaded.generation == after.generation
    assert read_state(reply(False, key), 0.0).generation == before.generation
