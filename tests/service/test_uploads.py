"""The upload spool: growth, verification, limits, expiry."""

from __future__ import annotations

import asyncio
import os
import tracemalloc
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from kcache_grpc import errors
from kcache_grpc.model.program import ProgramFormat, program_digest
from kcache_grpc.service.graphs.uploads import UploadPlan, Uploads
from kcache_grpc.service.values import BeyondEnd

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def spool(folder: Path, **rest: Any) -> Uploads:
    settings: dict[str, Any] = {"max_program": 1000, "capacity": 5000, "ttl": 60.0, **rest}
    return Uploads(folder / "spool", **settings)


async def parts(*contents: bytes) -> AsyncIterator[bytes]:
    for content in contents:
        yield content


def plan(body: bytes, offset: int = 0) -> UploadPlan:
    digest = program_digest(ProgramFormat.STABLEHLO, body)
    return UploadPlan(ProgramFormat.STABLEHLO, len(body), digest, offset)


def test_an_upload_grows_is_verified_and_found(tmp_path: Path) -> None:
    async def body() -> None:
        uploads = spool(tmp_path)
        program = bytes(range(200))
        half = await uploads.receive("ns", plan(program), parts(program[:100]))
        assert (half.committed, half.complete) == (100, False)
        assert uploads.find("ns", plan(program).digest) is None
        rest = spool(tmp_path)  # another process, or this one after a restart
        assert rest.progress("ns", plan(program).digest).committed == 100
        whole = await rest.receive("ns", plan(program, 100), parts(program[100:150], program[150:]))
        assert (whole.committed, whole.complete) == (200, True)
        upload = uploads.find("ns", plan(program).digest)
        assert upload is not None
        assert (upload.body, upload.format) == (program, ProgramFormat.STABLEHLO)
        assert uploads.find("other", plan(program).digest) is None

    run(body())


def test_an_upload_may_go_back_but_not_skip(tmp_path: Path) -> None:
    async def body() -> None:
        uploads = spool(tmp_path)
        program = bytes(range(200))
        await uploads.receive("ns", plan(program), parts(program[:100]))
        with pytest.raises(BeyondEnd):
            await uploads.receive("ns", plan(program, 101), parts(program[101:]))
        assert (await uploads.receive("ns", plan(program, 50), parts(program[50:]))).complete

    run(body())


def test_two_writers_of_one_program_do_not_mix(tmp_path: Path) -> None:
    async def body() -> None:
        uploads = spool(tmp_path)
        program = bytes(range(200))
        gate = asyncio.Event()

        async def slow() -> AsyncIterator[bytes]:
            yield program[:100]
            await gate.wait()
            yield program[100:]

        first = asyncio.create_task(uploads.receive("ns", plan(program), slow()))
        while uploads.progress("ns", plan(program).digest).committed < 100:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        with pytest.raises(errors.Unavailable):
            await spool(tmp_path).receive("ns", plan(program), parts(program))
        gate.set()
        assert (await first).complete

    run(body())


def test_the_spool_has_limits_and_forgets(tmp_path: Path) -> None:
    async def body() -> None:
        now = [1_000_000.0]
        uploads = spool(tmp_path, capacity=1500, clock=lambda: now[0])
        with pytest.raises(errors.ResourceExhausted, match="above the limit of 1000"):
            await uploads.receive("ns", plan(bytes(1001)), parts())
        await uploads.receive("ns", plan(bytes(900)), parts(bytes(900)))
        with pytest.raises(errors.ResourceExhausted) as caught:
            await uploads.receive("ns", plan(bytes(700)), parts(bytes(700)))
        assert caught.value.metadata["limit"] == "spool_bytes"
        for path in (tmp_path / "spool").glob("*/*"):
            os.utime(path, (now[0], now[0]))
        now[0] += 61
        assert (await uploads.receive("ns", plan(bytes(700)), parts(bytes(700)))).complete
        assert uploads.find("ns", plan(bytes(900)).digest) is None

    run(body())


def test_uploads_at_once_do_not_overfill_the_spool(tmp_path: Path) -> None:
    async def body() -> None:
        uploads = spool(tmp_path, capacity=1500)
        started, released = asyncio.Event(), asyncio.Event()

        async def slow(program: bytes) -> AsyncIterator[bytes]:
            started.set()
            yield program[:10]
            await released.wait()

        first = asyncio.create_task(uploads.receive("ns", plan(b"a" * 1000), slow(b"a" * 1000)))
        await started.wait()
        with pytest.raises(errors.ResourceExhausted, match="spool"):
            await uploads.receive("ns", plan(b"b" * 1000), slow(b"b" * 1000))
        released.set()
        assert (await first).committed == 10
        again = await uploads.receive("ns", plan(b"a" * 1000, 10), parts(b"a" * 990))
        assert again.complete

    run(body())


def test_a_wrong_size_under_a_digest_leaves_room_for_the_right_one(tmp_path: Path) -> None:
    async def body() -> None:
        uploads = spool(tmp_path)
        program = b"p" * 100
        lie = UploadPlan(ProgramFormat.STABLEHLO, 999, plan(program).digest, 0)
        await uploads.receive("ns", lie, parts(b"junk!"))
        held = uploads.progress("ns", lie.digest).committed
        with pytest.raises(BeyondEnd):
            await uploads.receive("ns", plan(program, held), parts(program[held:]))
        assert (await uploads.receive("ns", plan(program), parts(program))).complete

    run(body())


@pytest.mark.issue(number=19, point=28)
def test_an_upload_that_fails_needs_and_keeps_no_memory_of_its_size(tmp_path: Path) -> None:
    """Whole files were read to verify them, beside each other where several failed at once."""
    size, part = 32 << 20, bytes(1 << 20)

    async def failing(uploads: Uploads, number: int) -> None:
        wanted = UploadPlan(ProgramFormat.STABLEHLO, size, bytes([number]) * 32, 0)
        with pytest.raises(errors.IntegrityError):
            await uploads.receive("ns", wanted, parts(*[part] * 32))

    async def body() -> None:
        uploads = spool(tmp_path, max_program=size, capacity=4 * size)
        await asyncio.gather(*(failing(uploads, number) for number in range(3)))

    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        run(body())
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before < size // 2
    assert after - before < 1 << 20
    assert not list((tmp_path / "spool").glob("*/*"))
