"""Stores of an older canonicalizer: nothing of them is served, their keys are joined with the new ones."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as pb
from kcache_grpc.model.manifest import Binding
from kcache_grpc.storage import Store, open_store
from kcache_grpc.storage.records import GraphDraft, Namespace, SignedBytes, SpecDraft
from tests.server.harness.programs import (
    add,
    by_digest,
    compile_request,
    digest,
    header,
    inline,
    kernels_request,
    result_of,
)
from tests.server.harness.running import Running, config_in, running

#: The same computation at three sizes, which canonicalizer 1 told apart; and another one.
FOUR, FIVE, SIX = add(4), add(5), add(6)
OTHER = add(4, op="multiply")


def put_old(store: Store, namespace: Namespace, program: bytes, text: str) -> int:
    """What canonicalizer 1 stored of a program; its key."""
    spec_digest = hashlib.sha256(text.encode()).digest()

    def bind(key: int) -> SignedBytes:
        binding = Binding(
            digest(program), "default", namespace.name, namespace.epoch, key, spec_digest,
            inputs=(), arg_names=(), outputs=(), symbols=(), symbol_values=(), constants=(),
        )  # fmt: skip
        return SignedBytes(binding.to_bytes(), b"s" * 64)

    draft = GraphDraft(SpecDraft(spec_digest, text, "default", 1), digest(program), bind)
    return store.put_graph(namespace, draft).spec.key


@pytest.fixture
def old_store(tmp_path: Path) -> Path:
    """Keys 1, 2 and 3 for the sum at three sizes, and the other program wrongly under key 1."""
    with open_store(config_in(tmp_path).db, migrate=True) as store:
        namespace = store.get_or_create_namespace("default")
        keys = [
            put_old(store, namespace, body, f"old {number}") for number, body in enumerate((FOUR, FIVE, SIX))
        ]
        assert keys == [1, 2, 3]
        assert put_old(store, namespace, OTHER, "old 0") == 1
    return tmp_path


def store_graph(server: Running, body: bytes) -> int:
    return server.stub.StoreGraph(pb.StoreGraphRequest(header=header(), graph=inline(body))).key


def current(server: Running, key: int) -> int:
    first = next(iter(server.stub.GetSpec(pb.GetSpecRequest(header=header(), key=key))))
    assert first.spec.key == key
    return first.spec.current_key


def test_old_keys_that_meet_stand_for_the_lowest(old_store: Path) -> None:
    with running(config_in(old_store)) as server:
        assert server.stub.GetCapabilities(pb.GetCapabilitiesRequest(header=header())).epoch == 2
        assert store_graph(server, FIVE) == 4
        assert [current(server, key) for key in (1, 2, 3, 4)] == [1, 2, 3, 2]
        assert [store_graph(server, body) for body in (FOUR, SIX, FIVE)] == [4, 4, 4]
        assert [current(server, key) for key in (1, 2, 3, 4)] == [1, 1, 1, 1]


def test_an_old_key_that_was_two_computations_stands_for_one(old_store: Path) -> None:
    with running(config_in(old_store)) as server:
        assert [store_graph(server, body) for body in (FOUR, OTHER)] == [4, 5]
        assert [current(server, key) for key in (1, 4, 5)] == [1, 1, 5]


def test_programs_of_an_older_canonicalizer_are_asked_for_again(old_store: Path) -> None:
    with running(config_in(old_store)) as server:
        (reply,) = server.stub.GetKernels(kernels_request([FOUR]))
        assert reply.results[0].status == pb.KERNEL_STATUS_NEED_PROGRAM
        result = result_of(server.stub.CompileKernel(compile_request(inline(FOUR))))
        assert (result.key, result.origin) == (4, pb.ORIGIN_COMPILED)
        (reply,) = server.stub.GetKernels(kernels_request([FOUR]))
        assert reply.results[0].status == pb.KERNEL_STATUS_FOUND
    with running(config_in(old_store)) as again:
        assert again.stub.GetCapabilities(pb.GetCapabilitiesRequest(header=header())).epoch == 2
        (reply,) = again.stub.GetKernels(kernels_request([FOUR]))
        assert reply.results[0].status == pb.KERNEL_STATUS_FOUND


def test_what_an_older_server_writes_beside_us_is_not_used(old_store: Path) -> None:
    """A rolling upgrade: the mapping is taken, so ours is made anew where it is needed; kernels are right."""
    with running(config_in(old_store)) as server:
        store_graph(server, FOUR)
        with open_store(server.config.db) as store:
            put_old(store, store.get_or_create_namespace("default"), FIVE, "old 1")
        (reply,) = server.stub.GetKernels(kernels_request([FIVE]))
        assert reply.results[0].status == pb.KERNEL_STATUS_NEED_PROGRAM
        result = result_of(server.stub.CompileKernel(compile_request(inline(FIVE))))
        binding = Binding.from_bytes(result.binding.payload)
        assert (binding.key, binding.arg_spec) == (4, "f32[5,8];f32[5,8]")
        again = result_of(server.stub.CompileKernel(compile_request(by_digest(FIVE))))
        assert (again.manifest, again.origin) == (result.manifest, pb.ORIGIN_STORED)
