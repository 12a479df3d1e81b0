"""Where uploads of bundles and values are kept on a full device, and paths of bundles at the start."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO, Any, cast

import pytest

from kcache_grpc.errors import ResourceExhausted
from kcache_grpc.service.blobs.blob_cache import _Receiver  # pyright: ignore[reportPrivateUsage]
from kcache_grpc.service.bundles.bundles import Spool
from kcache_grpc.service.bundles.preload import preload
from kcache_grpc.service.values import Caller

pytestmark = pytest.mark.issue(number=20, point=4)


@pytest.mark.parametrize("size", [100, 5000, 100_000])
def test_a_full_device_is_an_error_and_the_room_in_the_spool_is_free_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """The bytes that wait in the buffer of the file make its close fail, too."""

    def full(**_: object) -> IO[bytes]:
        return Path("/dev/full").open("wb")

    async def parts() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield bytes(size)

    async def receive(spool: Spool) -> int:
        file, received = await spool.receive(parts())
        file.close()
        spool.release(received)
        return received

    spool = Spool(tmp_path, 3 * size)
    with monkeypatch.context() as patched:
        patched.setattr(tempfile, "TemporaryFile", full)
        for _ in range(3):
            with pytest.raises(ResourceExhausted, match="cannot be kept on this server: No space left"):
                asyncio.run(receive(spool))
    assert asyncio.run(receive(spool)) == 3 * size


def test_a_value_that_a_full_device_does_not_take_frees_its_room() -> None:
    class Room:
        freed = 0

        def release(self, size: int) -> None:
            self.freed += size

    room, file = Room(), Path("/dev/full").open("wb")  # noqa: SIM115 (the receiver closes it)
    file.write(b"waits in the buffer")
    receiver = _Receiver(cast("Any", room), Caller())
    receiver._open.append(file)  # pyright: ignore[reportPrivateUsage]
    receiver._reserved = 7  # pyright: ignore[reportPrivateUsage]
    receiver.close()
    assert (room.freed, file.closed) == (7, True)


def test_a_name_that_no_file_can_have_does_not_prevent_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "kcache.service"):
        asyncio.run(preload(cast("Any", None), [tmp_path / ("n" * 300)]))
    assert "File name too long" in caplog.text
