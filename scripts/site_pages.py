"""Pages of the documentation that are made from code while the site is built: protos and command line.

``mkdocs.yml`` names this file as a hook; MkDocs calls ``on_files``.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import typer

from kcache_grpc.cli.app import application

ROOT = Path(__file__).parent.parent
PROTOS = ROOT / "protos" / "kcache" / "v1"

_PROTOS_INTRODUCTION = """\
# Proto reference

Package `kcache.v1`, from the comments of `protos/kcache/v1`. [Wire API](wire-api.md) explains how the
methods work together, [errors](errors.md) lists the codes and reasons.
"""
_COMMANDS_INTRODUCTION = """\
# Command line

All commands share [exit codes](exit-codes.md) and [settings](settings.md). `--json` prints one JSON value
on stdout.
"""


class _Files(Protocol):
    def append(self, file: Any) -> None: ...


def on_files(files: _Files, *, config: Any) -> _Files:
    """MkDocs' event: add the generated pages to those of the directory ``docs``."""
    from mkdocs.structure.files import File

    for path, text in pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def pages() -> dict[str, str]:
    """Path below ``docs`` -> text of each generated page."""
    return {"reference/protos.md": proto_page(), "reference/cli.md": command_page()}


@dataclass
class _Block:
    """One service, message or enum: its comment, and a row for each method, field or value."""

    kind: str
    name: str
    comment: str
    rows: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])


_HEADS = {
    "service": ("method", "request", "response", "meaning"),
    "message": ("field", "type", "number", "meaning"),
    "enum": ("value", "number", "meaning"),
}
_OPENING = re.compile(r"^(service|message|enum|oneof) (\w+) \{(\})?$")
_RPC = re.compile(r"^rpc (\w+)\(((?:stream )?[\w.]+)\) returns \(((?:stream )?[\w.]+)\)")
_FIELD = re.compile(r"^((?:optional |repeated )?(?:map<[^>]+>|[\w.]+)) (\w+) = (\d+)")
_VALUE = re.compile(r"^(\w+) = (\d+);")


def proto_page() -> str:
    """All services, messages and enums with their comments."""
    parts = [_PROTOS_INTRODUCTION]
    for path in sorted(PROTOS.glob("*.proto"), key=lambda path: (path.stem != "kernel_cache", path.stem)):
        parts.append(f"## {path.name}\n\n{_introduction(path.read_text())}\n")
        parts += [_render(block) for block in _blocks(path.read_text())]
    return "\n".join(parts)


def _introduction(source: str) -> str:
    lines = source.partition("syntax =")[0].splitlines()
    return _text(" ".join(line.removeprefix("//").strip() for line in lines))


def _blocks(source: str) -> Iterator[_Block]:
    """The blocks of a file, outer ones before those inside; a ``oneof`` belongs to its message."""
    body = source.partition("package ")[2]
    done: list[_Block] = []
    open_blocks: list[_Block] = []
    comment: list[str] = []
    for statement in _statements(body):
        if statement.startswith("//"):
            comment.append(statement.removeprefix("//").strip())
            continue
        opening = _OPENING.match(statement)
        if opening is not None:
            kind, name, closed = opening.groups()
            if kind == "oneof":
                block = open_blocks[-1]
            else:
                prefix = f"{open_blocks[-1].name}." if open_blocks else ""
                block = _Block(kind, prefix + name, " ".join(comment))
                done.append(block)
            if not closed:
                open_blocks.append(block)
        elif statement == "}":
            open_blocks.pop()
        elif open_blocks:
            row = _row(open_blocks[-1].kind, statement, _text(" ".join(comment)))
            open_blocks[-1].rows += [row] if row else []
        comment = []
    yield from done


def _statements(body: str) -> Iterator[str]:
    """Lines without blanks; a statement that goes on over several lines is one."""
    pending = ""
    for raw in body.splitlines():
        line = raw.strip()
        pending = f"{pending} {line}".strip() if pending else line
        if not pending or pending.startswith("//") or pending[-1] in "{};":
            yield pending
            pending = ""


def _row(kind: str, statement: str, comment: str) -> tuple[str, ...] | None:
    pattern = {"service": _RPC, "message": _FIELD, "enum": _VALUE}[kind]
    match = pattern.match(statement)
    if match is None:
        return None
    if kind == "service":
        return (f"`{match[1]}`", f"`{match[2]}`", f"`{match[3]}`", comment)
    if kind == "message":
        return (f"`{match[2]}`", f"`{match[1]}`", match[3], comment)
    return (f"`{match[1]}`", match[2], comment)


def _render(block: _Block) -> str:
    head = _HEADS[block.kind]
    lines = [f"### {block.kind} `{block.name}`", "", _text(block.comment), ""]
    if block.rows:
        lines += [_line(head), _line(("---",) * len(head)), *map(_line, block.rows), ""]
    return "\n".join(lines)


def _line(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _text(comment: str) -> str:
    """A comment as Markdown: nothing in it is markup but code between backticks."""
    pieces = re.split(r"(`[^`]*`)", comment)
    return "".join(
        piece if piece.startswith("`") else re.sub(r"([*_\[\]])", r"\\\1", html.escape(piece, quote=False))
        for piece in pieces
    )


def command_page() -> str:
    """Every command with its arguments and options."""
    parts = [_COMMANDS_INTRODUCTION]
    for path, command in _commands(typer.main.get_command(application()), ("kcache",)):
        parts += [f"## {' '.join(path)}", "", _help(command.help), ""]
        rows = [_parameter(parameter) for parameter in command.params if parameter.name != "help"]
        if rows:
            head = ("argument or option", "meaning", "default")
            parts += [_line(head), _line(("---",) * len(head)), *map(_line, rows), ""]
    return "\n".join(parts)


def _commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Commands that do something, in the order of ``--help``; groups give theirs."""
    inner: dict[str, Any] = getattr(command, "commands", {})
    if not inner or (getattr(command, "invoke_without_command", False) and len(path) > 1):
        yield path, command
    for name, each in inner.items():
        yield from _commands(each, (*path, name))


def _parameter(parameter: Any) -> tuple[str, str, str]:
    names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    if parameter.param_type_name == "argument":
        names = f"`{parameter.metavar or parameter.name.upper()}`"
    default = parameter.default
    plain = isinstance(default, str | int | float) and default not in (False, "")
    return names, _help(getattr(parameter, "help", None)), f"`{default}`" if plain else ""


def _help(text: str | None) -> str:
    return _text(" ".join((text or "").replace("\b", "").split()))
