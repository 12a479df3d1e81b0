"""Verification: what was edited or decayed is found, named, and made anew when it is asked for."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest

from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2_grpc
from kcache_grpc.errors import CompileFailed
from kcache_grpc.model.signing import Signer
from kcache_grpc.service.admin.running_service import recompiling
from kcache_grpc.service.lifecycle.verify import Compile, Counts, Fault, Verification
from kcache_grpc.storage import Store, open_store
from kcache_grpc.storage.records import Namespace
from kcache_grpc.worker import WorkerPool, codec
from kcache_grpc.worker.frames import Frame
from tests.server.harness.programs import add, compile_request, inline, result_of
from tests.server.harness.running import config_in, running
from tests.storage.inside import rows, tamper

ROWS = (51, 52, 53)


@dataclass
class Compiler:
    """The compiler of this installation."""

    toolchains: frozenset[bytes]
    recompile: Compile


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def call(work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(240)

    pool = WorkerPool(1)
    try:
        call(pool.start())
        yield Compiler(pool.toolchains.digests, recompiling(pool, loop, 240))
    finally:
        call(pool.close())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A server compiled three kernels here, and ended."""
    folder = tmp_path_factory.mktemp("made")
    compile_all(folder)
    return folder


@pytest.fixture
def folder(template: Path, tmp_path: Path) -> Path:
    """A copy of that."""
    ignore = shutil.ignore_patterns("*.sock*")
    return shutil.copytree(template, tmp_path / "copy", ignore=ignore)


def compile_all(folder: Path) -> list[int]:
    with running(config_in(folder)) as server:
        stub = kernel_cache_pb2_grpc.KernelCacheStub(grpc.insecure_channel(server.address))
        return [result_of(stub.CompileKernel(compile_request(inline(add(each))))).key for each in ROWS]


def verify(
    folder: Path,
    toolchains: frozenset[bytes] = frozenset(),
    recompile: Compile | None = None,
    sample: int | None = None,
    repair: bool = True,
) -> tuple[list[Fault], Counts]:
    key = Signer.from_file(folder / "state" / "signing.key").public_key
    with open_store(f"sqlite:///{folder}/kcache.sqlite") as store:
        verification = Verification(store, key, toolchains, recompile)
        *faults, counts = verification.steps(namespace_of(store), sample, repair=repair, confirmed=True)
    assert isinstance(counts, Counts)
    return [fault for fault in faults if isinstance(fault, Fault)], counts


def namespace_of(store: Store) -> Namespace:
    namespace = store.find_namespace("default")
    assert namespace is not None
    return namespace


def test_the_same_toolchain_makes_the_same_bytes(folder, compiler):
    faults, counts = verify(folder, compiler.toolchains, compiler.recompile)
    assert faults == []
    assert (counts.kernels, counts.compiled, counts.mappings) == (3, 3, 3)
    assert counts.blobs >= 3


def test_kernels_of_other_toolchains_are_not_compiled(folder, compiler):
    _, counts = verify(folder, frozenset((bytes(32),)), compiler.recompile)
    assert (counts.kernels, counts.compiled) == (3, 0)


def test_a_sample_is_no_more_than_asked_for(folder):
    for sample in (1, 2, 50):
        _, counts = verify(folder, sample=sample)
        assert 1 <= counts.kernels <= min(sample, 3)
        assert 1 <= counts.mappings <= min(sample, 3)


def other_bytes(recompile: Compile) -> Compile:
    def damage(job: Frame) -> Frame:
        kernel = codec.decode_kernel(recompile(job))
        kernel.artifacts["so"] += b"!"  # type: ignore[index]
        return codec.encode_kernel(kernel)

    return damage


def test_other_bytes_of_the_same_toolchain_are_quarantined_with_their_kernel(folder, compiler):
    faults, counts = verify(folder, compiler.toolchains, other_bytes(compiler.recompile))
    assert counts.faults == len(faults) >= 1
    assert all("makes other bytes of so" in fault.problem for fault in faults)
    assert rows(folder / "kcache.sqlite", "SELECT count(*) FROM quarantine")[0][0] >= 1
    assert rows(folder / "kcache.sqlite", "SELECT count(*) FROM kernels") == [(0,)]
    # The next requests compile them anew, under the keys that they had.
    assert len(set(compile_all(folder))) == 1
    assert verify(folder, compiler.toolchains, compiler.recompile)[0] == []


def test_what_does_not_compile_any_more_is_told_and_left(folder, compiler):
    def reject(job: Frame) -> Frame:
        raise CompileFailed("no such pass", stage="lower")

    faults, _ = verify(folder, compiler.toolchains, reject)
    assert [fault.action for fault in faults] == ["left as it is"] * 3
    assert rows(folder / "kcache.sqlite", "SELECT count(*) FROM kernels") == [(3,)]


@pytest.mark.sampled(9)
@pytest.mark.parametrize(
    ("statement", "subjects", "problem"),
    [
        ("UPDATE kernels SET manifest = {flip} WHERE id = 2", ["kernel"], "signature"),
        ("UPDATE kernels SET signature = zeroblob(64) WHERE id = 2", ["kernel"], "signature"),
        ("UPDATE kernels SET guard = 's0 % 8 == 0' WHERE id = 2", ["kernel"], "contradict"),
        ("UPDATE kernels SET target = 'x86-64-v4' WHERE id = 2", ["kernel"], "contradict"),
        ("UPDATE kernels SET kernel_digest = zeroblob(32) WHERE id = 2", ["kernel"], "kernel digest"),
        (
            "UPDATE kernel_artifacts SET artifact_id = (SELECT max(id) FROM artifacts) WHERE kernel_id = 1 "
            "AND kind = 'so'",
            ["kernel"],
            "contradict",
        ),
        ("UPDATE graph_mappings SET binding = {flip} WHERE id = 2", ["mapping"], "signature"),
        ("UPDATE graph_mappings SET program_digest = zeroblob(32) WHERE id = 2", ["mapping"], "contradict"),
    ],
)
def test_edited_rows_are_removed(folder, statement, subjects, problem):
    column = "manifest" if "manifest" in statement else "binding"
    flip = f"CAST(x'00' || substr({column}, 2) AS BLOB)"
    tamper(folder / "kcache.sqlite", statement.replace("{flip}", flip))
    faults, _ = verify(folder)
    assert [fault.subject for fault in faults] == subjects
    assert problem in faults[0].problem
    assert "quarantined" in faults[0].action
    assert verify(folder)[0] == []


def test_what_was_removed_comes_again(folder):
    tamper(
        folder / "kcache.sqlite",
        "UPDATE kernels SET guard = 's0 % 8 == 0' WHERE id = 2",
        "UPDATE graph_mappings SET signature = zeroblob(64) WHERE id = 1",
    )
    assert len(verify(folder)[0]) == 2
    assert set(compile_all(folder)) == {1}
    assert verify(folder)[1].kernels == 3


def test_edited_bytes_are_quarantined_and_repaired(folder):
    tamper(
        folder / "kcache.sqlite",
        "UPDATE artifact_chunks SET content = zeroblob(size) WHERE artifact_id = 1",
    )
    faults, _ = verify(folder)
    assert [(fault.subject, "quarantined" in fault.action) for fault in faults] == [("artifact", True)]
    compile_all(folder)
    assert verify(folder)[0] == []


def test_an_edited_spec_is_told_and_stays(folder):
    tamper(folder / "kcache.sqlite", "UPDATE specs SET text = text || ' '")
    faults, counts = verify(folder)
    assert {fault.subject for fault in faults} == {"spec"}
    assert counts.faults == 6
    assert all("backup" in fault.action for fault in faults)
    assert rows(folder / "kcache.sqlite", "SELECT count(*) FROM specs") == [(1,)]


def test_without_a_key_signatures_are_not_judged(folder):
    tamper(folder / "kcache.sqlite", "UPDATE kernels SET signature = zeroblob(64)")
    with open_store(f"sqlite:///{folder}/kcache.sqlite") as store:
        *faults, _ = Verification(store, None).steps(namespace_of(store), None)
    assert faults == []
