"""A toolchain that the namespace has disowned: what a client holds of it is of no provenance any more."""

from __future__ import annotations

from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as pb
from kcache_grpc._proto.kcache.v1 import manifest_pb2
from kcache_grpc.client.trust.server_state import ServerState, Snapshots, read_state
from kcache_grpc.model.gpu.target import GpuTarget
from kcache_grpc.model.identity import toolchain_digest
from kcache_grpc.model.signing import Signer, server_id
from kcache_grpc.model.target import CpuTarget


def reply(disowned: bool, key: bytes) -> pb.GetCapabilitiesResponse:
    return pb.GetCapabilitiesResponse(
        server_id=server_id(key),
        public_key=key,
        epoch=1,
        toolchain=[manifest_pb2.Ingredient(name="llvm", value="22")],
        toolchain_digest=toolchain_digest((("llvm", "22"),)),
        toolchain_disowned=disowned,
    )


CPU, GPU = CpuTarget("x86-64-v3"), GpuTarget("sm_90")


def test_memory_and_disk_are_of_another_generation(tmp_path):
    key = Signer.generate().public_key
    before, after = read_state(reply(False, key), 0.0), read_state(reply(True, key), 0.0)
    assert before.provenances.isdisjoint(after.provenances)
    assert after.toolchain_of(CPU) != before.toolchain_of(CPU)
    snapshots = Snapshots(tmp_path)
    snapshots.save("server", after)
    loaded = snapshots.load("server")
    assert loaded is not None
    assert loaded.provenances == after.provenances
    assert read_state(reply(False, key), 0.0).provenances == before.provenances


def test_a_server_without_a_toolchain_for_gpus_has_one_for_both():
    state = read_state(reply(False, Signer.generate().public_key), 0.0)
    assert state.toolchain_of(GPU) == state.toolchain_of(CPU)


def test_another_assembler_for_gpus_disowns_no_kernel_of_a_cpu():
    key = Signer.generate().public_key
    states: list[ServerState] = []
    for version in ("12.8", "13.0"):
        said = reply(False, key)
        said.gpu_toolchain.add(name="ptxas", value=version)
        said.gpu_toolchain_digest = toolchain_digest((("ptxas", version),))
        states.append(read_state(said, 0.0))
    before, after = states
    assert before.toolchain_of(CPU) == after.toolchain_of(CPU)
    assert before.toolchain_of(GPU) != after.toolchain_of(GPU)
    (common,) = before.provenances & after.provenances
    assert common[2] == before.toolchain_of(CPU)
