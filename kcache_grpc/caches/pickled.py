"""Reads pickles of plain data that ``torch._inductor.cache`` wrote, without the ``pickle`` module.

``loads`` interprets the opcodes of protocols 4 and 5 that construct None, bool, int, float, str, bytes,
tuple, list and dict. Every opcode that imports or calls something is rejected, so that reading runs no code
of the pickle. The opcodes are documented in CPython's ``Lib/pickletools.py``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, cast

from kcache_grpc.caches.encoding import Encoder, encode
from kcache_grpc.errors import CacheError

#: Protocols that ``pickle.dumps`` uses by default: 4 up to Python 3.13, 5 from 3.14.
PROTOCOLS = (4, 5)
#: Bytes of the longest pickle that is one frame; longer keys have no name here.
_FRAME_TARGET = 64 << 10
_FRAME_MINIMUM = 4
_SINGLETONS = {b"N": None, b"\x88": True, b"\x89": False}
#: Opcodes of numbers in a fixed form.
_NUMBERS = {b"K": "<B", b"M": "<H", b"J": "<i", b"G": ">d"}
#: Opcodes of sized content, and the form of the size.
_STRINGS = {b"\x8c": "<B", b"X": "<I", b"\x8d": "<Q"}
_BYTES = {b"C": "<B", b"B": "<I", b"\x8e": "<Q"}
_LONGS = {b"\x8a": "<B", b"\x8b": "<I"}
_SHORT_TUPLES = {b"\x85": 1, b"\x86": 2, b"\x87": 3}


def loads(data: bytes) -> Any:
    """Returns the value of a pickle of plain data.

    Raises:
        CacheError: ``data`` is truncated, damaged, calls code, or contains a value that ``encode`` rejects.
    """
    try:
        value = _Machine(data).run()
    except (IndexError, KeyError, TypeError, AttributeError, ValueError, struct.error) as error:
        if isinstance(error, CacheError):
            raise
        raise CacheError(f"this is not a pickle of plain data: {error}") from error
    encode(value)
    return value


class _Machine:
    """The stack machine of one pickle."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._offset = 0
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}
        #: Bounds the keys of all dicts: hashing one recurses in C as deep as its tuples.
        self._keys = Encoder()

    def run(self) -> Any:
        if self._take(1) != b"\x80" or self._take(1)[0] not in PROTOCOLS:
            raise CacheError("this is not a pickle of protocol 4 or 5")
        while (code := self._take(1)) != b".":
            self._execute(code)
        if self._offset != len(self._data) or len(self._stack) != 1 or self._marks:
            raise CacheError("the pickle does not end with its one value")
        return self._stack.pop()

    def _execute(self, code: bytes) -> None:
        if code in _SINGLETONS:
            self._push(_SINGLETONS[code])
        elif code in _NUMBERS:
            self._push(self._number(_NUMBERS[code]))
        elif code in _STRINGS:
            self._push(self._sized(_STRINGS[code]).decode("utf-8", "surrogatepass"))
        elif code in _BYTES:
            self._push(self._sized(_BYTES[code]))
        elif code in _LONGS:
            self._push(int.from_bytes(self._sized(_LONGS[code]), "little", signed=True))
        elif code in _SHORT_TUPLES:
            self._push(tuple(self._pop(_SHORT_TUPLES[code])))
        elif code in _ACTIONS:
            _ACTIONS[code](self)
        else:
            raise CacheError(
                f"opcode {code!r} at byte {self._offset - 1} of the pickle is not one of plain data"
            )

    def frame(self) -> None:
        size = self._number("<Q")
        if size > len(self._data) - self._offset:
            raise CacheError("a frame of the pickle is truncated")

    def mark(self) -> None:
        self._marks.append(len(self._stack))

    def memoize(self) -> None:
        self._memo[len(self._memo)] = self._stack[-1]

    def recall(self) -> None:
        self._push(self._memo[self._number("<B")])

    def recall_long(self) -> None:
        self._push(self._memo[self._number("<I")])

    def new_tuple(self) -> None:
        self._push(())

    def new_list(self) -> None:
        self._push([])

    def new_dict(self) -> None:
        self._push({})

    def make_tuple(self) -> None:
        self._push(tuple(self._since_mark()))

    def append(self) -> None:
        self._extend(self._pop(1))

    def appends(self) -> None:
        self._extend(self._since_mark())

    def set_item(self) -> None:
        self._update(self._pop(2))

    def set_items(self) -> None:
        self._update(self._since_mark())

    def _extend(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if type(target) is not list:
            raise CacheError("the pickle appends to a value that is not a list")
        cast("list[Any]", target).extend(items)

    def _update(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if type(target) is not dict or len(items) % 2:
            raise CacheError("the pickle sets items of a value that is not a dict")
        for key in items[::2]:
            self._keys.add(key, 1)
            self._keys.parts.clear()
        cast("dict[Any, Any]", target).update(zip(items[::2], items[1::2], strict=True))

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _pop(self, count: int) -> list[Any]:
        if len(self._stack) - count < (self._marks[-1] if self._marks else 0):
            raise CacheError("the pickle takes values that it does not have")
        items = self._stack[len(self._stack) - count :]
        del self._stack[len(self._stack) - count :]
        return items

    def _since_mark(self) -> list[Any]:
        begin = self._marks.pop()
        items = self._stack[begin:]
        del self._stack[begin:]
        return items

    def _number(self, form: str) -> Any:
        return struct.unpack(form, self._take(struct.calcsize(form)))[0]

    def _sized(self, form: str) -> bytes:
        return self._take(self._number(form))

    def _take(self, size: int) -> bytes:
        end = self._offset + size
        if end > len(self._data):
            raise CacheError("the pickle is truncated")
        part = self._data[self._offset : end]
        self._offset = end
        return part


#: Opcodes without content, or with content that only they have.
_ACTIONS: dict[bytes, Callable[[_Machine], None]] = {
    b"\x95": _Machine.frame,
    b"(": _Machine.mark,
    b"\x94": _Machine.memoize,
    b"h": _Machine.recall,
    b"j": _Machine.recall_long,
    b")": _Machine.new_tuple,
    b"]": _Machine.new_list,
    b"}": _Machine.new_dict,
    b"t": _Machine.make_tuple,
    b"a": _Machine.append,
    b"e": _Machine.appends,
    b"s": _Machine.set_item,
    b"u": _Machine.set_items,
}


def dumps_key(key: object, protocol: int) -> bytes | None:
    """Returns the bytes of ``pickle.dumps(key, protocol)``, which the original hashes to a file name.

    ``None`` for a key that the original does not have: one that is not a ``str``, ``int`` or a ``tuple`` of
    plain immutable values, or one of more than 64 KiB. As in the original the bytes depend on which items of
    a tuple are one object.
    """
    writer = _Writer()
    if not writer.add(key):
        return None
    content = b"".join(writer.parts) + b"."
    if len(content) > _FRAME_TARGET:
        return None
    frame = b"\x95" + struct.pack("<Q", len(content)) if len(content) >= _FRAME_MINIMUM else b""
    return bytes((0x80, protocol)) + frame + content


class _Writer:
    """Collects the opcodes of one key."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self._memo: dict[int, int] = {}

    def add(self, value: object) -> bool:
        """Whether ``value`` was written: its type is one of plain immutable values."""
        kind = type(value)
        if value is None or kind is bool:
            self.parts.append(b"N" if value is None else b"\x88" if value else b"\x89")
        elif kind is int:
            self.parts.append(_pickled_int(cast("int", value)))
        elif kind is float:
            self.parts.append(b"G" + struct.pack(">d", value))
        elif id(value) in self._memo:
            index = self._memo[id(value)]
            self.parts.append(b"h" + bytes((index,)) if index < 256 else b"j" + struct.pack("<I", index))
        elif kind is str:
            self._sized(cast("str", value).encode("utf-8", "surrogatepass"), b"\x8c", b"X")
            self._memoize(value)
        elif kind is bytes:
            self._sized(cast("bytes", value), b"C", b"B")
            self._memoize(value)
        else:
            return kind is tuple and self._tuple(cast("tuple[object, ...]", value))
        return True

    def _tuple(self, items: tuple[object, ...]) -> bool:
        if not items:
            self.parts.append(b")")
            return True
        if len(items) > 3:
            self.parts.append(b"(")
        if not all(self.add(item) for item in items):
            return False
        self.parts.append(b"t" if len(items) > 3 else bytes((0x84 + len(items),)))
        self._memoize(items)
        return True

    def _sized(self, content: bytes, short: bytes, long: bytes) -> None:
        size = len(content)
        self.parts.append(short + bytes((size,)) if size < 256 else long + struct.pack("<I", size))
        self.parts.append(content)

    def _memoize(self, value: object) -> None:
        self._memo[id(value)] = len(self._memo)
        self.parts.append(b"\x94")


def _pickled_int(value: int) -> bytes:
    if 0 <= value < 1 << 8:
        return b"K" + bytes((value,))
    if 0 <= value < 1 << 16:
        return b"M" + struct.pack("<H", value)
    if -(1 << 31) <= value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    bits = (value if value >= 0 else ~value).bit_length()
    content = value.to_bytes(bits // 8 + 1, "little", signed=True)
    if len(content) < 256:
        return b"\x8a" + bytes((len(content),)) + content
    return b"\x8b" + struct.pack("<I", len(content)) + content
