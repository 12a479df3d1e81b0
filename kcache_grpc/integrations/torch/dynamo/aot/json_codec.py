"""Codecs between values of PyTorch's private classes and JSON, with an explicit list of what is taken.

Each codec encodes values of exact types and decodes JSON of an exact form; anything else raises
``NotRecordable`` or ``InvalidRecord`` with the path of the field. Decoding calls the constructors of the
classes that a codec names, and nothing that the JSON names.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, Protocol, cast


class NotRecordable(Exception):
    """A value that no record states; the message has the path of its field."""


class InvalidRecord(Exception):
    """JSON that is not a record of this version; the message has the path of the field."""


class Codec(Protocol):
    """Encodes a value as JSON, and decodes it; ``path`` is the name of the field in messages."""

    def encode(self, value: Any, path: str) -> Any: ...

    def decode(self, data: Any, path: str) -> Any: ...


@dataclasses.dataclass(frozen=True)
class Plain:
    """Values of JSON's own types, compared by exact type: ``True`` is not an ``int``."""

    kinds: tuple[type, ...]

    def encode(self, value: Any, path: str) -> Any:
        if type(value) not in self.kinds:
            raise not_recordable(path, value)
        return value

    def decode(self, data: Any, path: str) -> Any:
        if type(data) not in self.kinds:
            raise invalid(path, f"{_name(self.kinds)} is expected, not {type(data).__name__}")
        return data


@dataclasses.dataclass(frozen=True)
class Constant:
    """A field that has one value in each record, and is not written."""

    value: Any

    def encode(self, value: Any, path: str) -> Any:
        if type(value) is not type(self.value) or value != self.value:
            raise not_recordable(path, value)

    def decode(self, data: Any, path: str) -> Any:
        if data is not None:
            raise invalid(path, "no value is expected")
        return copy.copy(self.value)


@dataclasses.dataclass(frozen=True)
class Dropped:
    """A field that results do not depend on: each record has ``value`` for it."""

    value: Any = None

    def encode(self, value: Any, path: str) -> Any:
        return None

    def decode(self, data: Any, path: str) -> Any:
        if data is not None:
            raise invalid(path, "no value is expected")
        return copy.copy(self.value)


@dataclasses.dataclass(frozen=True)
class Optional:
    """``None`` or a value of another codec."""

    inner: Codec

    def encode(self, value: Any, path: str) -> Any:
        return None if value is None else self.inner.encode(value, path)

    def decode(self, data: Any, path: str) -> Any:
        return None if data is None else self.inner.decode(data, path)


@dataclasses.dataclass(frozen=True)
class Elements:
    """A list, tuple or set of exact type ``kind``; sets are written in ascending order."""

    inner: Codec
    kind: type = list

    def encode(self, value: Any, path: str) -> Any:
        if type(value) is not self.kind:
            raise not_recordable(path, value)
        elements: Iterable[Any] = sorted(value) if self.kind is set else value
        return [self.inner.encode(element, f"{path}[{index}]") for index, element in enumerate(elements)]

    def decode(self, data: Any, path: str) -> Any:
        return self.kind(
            self.inner.decode(element, f"{path}[{index}]") for index, element in enumerate(_list(data, path))
        )


@dataclasses.dataclass(frozen=True)
class Table:
    """A mapping of integers, written as pairs in ascending order; ``build`` makes it from a ``dict``."""

    inner: Codec
    build: Callable[[dict[int, Any]], Any] = dict

    def encode(self, value: Any, path: str) -> Any:
        if not isinstance(value, dict):
            raise not_recordable(path, value)
        table = cast("dict[Any, Any]", value)
        if any(type(key) is not int for key in table):
            raise not_recordable(path, table)
        return [[key, self.inner.encode(table[key], f"{path}[{key}]")] for key in sorted(table)]

    def decode(self, data: Any, path: str) -> Any:
        table: dict[int, Any] = {}
        for pair in _list(data, path):
            match pair:
                case [int() as key, element] if type(key) is int and key not in table:
                    table[key] = self.inner.decode(element, f"{path}[{key}]")
                case _:
                    raise invalid(path, "pairs of distinct integers and values are expected")
        return self.build(table)


@dataclasses.dataclass(frozen=True)
class Named:
    """One of a fixed set of objects, written by name: dtypes, classes, members of an enumeration."""

    values: Mapping[str, Any]

    def encode(self, value: Any, path: str) -> Any:
        for name, named in self.values.items():
            if value is named or (type(value) is type(named) and value == named):
                return name
        raise not_recordable(path, value)

    def decode(self, data: Any, path: str) -> Any:
        if not isinstance(data, str) or data not in self.values:
            raise invalid(path, f"{data!r} is not one of {', '.join(sorted(self.values))}")
        return self.values[data]


@dataclasses.dataclass(frozen=True)
class Union:
    """A value of one of several codecs, written as a pair of its name and its data."""

    choices: Mapping[str, tuple[type, Codec]]

    def encode(self, value: Any, path: str) -> Any:
        for name, (kind, codec) in self.choices.items():
            if type(value) is kind:
                return [name, codec.encode(value, path)]
        raise not_recordable(path, value)

    def decode(self, data: Any, path: str) -> Any:
        match data:
            case [str() as name, inner] if name in self.choices:
                return self.choices[name][1].decode(inner, path)
            case _:
                raise invalid(path, f"a name of {', '.join(sorted(self.choices))} and a value are expected")


@dataclasses.dataclass(frozen=True)
class Fields:
    """A dataclass, field by field; a class that has other fields than the codec is rejected."""

    kind: type
    fields: Mapping[str, Codec]
    #: Attributes that are no fields, which the constructor sets and the code after it changes.
    attributes: Mapping[str, Codec] = dataclasses.field(default_factory=lambda: cast("dict[str, Codec]", {}))

    def encode(self, value: Any, path: str) -> Any:
        """Return a JSON object of the fields. Raises ``NotRecordable`` for another class or other fields."""
        if type(value) is not self.kind:
            raise not_recordable(path, value)
        names = {field.name for field in dataclasses.fields(value)}
        if names != set(self.fields):
            unknown = ", ".join(sorted(names ^ set(self.fields)))
            raise NotRecordable(f"{path}: {self.kind.__name__} of this PyTorch has other fields: {unknown}")
        data = {
            name: codec.encode(getattr(value, name), f"{path}.{name}")
            for name, codec in {**self.fields, **self.attributes}.items()
            if not isinstance(codec, (Constant, Dropped))
        }
        for name, codec in self.fields.items():
            if isinstance(codec, Constant):
                codec.encode(getattr(value, name), f"{path}.{name}")
        return data

    def decode(self, data: Any, path: str) -> Any:
        """Return the dataclass of a JSON object.

        Raises ``InvalidRecord`` if fields differ or values are rejected.
        """
        codecs = {**self.fields, **self.attributes}
        written = {name for name, codec in codecs.items() if not isinstance(codec, (Constant, Dropped))}
        if not isinstance(data, dict):
            raise invalid(path, f"the fields of {self.kind.__name__} are expected")
        table = cast("dict[Any, Any]", data)
        if set(table) != written:
            other = ", ".join(sorted(str(name) for name in set(table) ^ written))
            raise invalid(path, f"{self.kind.__name__} has other fields: {other}")
        values = {
            name: codec.decode(table.get(name), f"{path}.{name}") for name, codec in self.fields.items()
        }
        try:
            built = self.kind(**values)
        except Exception as error:
            raise InvalidRecord(f"{path}: {self.kind.__name__} rejects the values: {error}") from error
        for name, codec in self.attributes.items():
            setattr(built, name, codec.decode(table[name], f"{path}.{name}"))
        return built


BOOL = Plain((bool,))
INT = Plain((int,))
STR = Plain((str,))
INTS = Elements(INT)


def private(path: str) -> Any:
    """The object at ``module:name``."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


def not_recordable(path: str, value: Any) -> NotRecordable:
    """The error for a value of a field."""
    return NotRecordable(f"{path}: no record states {_text(value)}")


def invalid(path: str, text: str) -> InvalidRecord:
    """The error for the JSON of a field."""
    return InvalidRecord(f"{path}: {text}")


def _text(value: Any) -> str:
    kind: Any = value.__class__
    if value is None or isinstance(value, (bool, int, str)):
        return f"{value!r:.80}"
    return f"a value of type {kind.__module__}.{kind.__qualname__}"


def _name(kinds: tuple[type, ...]) -> str:
    return " or ".join(kind.__name__ for kind in kinds)


def _list(data: Any, path: str) -> list[Any]:
    if not isinstance(data, list):
        raise invalid(path, "a list is expected")
    return cast("list[Any]", data)
