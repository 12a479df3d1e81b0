"""Blocks: content in zstd frames of at most 1 MiB, each a bounded step of memory and of decompression."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from kcache_grpc.bundle.format import BLOCK_BYTES, LENGTH, MAX_RATIO
from kcache_grpc.errors import IntegrityError, Unavailable

if TYPE_CHECKING:
    import zstandard

#: Level of zstd: about 400 MB/s on one core; higher levels are slower and save some percent.
LEVEL = 3
#: A block of more content for a byte is split into small ones: readers reject extreme ratios.
_SPLIT_RATIO = MAX_RATIO // 2
_SMALL_BLOCK = 8 << 10


def compress(content: Iterable[bytes], level: int = LEVEL) -> Iterator[tuple[int, bytes]]:
    """Bytes of content and zstd frame, block by block.

    Equal content gives equal blocks, however the chunks of ``content`` are cut.
    """
    compressor = _zstandard().ZstdCompressor(level=level, write_checksum=False, write_content_size=True)
    for block in _cut(content):
        frame = compressor.compress(block)
        if len(block) <= (len(frame) + LENGTH.size) * _SPLIT_RATIO:
            yield len(block), frame
            continue
        for start in range(0, len(block), _SMALL_BLOCK):
            part = block[start : start + _SMALL_BLOCK]
            yield len(part), compressor.compress(part)


def decompress(frame: bytes) -> bytes:
    """The content of one frame: 1 to ``BLOCK_BYTES`` bytes, nothing allocated beyond.

    Raises ``IntegrityError`` for a frame that does not state its size, states too much, or does not hold it.
    """
    zstd = _zstandard()
    try:
        size = zstd.frame_content_size(frame)
        if not 0 < size <= BLOCK_BYTES:
            raise IntegrityError(f"a block of the bundle states {size} bytes of content", finding="block")
        if size > (len(frame) + LENGTH.size) * MAX_RATIO:
            raise IntegrityError(
                f"a block of {len(frame)} bytes expands to {size}, more than {MAX_RATIO} times as much: "
                "a decompression bomb",
                finding="bomb",
            )
        content = _decompressor().decompress(frame, max_output_size=BLOCK_BYTES, allow_extra_data=False)
    except zstd.ZstdError as error:
        raise IntegrityError(f"a block of the bundle is no zstd frame: {error}", finding="block") from error
    if len(content) != size:
        raise IntegrityError("a block of the bundle has other bytes than it states", finding="block")
    return content


def _cut(content: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in blocks of ``BLOCK_BYTES``, the last one shorter."""
    pending = bytearray()
    for chunk in content:
        pending += chunk
        start = 0
        while len(pending) - start >= BLOCK_BYTES:
            yield bytes(pending[start : start + BLOCK_BYTES])
            start += BLOCK_BYTES
        del pending[:start]
    if pending:
        yield bytes(pending)


def _decompressor() -> zstandard.ZstdDecompressor:
    """A new one each time: they are not thread-safe, and cost a microsecond."""
    return _zstandard().ZstdDecompressor(max_window_size=2 * BLOCK_BYTES)


@functools.cache
def _zstandard() -> Any:
    """The package, imported by the first bundle."""
    try:
        import zstandard
    except ImportError as error:
        raise Unavailable(
            "bundles need the package zstandard, which is not installed; run: pip install 'zstandard>=0.23'"
        ) from error
    return zstandard
