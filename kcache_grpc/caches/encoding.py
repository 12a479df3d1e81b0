"""A deterministic, type-preserving binary encoding of plain values, without pickle.

An encoding is the byte ``VERSION`` and one item. An item is a tag and its content::

    N               None
    T  F            True, False
    i  size bytes   int: two's complement, big-endian, the fewest bytes (at least 1)
    d  bytes        float: IEEE 754 binary64, big-endian, 8 bytes
    s  size bytes   str: UTF-8; lone surrogates as 3 bytes each ("surrogatepass")
    b  size bytes   bytes
    t  count items  tuple
    l  count items  list
    m  count pairs  dict: key and value for each entry, in ascending order of the encoded keys

``size`` and ``count`` are unsigned LEB128 in the fewest bytes. Each value has exactly one encoding:
``decode`` rejects every other sequence of bytes, so equal encodings mean equal values of equal types. The
insertion order of a dict is not part of its value and is not preserved. Decoding constructs these types only
and calls no other code.
"""

from __future__ import annotations

import hashlib
import reprlib
import struct
from typing import Any, cast

from kcache_grpc.errors import CacheError

#: First byte of every encoding.
VERSION = 1
#: Containers inside containers.
MAX_DEPTH = 64
#: Items of one value, with those of its containers. Bounds the memory of small items: about 64 bytes each.
MAX_ITEMS = 1 << 22
#: Bytes of an encoding.
MAX_BYTES = 1 << 30

#: Bytes of the longest size: 2**35 is above ``MAX_BYTES``.
_MAX_SIZE_BYTES = 5
_DOUBLE = struct.Struct(">d")
#: How the encodings of ``bytes`` and ``str`` begin.
_BYTES_HEAD, _STR_HEAD = bytes((VERSION,)) + b"b", bytes((VERSION,)) + b"s"
#: Characters of a key that is far from every limit.
_SHORT_KEY = 1 << 16
_KEY_DOMAIN = b"kcache.caches.key\0"


def encode(value: object, max_depth: int = MAX_DEPTH) -> bytes:
    """Returns the encoding of ``value``.

    A list or dict that another thread changes meanwhile is encoded as it is at some moment of the call.

    Raises:
        CacheError: the value contains an unsupported type (subclasses are not supported), or exceeds
            ``max_depth``, ``MAX_ITEMS`` or ``MAX_BYTES``.
    """
    encoder = Encoder(max_depth)
    encoder.add(value, 0)
    return bytes((VERSION,)) + b"".join(encoder.parts)


def decode(data: bytes | bytearray | memoryview, max_depth: int = MAX_DEPTH) -> Any:
    """Returns the value whose encoding is ``data``.

    Raises:
        CacheError: ``data`` is not the encoding of a value, or exceeds a limit; the message names the offset.
    """
    if (content := _whole_bytes(data)) is not None:
        return content
    decoder = _Decoder(bytes(data), max_depth)
    if decoder.take(1) != bytes((VERSION,)):
        raise CacheError(f"this is not an encoded value: the first byte is not {VERSION}")
    value = decoder.item(0)
    if decoder.offset != len(decoder.data):
        raise CacheError(f"{len(decoder.data) - decoder.offset} bytes follow the encoded value")
    return value


def _whole_bytes(data: bytes | bytearray | memoryview) -> bytes | None:
    """The value that ``data`` encodes, copied once, where it is ``bytes``; ``None``: ``_Decoder`` tells."""
    view = memoryview(data)
    if view.format != "B" or view.ndim != 1 or bytes(view[:2]) != _BYTES_HEAD or len(view) > MAX_BYTES:
        return None
    size, shift = 0, 0
    for offset in range(len(_BYTES_HEAD), min(len(_BYTES_HEAD) + _MAX_SIZE_BYTES, len(view))):
        byte = view[offset]
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            begin = offset + 1
            shortest = byte or offset == len(_BYTES_HEAD)
            return bytes(view[begin:]) if shortest and size == len(view) - begin else None
    return None


def encode_key(key: object) -> bytes:
    """Returns the encoding of a key. Raises ``CacheError``, which names the key, also for ``None``."""
    if type(key) is str and len(key) <= _SHORT_KEY:
        text = key.encode("utf-8", "surrogatepass")
        return b"".join((_STR_HEAD, size_bytes(len(text)), text))
    return _encode_as("key", key)


def encode_value(value: object) -> bytes:
    """Returns the encoding of a value. Raises ``CacheError`` also for ``None``, which means a miss."""
    return _encode_as("value", value)


def key_digest(key: object) -> bytes:
    """Returns the 32 bytes that name a key: SHA-256 of ``kcache.caches.key``, a zero byte, the encoded key.

    Raises:
        CacheError: as ``encode_key``.
    """
    return hashlib.sha256(_KEY_DOMAIN + encode_key(key)).digest()


def describe(value: object) -> str:
    """A representation for messages, of at most some hundred characters. Never raises."""
    try:
        return _SHORT.repr(value)
    except Exception:  # noqa: BLE001  # the value may be of any class, with any __repr__
        return f"<{type(value).__name__}>"


def _encode_as(role: str, value: object) -> bytes:
    if value is None:
        raise CacheError(f"a {role} cannot be None")
    try:
        return encode(value)
    except CacheError as error:
        raise CacheError(f"the {role} {describe(value)} cannot be encoded: {error.message}") from error


class _Short(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = self.maxlong = 120

    def repr_bytes(self, x: bytes, level: int) -> str:
        """Bytes without a copy of their whole representation."""
        return repr(x) if len(x) <= 32 else f"{x[:32]!r}... ({len(x)} bytes)"

    def repr_int(self, x: int, level: int) -> str:
        """Integers without the limit of digits."""
        return repr(x) if x.bit_length() <= 256 else f"<int of {x.bit_length()} bits>"


_SHORT = _Short()


class Encoder:
    """Collects the parts of one encoding."""

    def __init__(self, max_depth: int = MAX_DEPTH) -> None:
        self.parts: list[bytes] = []
        self._max_depth = max_depth
        self._items = 0
        self._size = 1

    def add(self, value: object, depth: int) -> None:
        """Adds one item, which is inside ``depth`` containers. Raises ``CacheError`` as ``encode``."""
        self._items += 1
        if self._items > MAX_ITEMS:
            raise CacheError(f"it has more than {MAX_ITEMS} items")
        kind = type(value)
        if value is None:
            self._append(b"N")
        elif kind is bool:
            self._append(b"T" if value else b"F")
        elif kind is int:
            self._sized(b"i", int_bytes(cast("int", value)))
        elif kind is float:
            self._append(b"d" + _DOUBLE.pack(cast("float", value)))
        elif kind is str:
            self._sized(b"s", cast("str", value).encode("utf-8", "surrogatepass"))
        elif kind is bytes:
            self._sized(b"b", cast("bytes", value))
        else:
            self._container(value, depth)

    def _container(self, value: object, depth: int) -> None:
        if depth >= self._max_depth:
            raise CacheError(f"it has more than {self._max_depth} containers inside each other")
        kind: type = type(value)
        if kind is tuple or kind is list:
            # A copy: the count has to be that of the items, whatever other threads do to a list.
            sequence = tuple(cast("tuple[object, ...] | list[object]", value))
            self._append((b"t" if kind is tuple else b"l") + size_bytes(len(sequence)))
            for item in sequence:
                self.add(item, depth + 1)
        elif kind is dict:
            self._dict(cast("dict[object, object]", value), depth)
        else:
            raise CacheError(
                f"type {kind.__name__} is not supported; "
                "use str, int, bytes, bool, float, tuple, list or dict"
            )

    def _dict(self, mapping: dict[object, object], depth: int) -> None:
        items = mapping.copy().items()
        self._append(b"m" + size_bytes(len(items)))
        entries: list[tuple[bytes, object]] = []
        for key, value in items:
            begin = len(self.parts)
            self.add(key, depth + 1)
            entries.append((b"".join(self.parts[begin:]), value))
            del self.parts[begin:]
        entries.sort(key=lambda entry: entry[0])
        for (encoded, value), previous in zip(entries, [b"", *(entry[0] for entry in entries)], strict=False):
            if encoded == previous:
                raise CacheError("two keys of a dict have one encoding, as NaNs may")
            self.parts.append(encoded)
            self.add(value, depth + 1)

    def _sized(self, tag: bytes, content: bytes) -> None:
        self._append(tag + size_bytes(len(content)))
        self._append(content)

    def _append(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > MAX_BYTES:
            raise CacheError(f"its encoding has more than {MAX_BYTES} bytes")
        self.parts.append(part)


class _Decoder:
    """Reads items from ``data`` at ``offset``."""

    def __init__(self, data: bytes, max_depth: int) -> None:
        if len(data) > MAX_BYTES:
            raise CacheError(f"an encoded value has at most {MAX_BYTES} bytes; these are {len(data)}")
        self.data = data
        self.offset = 0
        self._max_depth = max_depth
        self._items = 0

    def item(self, depth: int) -> Any:
        self._items += 1
        if self._items > MAX_ITEMS:
            raise CacheError(f"the encoded value has more than {MAX_ITEMS} items")
        at = self.offset
        tag = self.take(1)
        match tag:
            case b"N" | b"T" | b"F":
                return {b"N": None, b"T": True, b"F": False}[tag]
            case b"i":
                return self._int()
            case b"d":
                return _DOUBLE.unpack(self.take(8))[0]
            case b"s":
                return self._str()
            case b"b":
                return self.take(self._size())
            case b"t" | b"l" | b"m":
                return self._container(tag, depth)
            case _:
                raise CacheError(f"unknown tag {tag!r} at offset {at} of the encoded value")

    def _container(self, tag: bytes, depth: int) -> Any:
        if depth >= self._max_depth:
            raise CacheError(
                f"the encoded value has more than {self._max_depth} containers inside each other"
            )
        count = self._size()
        if tag == b"m":
            return self._dict(count, depth + 1)
        items = [self.item(depth + 1) for _ in range(count)]
        return tuple(items) if tag == b"t" else items

    def _dict(self, count: int, depth: int) -> dict[Any, Any]:
        result: dict[Any, Any] = {}
        previous = b""
        for _ in range(count):
            begin = self.offset
            key = self.item(depth)
            encoded = self.data[begin : self.offset]
            if encoded <= previous:
                raise CacheError(f"the keys of a dict are not in ascending order at offset {begin}")
            previous = encoded
            try:
                result[key] = self.item(depth)
            except TypeError as error:
                raise CacheError(f"the key of a dict at offset {begin} is not hashable") from error
        if len(result) != count:
            raise CacheError(f"two keys of a dict before offset {self.offset} are equal")
        return result

    def _int(self) -> int:
        content = self.take(self._size())
        value = int.from_bytes(content, "big", signed=True)
        if int_bytes(value) != content:
            raise CacheError(f"the int before offset {self.offset} is not in its shortest form")
        return value

    def _str(self) -> str:
        content = self.take(self._size())
        try:
            return content.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise CacheError(f"the str before offset {self.offset} is not UTF-8: {error}") from error

    def _size(self) -> int:
        begin, value = self.offset, 0
        for position in range(_MAX_SIZE_BYTES):
            at = begin + position
            if at >= len(self.data):
                break
            byte = self.data[at]
            value |= (byte & 0x7F) << (7 * position)
            if byte < 0x80:
                if byte == 0 and position:
                    raise CacheError(f"the size at offset {begin} is not in its shortest form")
                self.offset = at + 1
                return value
        else:
            raise CacheError(f"the size at offset {begin} has more than {_MAX_SIZE_BYTES} bytes")
        raise self._ends_before(at + 1)

    def take(self, size: int) -> bytes:
        """The next ``size`` bytes. Raises ``CacheError`` if there are fewer."""
        end = self.offset + size
        if end > len(self.data):
            raise self._ends_before(end)
        part = self.data[self.offset : end]
        self.offset = end
        return part

    def _ends_before(self, end: int) -> CacheError:
        return CacheError(f"the encoded value ends at byte {len(self.data)}; {end} are needed")


def size_bytes(size: int) -> bytes:
    """A size or a count as unsigned LEB128."""
    if size < 0x80:
        return bytes((size,))
    result = bytearray()
    while size >= 0x80:
        result.append(size & 0x7F | 0x80)
        size >>= 7
    result.append(size)
    return bytes(result)


def int_bytes(value: int) -> bytes:
    """Two's complement, big-endian, in the fewest bytes."""
    bits = (value if value >= 0 else ~value).bit_length()
    return value.to_bytes(bits // 8 + 1, "big", signed=True)
